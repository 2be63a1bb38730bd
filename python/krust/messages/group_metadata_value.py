"""GroupMetadataValue, versions 0-4.

A classic group after its last rebalance, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemberMetadata(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    client_id: str
    client_host: str
    rebalance_timeout: NotRequired[int]
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(TypedDict):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: NotRequired[int]
    members: Sequence[MemberMetadata]
