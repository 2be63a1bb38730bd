"""What a classic group holds and what can be read off it: members, votes, record, fence.

`waiting` counts the members whose join waits, `supported[p]` those that speak p; both are kept in
step by whoever changes a member. Nothing here decides when something happens: `classic` does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from krust.coordinator import replies
from krust.coordinator.consumer_protocol import PROTOCOL_TYPE, read_subscription
from krust.coordinator.history import History
from krust.coordinator.member import Member
from krust.coordinator.states import EMPTY, STABLE
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.coordinator.member import Turn
    from krust.coordinator.outcome import Message


class Roster:
    """A group's members and what follows from them."""

    kind = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state = EMPTY
        self.since_ms = now_ms
        self.generation = 0
        self.recorded = 0
        self.last: Message | None = None
        """the value in the log"""
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        """member id -> when it expires"""
        self.unsynced: set[str] = set()
        self.supported: Counter[str] = Counter()
        self.protocol_bytes = 0
        """what its members say of themselves"""
        self.assignment_bytes = 0
        self.waiting = 0
        self.subscribed: list[str] | None = None
        self.history = History(self.id)
        self.issued = 0
        """a generation that may have been given out before a restart"""

    def enlist(self, member: Member) -> None:
        """Somebody belongs to the group; the first one leads."""
        self.members[member.id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def strike(self, member: Member) -> None:
        """Somebody does not any more; the oldest of the others leads."""
        del self.members[member.id]
        self.unsynced.discard(member.id)
        self._count(member, -1)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    @property
    def metadata_bytes(self) -> int:
        """What its members say and are assigned."""
        return self.protocol_bytes + self.assignment_bytes

    def hand_out(self, given: Mapping[str, bytes]) -> None:
        """These are the members' assignments now."""
        self.assignment_bytes = 0
        for member in self.members.values():
            member.assignment = given.get(member.id, b"")
            self.assignment_bytes += len(member.assignment)

    def _count(self, member: Member, by: int) -> None:
        self.protocol_bytes += by * member.size()
        for name in member.names():
            self.supported[name] += by
            if not self.supported[name]:
                del self.supported[name]

    def vote(self) -> str:
        """Each member votes for its first protocol that all speak; a tie goes to the older vote."""
        count = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            mine = (name for name, _ in member.protocols if self.supported[name] == count)
            votes[next(mine)] += 1
        return max(votes, key=votes.__getitem__)

    def rebalance_timeout_ms(self) -> int:
        """So long do joins and syncs wait."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def fenced(self, member_id: str, instance_id: str | None) -> Code:
        """Whether this is the member it says it is."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is not None and known != member_id:
                return Code.FENCED_INSTANCE_ID
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def roll(self) -> list[Message]:
        """All members as the leader is told."""
        return [
            {
                "member_id": each.id,
                "group_instance_id": each.instance_id,
                "metadata": each.metadata(self.protocol),
            }
            for each in self.members.values()
        ]

    def store(self, turn: Turn) -> None:
        """Write the group as it is."""
        members = [
            {
                "member_id": each.id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "rebalance_timeout": each.rebalance_timeout_ms,
                "session_timeout": each.session_timeout_ms,
                "subscription": each.metadata(self.protocol),
                "assignment": each.assignment,
            }
            for each in self.members.values()
        ]
        self.record(turn, self.value(members))

    def topics(self) -> list[str] | None:
        """The topics that any member subscribes to; None: not known."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        try:
            metadata = {each.metadata(self.protocol) for each in self.members.values()}
            found = {topic for each in metadata for topic in read_subscription(each).topics}
        except ValueError:
            return None
        return sorted(found)

    def value(self, members: list[Message]) -> Message:
        """The record's value."""
        return {
            "protocol_type": self.protocol_type,
            "generation": self.generation,
            "protocol": self.protocol if members else None,
            "leader": self.leader if members else None,
            "current_state_timestamp": self.since_ms,
            "members": members,
        }

    def record(self, turn: Turn, value: Message) -> None:
        """Write to the log."""
        self.last = value
        self.recorded = value["generation"]
        turn.out.records.append((self.id, value))

    # -- what others read

    def joined(
        self,
        member: Member,
        *,
        told: bool,
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> Message:
        """A join's answer; `told` who else is here."""
        return replies.joined(
            member.id,
            self.generation,
            self.protocol,
            self.protocol_type,
            leader or self.leader,
            members=self.roll() if told else (),
            skip_assignment=skip_assignment,
        )

    def synced(self, member: Member) -> Message:
        """A sync's answer."""
        return replies.synced(self.protocol_type, self.protocol, member.assignment)

    def publish(self, turn: Turn) -> None:
        """Bring the fence to the core; see Outcome.fences for why there may be two rows."""
        untimed = {
            each.id: {**each.row, "timed": False}
            for each in self.members.values()
            if each.renew and each.row is not None and each.row["timed"] and not each.waits
        }
        row: Message = {
            "state": self.state,
            "generation": self.generation,
            "protocol_type": self.protocol_type,
            "since_ms": self.since_ms,
            "subscribed": self.subscribed,
            "members": {each.id: each.fence() for each in self.members.values()},
        }
        if untimed:
            turn.out.fences.append((self.id, {**row, "members": {**row["members"], **untimed}}))
        for each in self.members.values():
            each.renew = False
        turn.out.fences.append((self.id, row))

    def describe(self) -> Message:
        """Its part of DescribeGroups: metadata and assignments are shown while they hold."""
        stable = self.state == STABLE
        shown = replies.described(self.id, self.state)
        shown["protocol_type"] = self.protocol_type
        shown["protocol_data"] = (self.protocol or "") if stable else ""
        shown["members"] = [
            {
                "member_id": each.id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata(self.protocol) if stable else b"",
                "member_assignment": each.assignment if stable else b"",
            }
            for each in self.members.values()
        ]
        return shown

    def waiting_tickets(self) -> list[tuple[int, Message]]:
        """Whom it owes an answer, and what to say when the group is read again."""
        owed: list[tuple[int, Message]] = []
        for each in self.members.values():
            if each.join is not None:
                refusal = replies.join(Code.COORDINATOR_NOT_AVAILABLE, each.id)
                owed.append((each.join, refusal))
            if each.sync is not None:
                owed.append((each.sync, replies.sync(Code.COORDINATOR_NOT_AVAILABLE)))
        return owed

    def is_nothing(self) -> bool:
        """Whether nobody is here and nothing was ever stored."""
        return self.state == EMPTY and not self.recorded and not self.pending

    @classmethod
    def replayed(cls, group_id: str, value: Message, now_ms: int) -> Self:
        """A group as the log has it: each session begins now, and nobody has to join again."""
        group = cls(group_id, value["current_state_timestamp"])
        if group.since_ms < 0:  # records of before Kafka 2.1 have no time
            group.since_ms = now_ms
        group.generation = group.recorded = value["generation"]
        group.issued = group.generation + 1
        group.last = value
        group.protocol_type = value["protocol_type"]
        group.protocol = value["protocol"]
        for each in value["members"]:
            member = Member(
                each["member_id"],
                each["group_instance_id"],
                each["client_id"],
                each["client_host"],
                None,
                each["session_timeout"],
                each["rebalance_timeout"],
                ((value["protocol"] or "", each["subscription"]),),
                each["assignment"],
                replayed=True,
            )
            if member.rebalance_timeout_ms <= 0:  # value version 0
                member.rebalance_timeout_ms = member.session_timeout_ms
            group.enlist(member)
        group.state = STABLE if group.members else EMPTY
        leader = value["leader"]
        group.leader = leader if leader in group.members else None
        group.subscribed = group.topics()
        return group
