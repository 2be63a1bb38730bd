"""One consumer group: heartbeats, leaves, lost members, topics that change, deadlines.

    EMPTY ──join──> ASSIGNING ──target computed──> RECONCILING ──all members at the target──> STABLE
      ^               ^  │                           │  ^                                       │
      │               │  └── (user code computes)    │  └── a member falls behind ──────────────┘
      │               └── join, leave, lost member, other subscription, other topics <──────────┘
      └── nobody is left
    EMPTY ──deleted, offsets expired, a classic member joins──> DEAD
    any ──append failed, our own bug──> DEAD, replayed

A change of the group is stored at once (the member's record). The new epoch, the target and the
responses to heartbeats follow in `converge`, once a batch, so 500 members that join together cost
one assignment. A member that joins while user code assigns waits for it; other members continue.

Rules that hold at every step (the simulator checks them):
- An epoch is given out only when the log has it, so no epoch is given out twice.
- A member owns the partitions that it may read until it gives them up, or until its rebalance
  timeout ends its membership.
- Whatever the core must know is marked in `turn.dirty`. It is published before any response.
Source: Kafka 4.3 `GroupMetadataManager.consumerGroupHeartbeat`. Differences: epochs continue where
a classic group's generations ended; changed topics are looked at when they change, not at the next
heartbeat; a regular expression is resolved at once; a static member that repeats its first
heartbeat under the same member id is answered; it may return to a full group; a member keeps the
instance id, or none, that it joined with.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING

from krust.coordinator.consumer import records, replies, target
from krust.coordinator.consumer.member import (
    LEAVES_FOR_A_WHILE,
    NO_PARTITIONS,
    UNREVOKED,
    ConsumerMember,
    DelayedResponse,
)
from krust.coordinator.consumer.mixed_group import MixedGroup
from krust.coordinator.events import AssignCall
from krust.coordinator.states import STABLE
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.assignors.assignor import GroupAssignment
    from krust.coordinator.classic_member import Turn
    from krust.coordinator.consumer.member import Heartbeat
    from krust.coordinator.events import Assigned, GroupSettings, Record

CALL_MS = 15_000
"""How long a group waits for user code. The runtime gives up earlier."""


class ConsumerGroup(MixedGroup):
    """The state machine. Methods take a Turn and put their effects there."""

    def heartbeat(self, turn: Turn, heartbeat: Heartbeat) -> None:
        """A valid ConsumerGroupHeartbeat."""
        self.converge_before(turn, heartbeat.member_id)
        refusal = self.refusal_of(turn.settings, heartbeat)
        if refusal is not None:
            self.answer(turn, heartbeat.ticket, replies.heartbeat_refusal(*refusal))
        elif heartbeat.epoch < 0:
            self._leave(turn, heartbeat)
        else:
            known = self.members.get(heartbeat.member_id)
            member = known or self._new_member(turn, heartbeat)
            before = records.member(member) if known else None
            changed = self._update(turn, member, heartbeat, before)
            with_assignment = heartbeat.epoch == 0 or heartbeat.is_full()
            self.delay(
                turn,
                DelayedResponse(
                    heartbeat.ticket, member.id, heartbeat.owned, with_assignment, changed
                ),
            )

    def refusal_of(self, settings: GroupSettings, heartbeat: Heartbeat) -> tuple[Code, str] | None:
        """Why a heartbeat is refused; None: it is not. Changes nothing."""
        member = self.members.get(heartbeat.member_id)
        full = len(self.members) >= settings.consumer_max_size
        if heartbeat.instance_id is not None:
            refusal = self._static_refusal(heartbeat, member)
            full = full and heartbeat.instance_id not in self.static
        elif member is None and heartbeat.epoch != 0:
            return (
                Code.UNKNOWN_MEMBER_ID,
                f"Member {heartbeat.member_id} is not a member of group {self.id}.",
            )
        else:
            refusal = None
        if refusal is None and member is not None and heartbeat.epoch > 0:
            refusal = _epoch_refusal(member, heartbeat)
        if refusal is None and member is None and full:
            most = f"its maximum capacity of {settings.consumer_max_size} members."
            refusal = Code.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached {most}"
        if refusal is None and heartbeat.regex and heartbeat.regex not in self.resolved:
            try:
                settings.match_topics(heartbeat.regex)
            except ValueError as error:
                why = f"SubscribedTopicRegex `{heartbeat.regex}` is not a valid regular expression"
                refusal = Code.INVALID_REGULAR_EXPRESSION, f"{why}: {error}."
        return refusal

    def expire(self, turn: Turn, member_ids: Iterable[str]) -> None:
        """Sessions have expired. A member whose response waits is removed at the second expiry. A
        member that was just answered begins a new session.
        """
        turn.dirty[self.id] = None
        delayed = {each.member_id: each for each in self.delayed}
        for member_id in member_ids:
            member, held = self.members.get(member_id), delayed.get(member_id)
            if held is not None and not held.suspected:
                held.suspected = True
            elif member is not None and (held is not None or not member.restart_session):
                self.drop_member(turn, member, f"session of {member_id} expired")

    def topics_changed(self, turn: Turn) -> None:
        """Topics changed: resolve regular expressions again, and ask for a new target if the
        subscribed topics changed.
        """
        for pattern, before in self.resolved.items():
            try:
                found = frozenset(turn.settings.match_topics(pattern))
            except ValueError:  # Kafka accepted the expression: the topics it resolved to stay
                continue
            if found != before:
                self.resolved[pattern] = found
                self.forget_subscribed()
                self.write(turn, records.regex(pattern, found, turn.now_ms))
        if (
            self.members
            and target.topics_hash(self.subscribed(), turn.settings) != self.topics_hash
        ):
            self.request_new_target(turn, "", "topics changed")

    def refresh(self, turn: Turn) -> None:
        """After a replay: look at topics that changed meanwhile, and at records that are missing
        because a batch was not written.
        """
        if any(each not in self.target for each in self.members):
            self.request_new_target(turn, "", "a member without a target was replayed")
        for pattern in list(self.resolved):
            self._forget_regex(turn, pattern)
        self.topics_changed(turn)
        turn.open[self.id] = None

    def on_assigned(self, turn: Turn, message: Assigned[GroupAssignment]) -> None:
        """User code has answered. None: it failed, and the default assigns."""
        if self.call is not None and message["call"] is self.call:
            self.history.note_assignor(message.get("line"), message.get("assignor"))
            self._end_assignor_call(turn, message["assignments"])

    # -- time

    def due(self) -> int | None:
        """When `on_time` has to be called."""
        while self.timers and not self._is_current(*self.timers[0]):
            heappop(self.timers)
        times = [self.timers[0][0]] if self.timers else []
        if self.call_due is not None:
            times.append(self.call_due)
        return min(times, default=None)

    def on_time(self, turn: Turn) -> None:
        """Do what is due."""
        while self.timers and self.timers[0][0] <= turn.now_ms:
            due, member_id = heappop(self.timers)
            if not self._is_current(due, member_id):
                continue
            member = self.members[member_id]
            late = [
                why
                for due, why in (
                    (member.revoke_due, "did not revoke in time"),
                    (member.join_due, "did not join in time"),
                    (member.sync_due, "did not sync in time"),
                )
                if due is not None and due <= turn.now_ms
            ]
            self.drop_member(turn, member, f"{member.id} {late[0]}")
        if self.call_due is not None and self.call_due <= turn.now_ms:
            self.history.note_assignor("the assignor did not answer in time")
            self._end_assignor_call(turn, None)

    def _is_current(self, due: int, member_id: str) -> bool:
        member = self.members.get(member_id)
        return member is not None and due in member.deadlines()

    # -- one member

    def _static_refusal(
        self, heartbeat: Heartbeat, member: ConsumerMember | None
    ) -> tuple[Code, str] | None:
        holder_id = self.static.get(heartbeat.instance_id or "")
        who = f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id}"
        if (
            heartbeat.epoch == 0
            and member is not None
            and member.instance_id != heartbeat.instance_id
        ):
            return Code.FENCED_INSTANCE_ID, f"{who} is known as {member.instance_id}."
        if holder_id is None:
            if heartbeat.epoch == 0:
                return None
            return Code.UNKNOWN_MEMBER_ID, f"Instance id {heartbeat.instance_id} is unknown."
        if heartbeat.epoch != 0:
            if holder_id == heartbeat.member_id:
                return None
            return Code.FENCED_INSTANCE_ID, f"{who} was fenced by member {holder_id}."
        holder = self.members[holder_id]
        there = holder.classic is None and holder.epoch != LEAVES_FOR_A_WHILE
        if there and holder_id != heartbeat.member_id:
            why = f"{who} cannot join the group because the instance id is owned by {holder_id}"
            return Code.UNRELEASED_INSTANCE_ID, f"{why} member."
        return None

    def _new_member(self, turn: Turn, heartbeat: Heartbeat) -> ConsumerMember:
        """Add a new member, or a static member under a new member id."""
        member_id = heartbeat.member_id or turn.new_id()
        return self.add_or_replace(turn, ConsumerMember(member_id, heartbeat.instance_id))

    def _update(
        self, turn: Turn, member: ConsumerMember, heartbeat: Heartbeat, before: Record | None
    ) -> bool:
        """Take over the fields of a heartbeat. Returns whether the subscription changed."""
        member.rack = heartbeat.rack if heartbeat.rack is not None else member.rack
        if heartbeat.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = heartbeat.rebalance_timeout_ms
        member.assignor = heartbeat.assignor or member.assignor
        member.client_id, member.client_host = heartbeat.client_id, heartbeat.client_host
        if member.classic is not None:
            member.classic = member.join_due = member.sync_due = None
            turn.dirty[self.id] = None
        if member.connection != heartbeat.connection:
            member.connection = heartbeat.connection
            turn.dirty[self.id] = None
        names = member.names if heartbeat.names is None else heartbeat.names
        regex = member.regex if heartbeat.regex is None else heartbeat.regex
        return self.subscribe(turn, member, before, names, regex)

    def _leave(self, turn: Turn, heartbeat: Heartbeat) -> None:
        """A member leaves for good, or a static member leaves for a while."""
        member = self.members[heartbeat.member_id]
        if heartbeat.epoch == LEAVES_FOR_A_WHILE:
            self.release_partitions(member)
            member.epoch, member.revoking, member.revoke_due = heartbeat.epoch, NO_PARTITIONS, None
            self.claim_partitions(member)
            self.write(turn, records.current(member))
            turn.dirty[self.id] = turn.open[self.id] = None
        else:
            self.drop_member(turn, member, f"{member.id} left")
        self.answer(turn, heartbeat.ticket, replies.heartbeat_response(member.id, heartbeat.epoch))

    # -- the target

    def converge(self, turn: Turn) -> None:
        """Compute the epoch and the target that are due, and answer delayed requests."""
        if self.target_outdated:
            self._increment_epoch(turn)
        if self.members and self.epoch > self.assignment_epoch and self.call is None:
            self._assign(turn)
        self._serve_all(turn)
        self.call_to_join(turn)
        state = self.current_state()
        if state != self.state:
            self.state, self.since_ms = state, turn.wall_ms
            turn.dirty[self.id] = None
        if state == STABLE or not self.members:
            self.history.end(turn.now_ms)

    def _increment_epoch(self, turn: Turn) -> None:
        """Begin the next epoch."""
        self.target_outdated = False
        self.epoch += 1
        self.topics_hash = target.topics_hash(self.subscribed(), turn.settings)
        epoch = records.epoch(self.epoch, self.topics_hash)
        self.write(turn, *self.without_old_record(), epoch)
        turn.dirty[self.id] = None

    def _assign(self, turn: Turn) -> None:
        """Compute the target, or have it computed."""
        name = target.preferred_assignor(self.members.values(), turn.settings)
        subscriptions = self.subscriptions()
        group = target.group_spec(
            self.id, subscriptions, self.target, self.assignment_epoch, turn.settings
        )
        if name in target.BUILT_IN:
            self._set_target(turn, target.compute_target(name, group, turn.settings), self.epoch)
        else:
            topics = sorted(self.subscribed())
            place = turn.settings.assignors[name]
            self.call = AssignCall(self.id, self.epoch, "", (), topics, "consumer", place, group)
            self.call_due = turn.now_ms + CALL_MS
            turn.out.calls.append(self.call)

    def _end_assignor_call(self, turn: Turn, assignments: GroupAssignment | None) -> None:
        """End the wait for user code, which has answered or is late."""
        epoch = 0 if self.call is None else self.call.generation
        self.call = self.call_due = None
        if assignments is None:
            subscriptions = self.subscriptions()
            group = target.group_spec(
                self.id, subscriptions, self.target, self.assignment_epoch, turn.settings
            )
            assignments = target.compute_target("uniform", group, turn.settings)
        self._set_target(turn, assignments, epoch)
        self._serve_all(turn)  # before the next call, which would delay these responses again
        turn.open[self.id] = None

    def _set_target(self, turn: Turn, assignments: GroupAssignment, epoch: int) -> None:
        """Store a new target."""
        found = target.valid_target(assignments, self.subscriptions(), turn.settings)
        changed = [
            records.target(member_id, partitions)
            for member_id, partitions in found.items()
            if self.target.get(member_id) != partitions
        ]
        self.target, self.assignment_epoch = found, epoch
        self.write(turn, *changed, records.target_epoch(epoch))
        self.history.on_generation(epoch, len(self.members))
        turn.dirty[self.id] = None

    def _serve_all(self, turn: Turn) -> None:
        """Answer delayed requests. While user code assigns, members that join keep waiting, because
        they have no target yet.
        """
        waiting = []
        for each in self.delayed:
            member = self.members[each.member_id]
            if self.call is not None and (member.epoch <= 0 or each.join is not None):
                waiting.append(each)
            else:
                self._serve(turn, each, member)
        self.delayed = waiting  # last: if a step raises, all delayed requests have to be refused

    def _serve(self, turn: Turn, delayed: DelayedResponse, member: ConsumerMember) -> None:
        """Reconcile a member with its target, and answer its request."""
        before, revoking = member.assigned, member.revoking
        self.reconcile(turn, member, delayed.owned, changed=delayed.changed)
        if member.state != UNREVOKED or member.classic is not None:
            member.revoke_due = None
        elif member.revoking != revoking or member.revoke_due is None:
            member.revoke_due = turn.now_ms + member.rebalance_timeout_ms
            self.set_timers(member)
        if delayed.join is not None:
            self.answer_join(turn, delayed.join, member)
            return
        with_assignment = (
            member.assigned if delayed.with_assignment or member.assigned != before else None
        )
        interval_ms, _ = turn.settings.timing(self.id)
        self.answer(
            turn,
            delayed.ticket,
            replies.heartbeat_response(member.id, member.epoch, interval_ms, with_assignment),
        )


def _epoch_refusal(member: ConsumerMember, heartbeat: Heartbeat) -> tuple[Code, str] | None:
    """Why the epoch of a heartbeat is refused; None: it is not. The previous epoch is accepted if
    the last response may have been lost.
    """
    known = f"than the one known by the group coordinator ({member.epoch})"
    what = "The member must abandon all its partitions and rejoin."
    lost = heartbeat.epoch == member.previous_epoch and (
        heartbeat.owned is not None and heartbeat.owned <= member.assigned
    )
    if heartbeat.epoch == member.epoch or (heartbeat.epoch < member.epoch and lost):
        return None
    size = "greater" if heartbeat.epoch > member.epoch else "smaller"
    why = f"The consumer group member has a {size} member epoch ({heartbeat.epoch}) {known}. {what}"
    return Code.FENCED_MEMBER_EPOCH, why
