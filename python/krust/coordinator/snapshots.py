"""Group snapshots: what the core has to know of a group to answer heartbeats and commits itself.

A snapshot is whole: the core replaces the one before. A member's part is the same object as long as
nothing changes, so an unchanged member costs nothing.
`_krust.Server.apply_group_outcome` reads these dicts (`rust/py/src/decided.rs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class MemberSnapshot(TypedDict):
    """A member of a classic group."""

    instance_id: str | None
    session_timeout_ms: int
    timed: bool
    """whether its session can expire; it cannot while a response waits"""
    connection: int | None
    """the connection of its last request"""


class ConsumerMemberSnapshot(MemberSnapshot):
    """A member of a consumer group."""

    epoch: int
    has_current_assignment: bool
    """whether a heartbeat that changes nothing can be answered without the coordinator"""
    classic: NotRequired[bool]
    """whether it speaks the classic protocol"""
    rejoin: NotRequired[bool]
    """whether a heartbeat tells it to join again; of a classic member only"""


class ClassicGroupSnapshot(TypedDict):
    """A classic group."""

    state: str
    generation: int
    protocol_type: str
    since_ms: int
    """when the group came into this state, on the wall clock"""
    subscribed: Sequence[str] | None
    """topics that any member subscribes to; None: not known"""
    members: Mapping[str, MemberSnapshot]


class ConsumerGroupSnapshot(TypedDict):
    """A consumer group."""

    type: str
    """`consumer`"""
    state: str
    epoch: int
    protocol_type: str
    since_ms: int
    subscribed: Sequence[str]
    heartbeat_interval_ms: int
    members: Mapping[str, ConsumerMemberSnapshot]


GroupSnapshot = ClassicGroupSnapshot | ConsumerGroupSnapshot
