"""SyncGroup (API 14), versions 0-5.

Hands out the classic group leader's assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class SyncGroupRequestAssignment(TypedDict):
    member_id: str
    assignment: bytes


class SyncGroupRequest(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: NotRequired[str | None]
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
    assignments: Sequence[SyncGroupRequestAssignment]


class SyncGroupResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: int
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
    assignment: bytes
