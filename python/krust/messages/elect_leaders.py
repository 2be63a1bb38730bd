"""ElectLeaders (API 43), versions 0-2.

Elects partition leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TopicPartitions(TypedDict):
    topic: str
    partitions: Sequence[int]


class ElectLeadersRequest(TypedDict):
    election_type: NotRequired[int]
    topic_partitions: Sequence[TopicPartitions] | None
    timeout_ms: int


class PartitionResult(TypedDict):
    partition_id: int
    error_code: int
    error_message: str | None


class ReplicaElectionResult(TypedDict):
    topic: str
    partition_result: Sequence[PartitionResult]


class ElectLeadersResponse(TypedDict):
    throttle_time_ms: int
    error_code: NotRequired[int]
    replica_election_results: Sequence[ReplicaElectionResult]
