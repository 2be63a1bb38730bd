"""TxnOffsetCommit (API 28), versions 0-5.

Stores how far a group has read, as part of a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class TxnOffsetCommitRequestPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(TypedDict):
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(TypedDict):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: NotRequired[int]
    member_id: NotRequired[str]
    group_instance_id: NotRequired[str | None]
    topics: Sequence[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class TxnOffsetCommitResponseTopic(TypedDict):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(TypedDict):
    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponseTopic]
