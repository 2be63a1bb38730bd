"""DeleteAcls (API 31), versions 0-3.

Deletes the ACLs that filters match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeleteAclsFilter(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: NotRequired[int]
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequest(TypedDict):
    filters: Sequence[DeleteAclsFilter]


class DeleteAclsMatchingAcl(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: NotRequired[int]
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsFilterResult(TypedDict):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAcl]


class DeleteAclsResponse(TypedDict):
    throttle_time_ms: int
    filter_results: Sequence[DeleteAclsFilterResult]
