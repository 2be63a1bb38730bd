"""ConsumerGroupTargetAssignmentMetadataValue, versions 0-0.

The group epoch that a target assignment was made for, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ConsumerGroupTargetAssignmentMetadataValue(TypedDict):
    assignment_epoch: int
    assignment_timestamp: NotRequired[int]
