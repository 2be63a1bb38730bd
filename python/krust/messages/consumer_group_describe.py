"""ConsumerGroupDescribe (API 69), versions 0-1.

State and members of consumer groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConsumerGroupDescribeRequest(TypedDict):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    krust_history: NotRequired[bool]


class TopicPartitions(TypedDict):
    topic_id: str
    topic_name: str
    partitions: Sequence[int]


class Assignment(TypedDict):
    topic_partitions: Sequence[TopicPartitions]


class Member(TypedDict):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: Assignment
    target_assignment: Assignment
    member_type: NotRequired[int]


class RebalanceReason(TypedDict):
    member_id: str
    why: str


class GroupRebalance(TypedDict):
    started_ms: int
    ended_ms: int
    generation: int
    members: int
    reasons: Sequence[RebalanceReason]
    more: int
    trouble: str | None
    assignor: str | None


class DescribedGroup(TypedDict):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[Member]
    authorized_operations: int
    krust_history: NotRequired[Sequence[GroupRebalance] | None]


class ConsumerGroupDescribeResponse(TypedDict):
    throttle_time_ms: int
    groups: Sequence[DescribedGroup]
