"""OffsetDelete (API 47), versions 0-0.

Forgets how far a group has read of some partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class OffsetDeleteRequestPartition(TypedDict):
    partition_index: int


class OffsetDeleteRequestTopic(TypedDict):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(TypedDict):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class OffsetDeleteResponseTopic(TypedDict):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(TypedDict):
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponseTopic]
