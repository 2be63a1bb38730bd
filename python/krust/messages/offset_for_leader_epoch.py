"""OffsetForLeaderEpoch (API 23), versions 0-4.

Where the records of a leader epoch end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class OffsetForLeaderPartition(TypedDict):
    partition: int
    current_leader_epoch: NotRequired[int]
    leader_epoch: int


class OffsetForLeaderTopic(TypedDict):
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(TypedDict):
    replica_id: NotRequired[int]
    topics: Sequence[OffsetForLeaderTopic]


class EpochEndOffset(TypedDict):
    error_code: int
    partition: int
    leader_epoch: NotRequired[int]
    end_offset: int


class OffsetForLeaderTopicResult(TypedDict):
    topic: str
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[OffsetForLeaderTopicResult]
