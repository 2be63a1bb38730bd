"""Fetch (API 1), versions 0-18.

Reads record batches from partitions; waits for them if asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class FetchPartition(TypedDict):
    partition: int
    current_leader_epoch: NotRequired[int]
    fetch_offset: int
    last_fetched_epoch: NotRequired[int]
    log_start_offset: NotRequired[int]
    partition_max_bytes: int
    replica_directory_id: NotRequired[str]
    high_watermark: NotRequired[int]


class FetchTopic(TypedDict):
    topic: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[FetchPartition]


class ForgottenTopic(TypedDict):
    topic: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[int]


class ReplicaState(TypedDict):
    replica_id: int
    replica_epoch: int


class FetchRequest(TypedDict):
    replica_id: NotRequired[int]
    max_wait_ms: int
    min_bytes: int
    max_bytes: NotRequired[int]
    isolation_level: NotRequired[int]
    session_id: NotRequired[int]
    session_epoch: NotRequired[int]
    topics: Sequence[FetchTopic]
    forgotten_topics_data: NotRequired[Sequence[ForgottenTopic]]
    rack_id: NotRequired[str]
    cluster_id: NotRequired[str | None]
    replica_state: NotRequired[ReplicaState]


class AbortedTransaction(TypedDict):
    producer_id: int
    first_offset: int


class EpochEndOffset(TypedDict):
    epoch: int
    end_offset: int


class LeaderIdAndEpoch(TypedDict):
    leader_id: int
    leader_epoch: int


class SnapshotId(TypedDict):
    end_offset: int
    epoch: int


class PartitionData(TypedDict):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: NotRequired[int]
    log_start_offset: NotRequired[int]
    aborted_transactions: NotRequired[Sequence[AbortedTransaction] | None]
    preferred_read_replica: NotRequired[int]
    records: bytes | int | None
    diverging_epoch: NotRequired[EpochEndOffset]
    current_leader: NotRequired[LeaderIdAndEpoch]
    snapshot_id: NotRequired[SnapshotId]


class FetchableTopicResponse(TypedDict):
    topic: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[PartitionData]


class NodeEndpoint(TypedDict):
    node_id: int
    host: str
    port: int
    rack: str | None


class FetchResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    session_id: NotRequired[int]
    responses: Sequence[FetchableTopicResponse]
    node_endpoints: NotRequired[Sequence[NodeEndpoint]]
