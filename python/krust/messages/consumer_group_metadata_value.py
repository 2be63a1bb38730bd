"""ConsumerGroupMetadataValue, versions 0-0.

The epoch of a consumer group, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ConsumerGroupMetadataValue(TypedDict):
    epoch: int
    metadata_hash: NotRequired[int]
