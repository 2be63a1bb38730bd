"""DescribeAcls (API 29), versions 0-3.

The access rules that match a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribeAclsRequest(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: NotRequired[int]
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclDescription(TypedDict):
    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResource(TypedDict):
    resource_type: int
    resource_name: str
    pattern_type: NotRequired[int]
    acls: Sequence[AclDescription]


class DescribeAclsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Sequence[DescribeAclsResource]
