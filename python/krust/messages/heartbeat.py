"""Heartbeat (API 12), versions 0-4.

Says that a member of a classic group is alive.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class HeartbeatRequest(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: NotRequired[str | None]


class HeartbeatResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: int
