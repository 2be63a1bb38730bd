"""AlterPartition (API 56), versions 0-3.

A leader asks the controller for other in-sync replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class BrokerState(TypedDict):
    broker_id: int
    broker_epoch: int


class PartitionState(TypedDict):
    partition_index: int
    leader_epoch: int
    new_isr: NotRequired[Sequence[int]]
    new_isr_with_epochs: NotRequired[Sequence[BrokerState]]
    leader_recovery_state: NotRequired[int]
    partition_epoch: int


class TopicState(TypedDict):
    topic_name: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[PartitionState]


class AlterPartitionRequest(TypedDict):
    broker_id: int
    broker_epoch: int
    topics: Sequence[TopicState]


class PartitionData(TypedDict):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: NotRequired[int]
    partition_epoch: int


class TopicData(TypedDict):
    topic_name: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[PartitionData]


class AlterPartitionResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[TopicData]
