"""DescribeProducers (API 61), versions 0-0.

The producers that a partition remembers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicRequest(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersRequest(TypedDict):
    topics: Sequence[TopicRequest]


class ProducerState(TypedDict):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class PartitionResponse(TypedDict):
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[ProducerState]


class TopicResponse(TypedDict):
    name: str
    partitions: Sequence[PartitionResponse]


class DescribeProducersResponse(TypedDict):
    throttle_time_ms: int
    topics: Sequence[TopicResponse]
