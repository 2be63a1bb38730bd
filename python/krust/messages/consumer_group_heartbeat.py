"""ConsumerGroupHeartbeat (API 68), versions 0-1.

Joins, keeps up and leaves the membership in a consumer group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicPartitions(TypedDict):
    topic_id: str
    partitions: Sequence[int]


class ConsumerGroupHeartbeatRequest(TypedDict):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: NotRequired[str | None]
    server_assignor: str | None
    topic_partitions: Sequence[TopicPartitions] | None


class Assignment(TypedDict):
    topic_partitions: Sequence[TopicPartitions]


class ConsumerGroupHeartbeatResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
