"""OffsetFetch (API 9), versions 0-10.

How far a group has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class OffsetFetchRequestTopic(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class OffsetFetchRequestTopics(TypedDict):
    name: NotRequired[str]
    topic_id: NotRequired[str]
    partition_indexes: Sequence[int]


class OffsetFetchRequestGroup(TypedDict):
    group_id: str
    member_id: NotRequired[str | None]
    member_epoch: NotRequired[int]
    topics: Sequence[OffsetFetchRequestTopics] | None


class OffsetFetchRequest(TypedDict):
    group_id: NotRequired[str]
    topics: NotRequired[Sequence[OffsetFetchRequestTopic] | None]
    groups: NotRequired[Sequence[OffsetFetchRequestGroup]]
    require_stable: NotRequired[bool]


class OffsetFetchResponsePartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    metadata: str | None
    error_code: int


class OffsetFetchResponseTopic(TypedDict):
    name: str
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseTopics(TypedDict):
    name: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(TypedDict):
    group_id: str
    topics: Sequence[OffsetFetchResponseTopics]
    error_code: int


class OffsetFetchResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: NotRequired[Sequence[OffsetFetchResponseTopic]]
    error_code: NotRequired[int]
    groups: NotRequired[Sequence[OffsetFetchResponseGroup]]
