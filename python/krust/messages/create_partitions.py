"""CreatePartitions (API 37), versions 0-3.

Adds partitions to topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class CreatePartitionsAssignment(TypedDict):
    broker_ids: Sequence[int]


class CreatePartitionsTopic(TypedDict):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(TypedDict):
    topics: Sequence[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsTopicResult(TypedDict):
    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsResponse(TypedDict):
    throttle_time_ms: int
    results: Sequence[CreatePartitionsTopicResult]
