"""Produce (API 0), versions 0-13.

Appends record batches to partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class PartitionProduceData(TypedDict):
    index: int
    records: bytes | int | None


class TopicProduceData(TypedDict):
    name: NotRequired[str]
    topic_id: NotRequired[str]
    partition_data: Sequence[PartitionProduceData]


class ProduceRequest(TypedDict):
    transactional_id: NotRequired[str | None]
    acks: int
    timeout_ms: int
    topic_data: Sequence[TopicProduceData]


class BatchIndexAndErrorMessage(TypedDict):
    batch_index: int
    batch_index_error_message: str | None


class LeaderIdAndEpoch(TypedDict):
    leader_id: int
    leader_epoch: int


class PartitionProduceResponse(TypedDict):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: NotRequired[int]
    log_start_offset: NotRequired[int]
    record_errors: NotRequired[Sequence[BatchIndexAndErrorMessage]]
    error_message: NotRequired[str | None]
    current_leader: NotRequired[LeaderIdAndEpoch]


class TopicProduceResponse(TypedDict):
    name: NotRequired[str]
    topic_id: NotRequired[str]
    partition_responses: Sequence[PartitionProduceResponse]


class NodeEndpoint(TypedDict):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProduceResponse(TypedDict):
    responses: Sequence[TopicProduceResponse]
    throttle_time_ms: NotRequired[int]
    node_endpoints: NotRequired[Sequence[NodeEndpoint]]
