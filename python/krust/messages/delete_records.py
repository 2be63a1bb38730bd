"""DeleteRecords (API 21), versions 0-2.

Moves the log start offset up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeleteRecordsPartition(TypedDict):
    partition_index: int
    offset: int


class DeleteRecordsTopic(TypedDict):
    name: str
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsRequest(TypedDict):
    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: int


class DeleteRecordsPartitionResult(TypedDict):
    partition_index: int
    low_watermark: int
    error_code: int


class DeleteRecordsTopicResult(TypedDict):
    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(TypedDict):
    throttle_time_ms: int
    topics: Sequence[DeleteRecordsTopicResult]
