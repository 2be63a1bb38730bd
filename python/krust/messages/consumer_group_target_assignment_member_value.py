"""ConsumerGroupTargetAssignmentMemberValue, versions 0-0.

What a member of a consumer group is to own, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicPartition(TypedDict):
    topic_id: str
    partitions: Sequence[int]


class ConsumerGroupTargetAssignmentMemberValue(TypedDict):
    topic_partitions: Sequence[TopicPartition]
