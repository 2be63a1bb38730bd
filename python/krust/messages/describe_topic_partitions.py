"""DescribeTopicPartitions (API 75), versions 0-0.

Topics and partitions in pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicRequest(TypedDict):
    name: str


class Cursor(TypedDict):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsRequest(TypedDict):
    topics: Sequence[TopicRequest]
    response_partition_limit: int
    cursor: Cursor | None


class DescribeTopicPartitionsResponsePartition(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]


class DescribeTopicPartitionsResponseTopic(TypedDict):
    error_code: int
    name: str | None
    topic_id: str
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponse(TypedDict):
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None
