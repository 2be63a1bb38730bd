"""CreateTopics (API 19), versions 0-7.

Creates topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class CreatableReplicaAssignment(TypedDict):
    partition_index: int
    broker_ids: Sequence[int]


class CreatableTopicConfig(TypedDict):
    name: str
    value: str | None


class CreatableTopic(TypedDict):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]


class CreateTopicsRequest(TypedDict):
    topics: Sequence[CreatableTopic]
    timeout_ms: int
    validate_only: NotRequired[bool]


class CreatableTopicConfigs(TypedDict):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreatableTopicResult(TypedDict):
    name: str
    topic_id: NotRequired[str]
    error_code: int
    error_message: NotRequired[str | None]
    num_partitions: NotRequired[int]
    replication_factor: NotRequired[int]
    configs: NotRequired[Sequence[CreatableTopicConfigs] | None]
    topic_config_error_code: NotRequired[int]


class CreateTopicsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[CreatableTopicResult]
