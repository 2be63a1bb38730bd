"""Metadata (API 3), versions 0-13.

Brokers, topics, partitions and their leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class MetadataRequestTopic(TypedDict):
    topic_id: NotRequired[str]
    name: str | None


class MetadataRequest(TypedDict):
    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: NotRequired[bool]
    include_cluster_authorized_operations: NotRequired[bool]
    include_topic_authorized_operations: NotRequired[bool]


class MetadataResponseBroker(TypedDict):
    node_id: int
    host: str
    port: int
    rack: NotRequired[str | None]


class MetadataResponsePartition(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: NotRequired[int]
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: NotRequired[Sequence[int]]


class MetadataResponseTopic(TypedDict):
    error_code: int
    name: str | None
    topic_id: NotRequired[str]
    is_internal: NotRequired[bool]
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: NotRequired[int]


class MetadataResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: NotRequired[str | None]
    controller_id: NotRequired[int]
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: NotRequired[int]
    error_code: NotRequired[int]
