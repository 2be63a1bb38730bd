"""UpdateMetadata (API 6), versions 0-8.

The controller tells a broker of all brokers and of the leaders of partitions.
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
    zk_version: int
    replicas: Sequence[int]
    offline_replicas: NotRequired[Sequence[int]]


class UpdateMetadataPartitionState(TypedDict):
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    zk_version: int
    replicas: Sequence[int]
    offline_replicas: Sequence[int]


class UpdateMetadataTopicState(TypedDict):
    topic_name: str
    topic_id: NotRequired[str]
    partition_states: Sequence[UpdateMetadataPartitionState]


class UpdateMetadataEndpoint(TypedDict):
    port: int
    host: str
    listener: NotRequired[str]
    security_protocol: int


class UpdateMetadataBroker(TypedDict):
    id: int
    v0_host: NotRequired[str]
    v0_port: NotRequired[int]
    endpoints: NotRequired[Sequence[UpdateMetadataEndpoint]]
    rack: NotRequired[str | None]


class UpdateMetadataRequest(TypedDict):
    controller_id: int
    is_kraft_controller: NotRequired[bool]
    controller_epoch: int
    broker_epoch: NotRequired[int]
    ungrouped_partition_states: NotRequired[Sequence[UngroupedPartitionState]]
    topic_states: NotRequired[Sequence[UpdateMetadataTopicState]]
    live_brokers: Sequence[UpdateMetadataBroker]
    type: NotRequired[int]


class UpdateMetadataResponse(TypedDict):
    error_code: int
