"""The members of a classic group and what is computed from them: votes, log record, snapshot.

`awaiting_join` counts the members whose JoinGroup waits, `supported[p]` those that support protocol
p. A caller that changes a member updates both. `classic_group` and `classic_rebalance` decide when
something happens.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from krust.coordinator import replies
from krust.coordinator.classic_member import ClassicMember
from krust.coordinator.consumer_protocol import PROTOCOL_TYPE, read_subscription
from krust.coordinator.history import History
from krust.coordinator.states import EMPTY, STABLE
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.snapshots import ClassicGroupSnapshot, MemberSnapshot
    from krust.messages.describe_groups import DescribedGroup
    from krust.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
    from krust.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
    from krust.messages.sync_group import SyncGroupResponse


class ClassicGroupMembers:
    """The members of a group, its generation, and the value in the log."""

    kind = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state = EMPTY
        self.since_ms = now_ms
        self.generation = 0
        self.stored_generation = 0
        self.stored_value: GroupMetadataValue | None = None
        """the value in the log"""
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        """member id -> when it expires"""
        self.unsynced: set[str] = set()
        self.supported: Counter[str] = Counter()
        self.protocol_bytes = 0
        """the size of its members' protocols"""
        self.assignment_bytes = 0
        self.awaiting_join = 0
        self.subscribed: list[str] | None = None
        self.history = History(self.id)
        self.issued_generation = 0
        """the last generation that may have been given out before a restart"""

    def add_member(self, member: ClassicMember) -> None:
        """Add a member; the first one becomes the leader."""
        self.members[member.id] = member
        self._count_member(member, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove_member(self, member: ClassicMember) -> None:
        """Remove a member; if it was the leader, the oldest of the others becomes the leader."""
        del self.members[member.id]
        self.unsynced.discard(member.id)
        self._count_member(member, -1)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    @property
    def metadata_bytes(self) -> int:
        """The size of its members' protocols and assignments."""
        return self.protocol_bytes + self.assignment_bytes

    def set_assignments(self, given: Mapping[str, bytes]) -> None:
        """Set the assignment of each member."""
        self.assignment_bytes = 0
        for member in self.members.values():
            member.assignment = given.get(member.id, b"")
            self.assignment_bytes += len(member.assignment)

    def _count_member(self, member: ClassicMember, by: int) -> None:
        self.protocol_bytes += by * member.size()
        for name in member.names():
            self.supported[name] += by
            if not self.supported[name]:
                del self.supported[name]

    def select_protocol(self) -> str:
        """The protocol with the most votes. Each member votes for its first protocol that all
        members support. A tie goes to the oldest vote.
        """
        count = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            mine = (name for name, _ in member.protocols if self.supported[name] == count)
            votes[next(mine)] += 1
        return max(votes, key=votes.__getitem__)

    def rebalance_timeout_ms(self) -> int:
        """How long joins and syncs wait: the longest timeout of the members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def fenced(self, member_id: str, instance_id: str | None) -> Code:
        """The code for a request with these ids; NONE: they belong to one member."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is not None and known != member_id:
                return Code.FENCED_INSTANCE_ID
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def describe_members(self) -> list[JoinGroupResponseMember]:
        """All members as JoinGroup's response lists them for the leader."""
        return [
            {
                "member_id": each.id,
                "group_instance_id": each.instance_id,
                "metadata": each.metadata(self.protocol),
            }
            for each in self.members.values()
        ]

    def store(self, turn: Turn) -> None:
        """Write the group to the log."""
        members: list[MemberMetadata] = [
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

    def value(self, members: list[MemberMetadata]) -> GroupMetadataValue:
        """The record's value."""
        return {
            "protocol_type": self.protocol_type,
            "generation": self.generation,
            "protocol": self.protocol if members else None,
            "leader": self.leader if members else None,
            "current_state_timestamp": self.since_ms,
            "members": members,
        }

    def record(self, turn: Turn, value: GroupMetadataValue) -> None:
        """Write to the log."""
        self.stored_value = value
        self.stored_generation = value["generation"]
        turn.out.records.append((self.id, value))

    # -- what others read

    def joined(
        self,
        member: ClassicMember,
        *,
        with_members: bool,
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinGroupResponse:
        """The response to a join. The leader's response has all members (`with_members`)."""
        return replies.join_response(
            member.id,
            self.generation,
            self.protocol,
            self.protocol_type,
            leader or self.leader,
            members=self.describe_members() if with_members else (),
            skip_assignment=skip_assignment,
        )

    def synced(self, member: ClassicMember) -> SyncGroupResponse:
        """The response to a sync."""
        return replies.sync_response(self.protocol_type, self.protocol, member.assignment)

    def publish(self, turn: Turn) -> None:
        """Publish the snapshot to the core; `GroupOutcome.snapshots` says why there may be two."""
        untimed: dict[str, MemberSnapshot] = {
            each.id: {**each.published, "timed": False}
            for each in self.members.values()
            if each.restart_session
            and each.published is not None
            and each.published["timed"]
            and not each.is_waiting
        }
        snapshot: ClassicGroupSnapshot = {
            "state": self.state,
            "generation": self.generation,
            "protocol_type": self.protocol_type,
            "since_ms": self.since_ms,
            "subscribed": self.subscribed,
            "members": {each.id: each.snapshot() for each in self.members.values()},
        }
        if untimed:
            members = {**snapshot["members"], **untimed}
            turn.out.snapshots.append((self.id, {**snapshot, "members": members}))
        for each in self.members.values():
            each.restart_session = False
        turn.out.snapshots.append((self.id, snapshot))

    def describe(self) -> DescribedGroup:
        """The group in DescribeGroups. Metadata and assignments are shown in STABLE only."""
        stable = self.state == STABLE
        shown = replies.group_description(self.id, self.state)
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

    def pending_replies(self) -> list[tuple[int, JoinGroupResponse | SyncGroupResponse]]:
        """The waiting requests and their refusals, for a group that is read again."""
        owed: list[tuple[int, JoinGroupResponse | SyncGroupResponse]] = []
        for each in self.members.values():
            if each.join is not None:
                refusal = replies.join_refusal(Code.COORDINATOR_NOT_AVAILABLE, each.id)
                owed.append((each.join, refusal))
            if each.sync is not None:
                owed.append((each.sync, replies.sync_refusal(Code.COORDINATOR_NOT_AVAILABLE)))
        return owed

    def is_unused(self) -> bool:
        """Whether the group has no member and no record in the log."""
        return self.state == EMPTY and not self.stored_generation and not self.pending

    @classmethod
    def replayed(cls, group_id: str, value: GroupMetadataValue, now_ms: int) -> Self:
        """The group of a value in the log. All sessions begin now; no member has to join again."""
        group = cls(group_id, value["current_state_timestamp"])
        if group.since_ms < 0:  # records from before Kafka 2.1 have no time
            group.since_ms = now_ms
        group.generation = group.stored_generation = value["generation"]
        group.issued_generation = group.generation + 1
        group.stored_value = value
        group.protocol_type = value["protocol_type"]
        group.protocol = value["protocol"]
        for each in value["members"]:
            member = ClassicMember(
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
            group.add_member(member)
        group.state = STABLE if group.members else EMPTY
        leader = value["leader"]
        group.leader = leader if leader in group.members else None
        group.subscribed = group.topics()
        return group
