"""A member of a consumer group, and its heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.classic_member import JoinRequest, Protocols
    from krust.coordinator.events import Event
    from krust.coordinator.snapshots import ConsumerMemberSnapshot
    from krust.messages import consumer_group_heartbeat
    from krust.messages.consumer_group_current_member_assignment_value import TopicPartitions
    from krust.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Partitions = frozenset[tuple[str, int]]
"""Topic id and partition. The id, because a topic that is created again has the same name."""

NO_PARTITIONS: Partitions = frozenset()

STABLE, UNREVOKED, UNRELEASED = 0, 1, 2
"""The states of a member, with Kafka's numbers: it has its target; it has to give up partitions; it
waits for partitions that other members have to give up."""

LEAVES, LEAVES_FOR_A_WHILE = -1, -2
"""The epochs of a heartbeat with which a member leaves for good, or a static member for a while."""


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """The session timeout and the protocols of a classic member in a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(slots=True)
class ConsumerMember:
    """A member of the group. No other member gets its `assigned` and `revoking` partitions."""

    id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: int = STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """partitions that it has to give up and may still read"""
    connection: int | None = None
    revoke_due: int | None = None
    joins: bool = False
    """whether a classic member's join waits"""
    join_due: int | None = None
    """when a classic member that has to join again is removed"""
    sync_due: int | None = None
    """when a classic member that has joined and not synced is removed"""
    restart_session: bool = False
    """its wait from before the conversion is over, so it begins a new session"""
    published: ConsumerMemberSnapshot | None = None
    """as last published"""
    published_key: tuple[object, ...] = ()
    """the values that `published` depends on"""

    def set_epoch(self, epoch: int) -> None:
        """Set the member epoch; the old one becomes the previous epoch."""
        self.previous_epoch, self.epoch = self.epoch, epoch

    def deadlines(self) -> list[int]:
        """All deadlines of the member: to revoke, to join, to sync."""
        return [each for each in (self.revoke_due, self.join_due, self.sync_due) if each]

    def snapshot(
        self, session_timeout_ms: int, has_current_assignment: bool
    ) -> ConsumerMemberSnapshot:
        """Its part of the group snapshot; the same object as long as nothing changes."""
        published_key = (
            self.epoch,
            has_current_assignment,
            self.connection,
            session_timeout_ms,
            self.classic is None,
        )
        if self.published is None or published_key != self.published_key:
            self.published_key = published_key
            self.published = {
                "instance_id": self.instance_id,
                "session_timeout_ms": session_timeout_ms,
                "timed": True,
                "connection": self.connection,
                "epoch": self.epoch,
                "has_current_assignment": has_current_assignment and self.classic is None,
            }
            if self.classic is not None:
                self.published["classic"], self.published["rejoin"] = (
                    True,
                    not has_current_assignment,
                )
        return self.published


@dataclass(slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request and its client. None: the field is absent: unchanged."""

    ticket: int
    version: int
    member_id: str
    epoch: int
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    names: frozenset[str] | None
    regex: str | None
    assignor: str | None
    owned: Partitions | None
    client_id: str
    client_host: str
    connection: int | None

    @classmethod
    def of(cls, event: Event[ConsumerGroupHeartbeatRequest]) -> Heartbeat:
        """Read an event."""
        message, client = event.message, event.client
        names, owned = message.get("subscribed_topic_names"), message.get("topic_partitions")
        host = client.get("host") or ""
        return cls(
            ticket=event.ticket,
            version=event.version,
            member_id=message["member_id"],
            epoch=message["member_epoch"],
            instance_id=message.get("instance_id"),
            rack=message.get("rack_id"),
            rebalance_timeout_ms=message.get("rebalance_timeout_ms", -1),
            names=None if names is None else frozenset(names),
            regex=message.get("subscribed_topic_regex"),
            assignor=message.get("server_assignor"),
            owned=None if owned is None else partitions_of(owned),
            client_id=client.get("id") or "",
            client_host=host if host.startswith("/") else f"/{host}",
            connection=client.get("connection"),
        )

    def is_full(self) -> bool:
        """Whether it has all fields. A client that is not sure sends all."""
        published_key = self.names is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and published_key and self.owned is not None

    def invalid(self) -> str | None:
        """Why the request is invalid in any group; None: it is valid."""
        if not self.member_id and (self.version >= 1 or self.epoch > 0 or self.epoch == LEAVES):
            return "MemberId can't be empty."
        if self.instance_id == "":
            return "InstanceId can't be empty."
        if self.rack == "":
            return "RackId can't be empty."
        if self.epoch == LEAVES_FOR_A_WHILE and self.instance_id is None:
            return "InstanceId can't be null."
        if self.epoch < LEAVES_FOR_A_WHILE:
            return "MemberEpoch is invalid."
        if self.epoch != 0:
            return None
        if self.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if self.owned != NO_PARTITIONS:
            return "TopicPartitions must be empty when (re-)joining."
        if self.names is None and self.regex is None:
            return (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
                " (re-)joining."
            )
        return None


@dataclass(slots=True)
class DelayedResponse:
    """A heartbeat, or a classic member's join, that is answered once the target is known."""

    ticket: int
    member_id: str
    owned: Partitions | None
    with_assignment: bool
    """whether the response has the assignment even if it is unchanged"""
    changed: bool
    """whether the subscription changed"""
    join: JoinRequest | None = None
    suspected: bool = False
    """the core has reported the expiry of its session once. The second report removes it."""


def group_by_topic(partitions: Iterable[tuple[str, int]]) -> list[TopicPartitions]:
    """Partitions as requests, responses and records have them, sorted."""
    by_topic: dict[str, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return [{"topic_id": each, "partitions": numbers} for each, numbers in by_topic.items()]


def partitions_of(topics: Iterable[consumer_group_heartbeat.TopicPartitions]) -> Partitions:
    """The partitions of a list of topics."""
    return frozenset((each["topic_id"], one) for each in topics for one in each["partitions"])
