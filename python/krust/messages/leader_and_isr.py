"""LeaderAndIsr (API 4), versions 0-7.

The controller tells a broker which partitions it leads and which it follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class UngroupedPartitionState(TypedDict):
    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]
    is_new: NotRequired[bool]


class LeaderAndIsrPartitionState(TypedDict):
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]
    adding_replicas: NotRequired[Sequence[int]]
    removing_replicas: NotRequired[Sequence[int]]
    is_new: bool
    leader_recovery_state: NotRequired[int]


class LeaderAndIsrTopicState(TypedDict):
    topic_name: str
    topic_id: NotRequired[str]
    partition_states: Sequence[LeaderAndIsrPartitionState]


class LeaderAndIsrLiveLeader(TypedDict):
    broker_id: int
    host_name: str
    port: int


class LeaderAndIsrRequest(TypedDict):
    controller_id: int
    is_kraft_controller: NotRequired[bool]
    controller_epoch: int
    broker_epoch: NotRequired[int]
    type: NotRequired[int]
    ungrouped_partition_states: NotRequired[Sequence[UngroupedPartitionState]]
    topic_states: NotRequired[Sequence[LeaderAndIsrTopicState]]
    live_leaders: Sequence[LeaderAndIsrLiveLeader]


class UngroupedPartitionError(TypedDict):
    topic_name: str
    partition_index: int
    error_code: int


class LeaderAndIsrPartitionError(TypedDict):
    partition_index: int
    error_code: int


class LeaderAndIsrTopicError(TypedDict):
    topic_id: str
    partition_errors: Sequence[LeaderAndIsrPartitionError]


class LeaderAndIsrResponse(TypedDict):
    error_code: int
    partition_errors: NotRequired[Sequence[UngroupedPartitionError]]
    topics: NotRequired[Sequence[LeaderAndIsrTopicError]]
