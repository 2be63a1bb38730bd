"""A member of a classic group, its JoinGroup request, and one call of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.coordinator.events import Event, GroupOutcome, GroupSettings
    from krust.coordinator.snapshots import MemberSnapshot
    from krust.messages.join_group import JoinGroupRequest

Protocols = tuple[tuple[str, bytes], ...]
"""name and metadata (a consumer's subscription), best first"""

_MEMBER_BYTES = 1024
"""the cost of a member without protocols"""
_PROTOCOL_BYTES = 192
"""the cost of a protocol beside its name and metadata"""


def size(protocols: Protocols) -> int:
    """The bytes that the budget counts for a member with these protocols."""
    protocol_bytes = sum(len(name) + len(data) + _PROTOCOL_BYTES for name, data in protocols)
    return protocol_bytes + _MEMBER_BYTES


@dataclass(slots=True)
class Turn:
    """One call of the coordinator: its time, and the GroupOutcome that collects its effects."""

    settings: GroupSettings
    new_id: Callable[[], str]
    now_ms: int
    out: GroupOutcome
    dirty: dict[str, None] = field(default_factory=dict)
    """groups whose snapshot has to be published"""
    open: dict[str, None] = field(default_factory=dict)
    """consumer groups that compute a target or answer members at the end of the batch"""
    jumped_ms: int = 0
    """the wall clock less `now_ms`, which does not jump"""

    @property
    def wall_ms(self) -> int:
        """The time on the wall clock, which records in the log have."""
        return self.now_ms + self.jumped_ms


@dataclass(slots=True)
class JoinRequest:
    """A JoinGroup request and its client."""

    ticket: int
    version: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    connection: int | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str

    @classmethod
    def of(cls, event: Event[JoinGroupRequest]) -> JoinRequest:
        """Read an event. Without a rebalance timeout (v0, or -1) the session timeout is used."""
        message, client = event.message, event.client
        session_ms = message["session_timeout_ms"]
        rebalance_ms = message.get("rebalance_timeout_ms", -1) if event.version > 0 else -1
        host = client.get("host") or ""
        return cls(
            ticket=event.ticket,
            version=event.version,
            member_id=message["member_id"],
            instance_id=message.get("group_instance_id"),
            client_id=client.get("id") or "",
            client_host=host if host.startswith("/") else f"/{host}",
            connection=client.get("connection"),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if rebalance_ms > 0 else session_ms,
            protocol_type=message["protocol_type"],
            protocols=tuple((each["name"], each["metadata"]) for each in message["protocols"]),
            reason=message.get("reason") or "",
        )


@dataclass(slots=True)
class ClassicMember:
    """A member of the group. It waits for at most one join and one sync at a time."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    connection: int | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: int | None = None
    """ticket of the JoinGroup that waits"""
    sync: int | None = None
    """ticket of the SyncGroup that waits"""
    join_expires_ms: int | None = None
    """when a new member, whose first join waits, is removed"""
    replayed: bool = False
    """read from the log, which has only the chosen protocol"""
    suspected: bool = False
    """the core reported its session as expired while it waited"""
    restart_session: bool = False
    """its wait is over, so it begins a new session"""
    published: MemberSnapshot | None = None
    """as last published"""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a response, so that its session does not expire."""
        return self.join is not None or self.sync is not None

    def size(self) -> int:
        """The bytes that the budget counts for this member."""
        return size(self.protocols)

    def names(self) -> dict[str, None]:
        """Its protocols, each once, best first."""
        return dict.fromkeys(name for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def has_same_metadata(self, protocols: Protocols, chosen: str | None) -> bool:
        """Whether a join has the protocols that are known."""
        if self.replayed and chosen is not None:
            return (chosen, self.metadata(chosen)) in protocols
        return self.protocols == protocols

    def update(self, request: JoinRequest) -> None:
        """Take over a join. The caller counts the protocols again."""
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.client_id, self.client_host = request.client_id, request.client_host
        self.connection = request.connection
        self.replayed = False

    def snapshot(self) -> MemberSnapshot:
        """Its part of the group snapshot; the same object as long as nothing changes."""
        published: MemberSnapshot = {
            "instance_id": self.instance_id,
            "session_timeout_ms": self.session_timeout_ms,
            "timed": not self.is_waiting,
            "connection": self.connection,
        }
        if self.published is None or published != self.published:
            self.published = published
        return self.published
