"""AlterReplicaLogDirs (API 34), versions 0-2.

Moves replicas of one broker to other log directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class AlterReplicaLogDirTopic(TypedDict):
    name: str
    partitions: Sequence[int]


class AlterReplicaLogDir(TypedDict):
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(TypedDict):
    dirs: Sequence[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(TypedDict):
    partition_index: int
    error_code: int


class AlterReplicaLogDirTopicResult(TypedDict):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(TypedDict):
    throttle_time_ms: int
    results: Sequence[AlterReplicaLogDirTopicResult]
