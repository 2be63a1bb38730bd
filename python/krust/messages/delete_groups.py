"""DeleteGroups (API 42), versions 0-2.

Deletes groups that have no members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeleteGroupsRequest(TypedDict):
    groups_names: Sequence[str]


class DeletableGroupResult(TypedDict):
    group_id: str
    error_code: int


class DeleteGroupsResponse(TypedDict):
    throttle_time_ms: int
    results: Sequence[DeletableGroupResult]
