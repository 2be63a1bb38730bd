"""CreateAcls (API 30), versions 0-3.

Adds ACLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class AclCreation(TypedDict):
    resource_type: int
    resource_name: str
    resource_pattern_type: NotRequired[int]
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequest(TypedDict):
    creations: Sequence[AclCreation]


class AclCreationResult(TypedDict):
    error_code: int
    error_message: str | None


class CreateAclsResponse(TypedDict):
    throttle_time_ms: int
    results: Sequence[AclCreationResult]
