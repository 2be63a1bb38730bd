"""ConsumerGroupCurrentMemberAssignmentValue, versions 0-0.

What a member of a consumer group owns, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicPartitions(TypedDict):
    topic_id: str
    partitions: Sequence[int]
    assignment_epochs: NotRequired[Sequence[int] | None]


class ConsumerGroupCurrentMemberAssignmentValue(TypedDict):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[TopicPartitions]
    partitions_pending_revocation: Sequence[TopicPartitions]
