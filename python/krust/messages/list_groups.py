"""ListGroups (API 16), versions 0-5.

The groups a broker keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListGroupsRequest(TypedDict):
    states_filter: NotRequired[Sequence[str]]
    types_filter: NotRequired[Sequence[str]]


class ListedGroup(TypedDict):
    group_id: str
    protocol_type: str
    group_state: NotRequired[str]
    group_type: NotRequired[str]


class ListGroupsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: int
    groups: Sequence[ListedGroup]
