"""AlterPartitionReassignments (API 45), versions 0-1.

Moves partitions to other brokers, or gives that up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReassignablePartition(TypedDict):
    partition_index: int
    replicas: Sequence[int] | None


class ReassignableTopic(TypedDict):
    name: str
    partitions: Sequence[ReassignablePartition]


class AlterPartitionReassignmentsRequest(TypedDict):
    timeout_ms: int
    allow_replication_factor_change: NotRequired[bool]
    topics: Sequence[ReassignableTopic]


class ReassignablePartitionResponse(TypedDict):
    partition_index: int
    error_code: int
    error_message: str | None


class ReassignableTopicResponse(TypedDict):
    name: str
    partitions: Sequence[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(TypedDict):
    throttle_time_ms: int
    allow_replication_factor_change: NotRequired[bool]
    error_code: int
    error_message: str | None
    responses: Sequence[ReassignableTopicResponse]
