"""DescribeCluster (API 60), versions 0-2.

The cluster's id, controller and brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribeClusterRequest(TypedDict):
    include_cluster_authorized_operations: bool
    endpoint_type: NotRequired[int]
    include_fenced_brokers: NotRequired[bool]


class DescribeClusterBroker(TypedDict):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: NotRequired[bool]


class DescribeClusterResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: NotRequired[int]
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: int
