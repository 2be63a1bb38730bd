"""OffsetCommit (API 8), versions 0-10.

Stores how far a group has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class OffsetCommitRequestPartition(TypedDict):
    partition_index: int
    committed_offset: int
    commit_timestamp: NotRequired[int]
    committed_leader_epoch: NotRequired[int]
    committed_metadata: str | None


class OffsetCommitRequestTopic(TypedDict):
    name: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[OffsetCommitRequestPartition]


class OffsetCommitRequest(TypedDict):
    group_id: str
    generation_id_or_member_epoch: NotRequired[int]
    member_id: NotRequired[str]
    retention_time_ms: NotRequired[int]
    group_instance_id: NotRequired[str | None]
    topics: Sequence[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class OffsetCommitResponseTopic(TypedDict):
    name: NotRequired[str]
    topic_id: NotRequired[str]
    partitions: Sequence[OffsetCommitResponsePartition]


class OffsetCommitResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetCommitResponseTopic]
