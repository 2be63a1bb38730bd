"""The members of a consumer group and what is computed from them: target, owners, snapshot.

`owners` maps a partition to the member that may read it (assigned or to be revoked). A caller that
changes a member calls `release_partitions` before and `claim_partitions` after. `group` decides
when something happens.
"""

from __future__ import annotations

from heapq import heapify, heappush
from typing import TYPE_CHECKING, Self

from krust.coordinator.consumer import records, replies
from krust.coordinator.consumer.member import (
    NO_PARTITIONS,
    STABLE,
    UNRELEASED,
    UNREVOKED,
    partitions_of,
)
from krust.coordinator.consumer.reconcile import MemberTarget, has_free_partition
from krust.coordinator.consumer.target import (
    MemberSubscription,
    existing_topics,
    preferred_assignor,
    with_topic_names,
)
from krust.coordinator.history import History
from krust.coordinator.states import ASSIGNING, EMPTY, RECONCILING
from krust.coordinator.states import STABLE as SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.consumer.member import ConsumerMember, DelayedResponse, Partitions
    from krust.coordinator.events import GroupSettings, LiveRecord, Record
    from krust.coordinator.snapshots import ConsumerGroupSnapshot, ConsumerMemberSnapshot
    from krust.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions


class ConsumerGroupMembers:
    """The members of a group, their target, and the group's epochs."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state = EMPTY
        self.since_ms = now_ms
        self.epoch = 0
        self.assignment_epoch = 0
        """the epoch of the target"""
        self.topics_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.owners: dict[tuple[str, int], str] = {}
        self.resolved: dict[str, frozenset[str]] = {}
        """regular expression -> topics"""
        self.delayed: list[DelayedResponse] = []
        self.history = History(self.id)
        self.timers: list[tuple[int, str]] = []
        """of members; timers that no longer hold are skipped"""
        self._old_record = False
        """whether the log has a record of type 4"""
        self._subscribed: frozenset[str] | None = None
        """as last computed; None: something changed"""

    # -- members

    def add_member(self, member: ConsumerMember) -> None:
        """Add a member."""
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        self.claim_partitions(member)
        self.set_timers(member)
        self.forget_subscribed()

    def remove_member(self, member: ConsumerMember) -> None:
        """Remove a member and what it owns."""
        self.release_partitions(member)
        del self.members[member.id]
        self.forget_subscribed()
        self.target.pop(member.id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]

    def release_partitions(self, member: ConsumerMember) -> None:
        """Free the partitions of a member; call it before they change."""
        for each in member.assigned | member.revoking:
            if self.owners.get(each) == member.id:
                del self.owners[each]

    def claim_partitions(self, member: ConsumerMember) -> None:
        """Make a member the owner of its partitions. It loses those that another member owns."""
        foreign = frozenset(
            each
            for each in member.assigned | member.revoking
            if self.owners.setdefault(each, member.id) != member.id
        )
        if foreign:
            member.assigned -= foreign
            member.revoking -= foreign

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member subscribes to, by name or by regular expression."""
        return member.names | self.resolved.get(member.regex, frozenset())

    def subscriptions(self) -> list[MemberSubscription]:
        """All members and the topics they subscribe to."""
        return [MemberSubscription(each, self.topics_of(each)) for each in self.members.values()]

    def subscribed(self) -> frozenset[str]:
        """The topics that any member subscribes to."""
        if self._subscribed is None:
            kinds = {(each.names, each.regex): each for each in self.members.values()}
            found = [self.topics_of(each) for each in kinds.values()]
            self._subscribed = frozenset[str]().union(*found)
        return self._subscribed

    def forget_subscribed(self) -> None:
        """A subscription changed: compute the set of subscribed topics again."""
        self._subscribed = None

    def set_timers(self, member: ConsumerMember) -> None:
        """Set timers for the deadlines of a member."""
        for due in member.deadlines():
            heappush(self.timers, (due, member.id))
        if len(self.timers) > 4 * len(self.members) + 64:
            self.timers = [
                (due, each.id) for each in self.members.values() for due in each.deadlines()
            ]
            heapify(self.timers)

    def member_target(self, member: ConsumerMember, settings: GroupSettings) -> MemberTarget:
        """The target of a member, at the epoch of the target."""
        shapes = existing_topics(self.topics_of(member), settings)
        return MemberTarget(
            self.assignment_epoch,
            self.target.get(member.id, NO_PARTITIONS),
            {each.id for each in shapes.values()},
            lambda each: self.owners.get(each, member.id) == member.id,
        )

    # -- what holds

    def current_state(self) -> str:
        """The state, computed from the members and epochs."""
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        settled = all(
            each.state == STABLE and each.epoch == self.assignment_epoch
            for each in self.members.values()
        )
        return SETTLED if settled else RECONCILING

    def has_current_assignment(self, member: ConsumerMember, settings: GroupSettings) -> bool:
        """Whether a heartbeat without new fields would change nothing."""
        if member.epoch <= 0:
            return False
        if member.state == UNREVOKED:
            return True
        if member.epoch != self.assignment_epoch:
            return False
        return member.state != UNRELEASED or not has_free_partition(
            member, self.member_target(member, settings)
        )

    def must_rejoin(self, member: ConsumerMember, settings: GroupSettings) -> bool:
        """Whether a classic member has to join again to learn its assignment."""
        return not member.joins and (
            member.state == UNREVOKED or not self.has_current_assignment(member, settings)
        )

    def is_unused(self) -> bool:
        """Whether the group has no member and no record in the log."""
        return not self.epoch and not self.members

    def only_classic(self, without: str | None = None) -> bool:
        """Whether the group has members and all of them speak the classic protocol."""
        others = [each for each in self.members.values() if each.id != without]
        return bool(others) and all(each.classic is not None for each in others)

    # -- what others read

    def publish(self, turn: Turn) -> None:
        """Publish the snapshot to the core; `GroupOutcome.snapshots` says why there may be two."""
        settings = turn.settings
        heartbeat_ms, session_ms = settings.timing(self.id)
        members: dict[str, ConsumerMemberSnapshot] = {}
        for each in self.members.values():
            if each.classic is None:
                is_current = self.has_current_assignment(each, settings)
                members[each.id] = each.snapshot(session_ms, is_current)
            else:
                rejoin = self.must_rejoin(each, settings)
                members[each.id] = each.snapshot(each.classic.session_timeout_ms, not rejoin)
        for delayed in self.delayed:  # it waits for a response, so its session cannot expire
            members[delayed.member_id] = {**members[delayed.member_id], "timed": False}
        snapshot: ConsumerGroupSnapshot = {
            "type": "consumer",
            "state": self.state,
            "epoch": self.epoch,
            "protocol_type": self.protocol_type,
            "since_ms": self.since_ms,
            "subscribed": sorted(self.subscribed()),
            "heartbeat_interval_ms": heartbeat_ms,
            "members": members,
        }
        untimed: dict[str, ConsumerMemberSnapshot] = {
            each.id: {**members[each.id], "timed": False}
            for each in self.members.values()
            if each.restart_session
        }
        if untimed:
            turn.out.snapshots.append((self.id, {**snapshot, "members": {**members, **untimed}}))
        for each in self.members.values():
            each.restart_session = False
        turn.out.snapshots.append((self.id, snapshot))

    def describe(self, settings: GroupSettings) -> DescribedGroup:
        """The group in ConsumerGroupDescribe."""
        shown = replies.consumer_group_description(self.id)
        shown["group_state"] = self.state
        shown["group_epoch"] = self.epoch
        shown["assignment_epoch"] = self.assignment_epoch
        shown["assignor_name"] = preferred_assignor(self.members.values(), settings)
        shown["members"] = [
            {
                "member_id": each.id,
                "instance_id": each.instance_id,
                "rack_id": each.rack,
                "member_epoch": each.epoch,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "subscribed_topic_names": sorted(each.names),
                "subscribed_topic_regex": each.regex,
                "assignment": _shown(each.assigned | each.revoking, settings),
                "target_assignment": _shown(self.target.get(each.id, ()), settings),
                "member_type": 1 if each.classic is None else 0,
            }
            for each in self.members.values()
        ]
        return shown

    # -- the log

    def write(self, turn: Turn, *written: Record) -> None:
        """Write to the log."""
        turn.out.records.append((self.id, list(written)))

    def tombstones(self) -> list[Record]:
        """Tombstones for all records of the group."""
        gone: list[Record] = []
        for member_id in self.members:
            gone += records.member_tombstones(member_id)
        gone += [(records.REGEX, {"regular_expression": each}, None) for each in self.resolved]
        gone += self.without_old_record()
        if self.assignment_epoch:
            gone.append((records.TARGET_EPOCH, {}, None))
        if self.epoch:
            gone.append((records.EPOCH, {}, None))
        return gone

    def without_old_record(self) -> list[Record]:
        """The tombstone of an older Kafka's record, once."""
        old, self._old_record = self._old_record, False
        return [(records.TOPICS, {}, None)] if old else []

    def read(self, record: LiveRecord) -> None:
        """Take over one record of the log."""
        kind, key, value = record
        if kind == records.EPOCH:
            self.epoch, self.topics_hash = value["epoch"], value.get("metadata_hash") or 0
        elif kind == records.TOPICS:
            self._old_record = True
        elif kind == records.MEMBER:
            read = records.read_member(key["member_id"], value)
            self.members[read.id] = read
        elif kind == records.TARGET_EPOCH:
            self.assignment_epoch = value["assignment_epoch"]
        elif kind == records.TARGET:
            self.target[key["member_id"]] = partitions_of(value["topic_partitions"])
        elif kind == records.REGEX:
            self.resolved[key["regular_expression"]] = frozenset(value["topics"])

    @classmethod
    def replayed(cls, group_id: str, log: Iterable[LiveRecord], now_ms: int) -> Self:
        """The group of records in the log. Sessions and the time to revoke begin now."""
        group = cls(group_id, now_ms)
        live = list(log)
        for each in live:
            group.read(each)
        for kind, key, value in live:
            if kind == records.CURRENT and key["member_id"] in group.members:
                records.read_current(group.members[key["member_id"]], value)
        members, group.members = group.members, {}
        group.target = {key: each for key, each in group.target.items() if key in members}
        for member in members.values():
            if member.state not in (STABLE, UNRELEASED):
                member.state = UNREVOKED
                member.revoke_due = now_ms + max(member.rebalance_timeout_ms, 0)
            group.add_member(member)
        group.state = group.current_state()
        return group


def _shown(partitions: Iterable[tuple[str, int]], settings: GroupSettings) -> Assignment:
    """An assignment in ConsumerGroupDescribe."""
    by_topic: dict[str, tuple[str, list[int]]] = {}
    ids = {topic_id for topic_id, _ in partitions}
    names = {settings.topic_of(each): each for each in ids}
    for one in with_topic_names(partitions, settings):
        by_topic.setdefault(one.topic, (names[one.topic], []))[1].append(one.partition)
    topics: list[TopicPartitions] = [
        {"topic_id": topic_id, "topic_name": name, "partitions": numbers}
        for name, (topic_id, numbers) in by_topic.items()
    ]
    return {"topic_partitions": topics}
