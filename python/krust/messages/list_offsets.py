"""ListOffsets (API 2), versions 0-11.

The offset that belongs to a point in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListOffsetsPartition(TypedDict):
    partition_index: int
    current_leader_epoch: NotRequired[int]
    timestamp: int
    max_num_offsets: NotRequired[int]


class ListOffsetsTopic(TypedDict):
    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(TypedDict):
    replica_id: int
    isolation_level: NotRequired[int]
    topics: Sequence[ListOffsetsTopic]
    timeout_ms: NotRequired[int]


class ListOffsetsPartitionResponse(TypedDict):
    partition_index: int
    error_code: int
    old_style_offsets: NotRequired[Sequence[int]]
    timestamp: NotRequired[int]
    offset: NotRequired[int]
    leader_epoch: NotRequired[int]


class ListOffsetsTopicResponse(TypedDict):
    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]


class ListOffsetsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    topics: Sequence[ListOffsetsTopicResponse]
