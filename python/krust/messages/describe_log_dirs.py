"""DescribeLogDirs (API 35), versions 0-5.

The log directories, the partitions in them, and their sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribableLogDirTopic(TypedDict):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequest(TypedDict):
    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(TypedDict):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsTopic(TypedDict):
    name: str
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(TypedDict):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: NotRequired[int]
    usable_bytes: NotRequired[int]
    is_cordoned: NotRequired[bool]


class DescribeLogDirsResponse(TypedDict):
    throttle_time_ms: int
    error_code: NotRequired[int]
    results: Sequence[DescribeLogDirsResult]
