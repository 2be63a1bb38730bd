"""DescribeGroups (API 15), versions 0-6.

State and members of classic groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribeGroupsRequest(TypedDict):
    groups: Sequence[str]
    include_authorized_operations: NotRequired[bool]
    krust_history: NotRequired[bool]


class DescribedGroupMember(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class RebalanceReason(TypedDict):
    member_id: str
    why: str


class GroupRebalance(TypedDict):
    started_ms: int
    ended_ms: int
    generation: int
    members: int
    reasons: Sequence[RebalanceReason]
    more: int
    trouble: str | None
    assignor: str | None


class DescribedGroup(TypedDict):
    error_code: int
    error_message: NotRequired[str | None]
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: NotRequired[int]
    krust_history: NotRequired[Sequence[GroupRebalance] | None]


class DescribeGroupsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    groups: Sequence[DescribedGroup]
