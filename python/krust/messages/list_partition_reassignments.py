"""ListPartitionReassignments (API 46), versions 0-0.

The partitions that are moving between brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListPartitionReassignmentsTopics(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsRequest(TypedDict):
    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsTopics] | None


class OngoingPartitionReassignment(TypedDict):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


class OngoingTopicReassignment(TypedDict):
    name: str
    partitions: Sequence[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[OngoingTopicReassignment]
