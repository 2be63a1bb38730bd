"""LeaveGroup (API 13), versions 0-5.

Leaves a classic group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemberIdentity(TypedDict):
    member_id: str
    group_instance_id: str | None
    reason: NotRequired[str | None]


class LeaveGroupRequest(TypedDict):
    group_id: str
    member_id: NotRequired[str]
    members: NotRequired[Sequence[MemberIdentity]]


class MemberResponse(TypedDict):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: int
    members: NotRequired[Sequence[MemberResponse]]
