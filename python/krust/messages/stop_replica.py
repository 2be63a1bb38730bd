"""StopReplica (API 5), versions 0-4.

The controller tells a broker which replicas it has no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopReplicaPartitionV0(TypedDict):
    topic_name: str
    partition_index: int


class StopReplicaTopicV1(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class StopReplicaPartitionState(TypedDict):
    partition_index: int
    leader_epoch: int
    delete_partition: bool


class StopReplicaTopicState(TypedDict):
    topic_name: str
    partition_states: Sequence[StopReplicaPartitionState]


class StopReplicaRequest(TypedDict):
    controller_id: int
    is_kraft_controller: NotRequired[bool]
    controller_epoch: int
    broker_epoch: NotRequired[int]
    delete_partitions: NotRequired[bool]
    ungrouped_partitions: NotRequired[Sequence[StopReplicaPartitionV0]]
    topics: NotRequired[Sequence[StopReplicaTopicV1]]
    topic_states: NotRequired[Sequence[StopReplicaTopicState]]


class StopReplicaPartitionError(TypedDict):
    topic_name: str
    partition_index: int
    error_code: int


class StopReplicaResponse(TypedDict):
    error_code: int
    partition_errors: Sequence[StopReplicaPartitionError]
