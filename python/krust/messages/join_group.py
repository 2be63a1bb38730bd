"""JoinGroup (API 11), versions 0-9.

Enters a classic group, or stays in it through a rebalance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class JoinGroupRequestProtocol(TypedDict):
    name: str
    metadata: bytes


class JoinGroupRequest(TypedDict):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: NotRequired[int]
    member_id: str
    group_instance_id: NotRequired[str | None]
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: NotRequired[str | None]


class JoinGroupResponseMember(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    metadata: bytes


class JoinGroupResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: int
    generation_id: int
    protocol_type: NotRequired[str | None]
    protocol_name: str | None
    leader: str
    skip_assignment: NotRequired[bool]
    member_id: str
    members: Sequence[JoinGroupResponseMember]
