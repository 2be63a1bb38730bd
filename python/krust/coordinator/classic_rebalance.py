"""The rebalance of a classic group: states, generations, the assignment, deadlines.

    EMPTY ──join──> PREPARING_REBALANCE ──all joined, or deadline──> COMPLETING_REBALANCE
      ^  ^                │  ^  ^                                       │          │
      │  └──nobody left───┘  │  └── join, leave, lost member, ──────────┘   leader's sync
      │                      │      sync deadline                              stored
      │                      └── join, leave, lost member ── STABLE <──────────────┘
      └── replayed from the log without members (with members: STABLE)
    EMPTY ──deleted, offsets expired──> DEAD;  any ──append failed, our own bug──> DEAD, replayed

Rules that hold at every step (the simulator checks them):
- No generation of a stored group is given out twice, not even after a restart: `generation <=
  stored_generation + 1`, where `stored_generation` is the last one in the log (`_next_generation`).
  A group of which nothing was stored is unknown after a restart, and begins at 1 again.
- A join waits at most for the rebalance timeout (the largest of the members), and the first join of
  a new member at most 5 minutes. A sync waits at most for the rebalance timeout.
- Whatever the core must know is marked in `turn.dirty`. It is published before any response.
Source: Kafka 3.9 `GroupMetadataManager.classicGroup*`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from krust.coordinator import replies
from krust.coordinator.classic_members import ClassicGroupMembers
from krust.coordinator.consumer_protocol import PROTOCOL_TYPE
from krust.coordinator.events import AssignCall
from krust.coordinator.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
)
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.coordinator.classic_member import ClassicMember, JoinRequest, Turn
    from krust.coordinator.events import Assigned
    from krust.messages import Message
    from krust.messages.join_group import JoinGroupResponse
    from krust.messages.sync_group import SyncGroupResponse

REBALANCE_RETRY_MS = 1000
"""Least time until the group completes a rebalance that no member joined."""


class ClassicRebalance(ClassicGroupMembers):
    """The states of a group. Methods take a Turn and put their effects there."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self._join_due: int | None = None
        self._sync_due: int | None = None
        self._timers: list[tuple[int, str]] = []
        """of pending and new members; timers that no longer hold are skipped"""
        self._initial = False
        self._member_added_in_delay = False
        self._delay = 0
        self._remaining = 0
        self._assignor_call: AssignCall | None = None
        """the running call of krust's assignor; the leader's assignment waits for it"""
        self._leader_assignment: Mapping[str, bytes] | None = None
        """the leader's assignment, while the call runs"""

    # -- rebalancing

    def _rebalance(self, turn: Turn, member_id: str, request: JoinRequest, why: str) -> None:
        """Begin a rebalance for a join, or add the join to the current one."""
        if request.reason:
            why = f"{why} ({request.reason})"
        if self.state == PREPARING_REBALANCE:
            self.history.add_reason(member_id, why, turn.now_ms)
            self._maybe_complete_join(turn)
        else:
            self._prepare_rebalance(turn, member_id, why)

    def _prepare_rebalance(self, turn: Turn, member_id: str, why: str) -> None:
        """Begin a rebalance: all members must join again."""
        if self.state == COMPLETING_REBALANCE:
            self.set_assignments({})
            for member in self.members.values():
                if member.sync is not None:
                    self._end_sync(turn, member, replies.sync_refusal(Code.REBALANCE_IN_PROGRESS))
        if why:
            self.history.add_reason(member_id, why, turn.now_ms)
        self._sync_due = None
        self._assignor_call = None
        self._initial = self.state == EMPTY
        self._transition_to(turn, PREPARING_REBALANCE)
        timeout = self.rebalance_timeout_ms()
        if self._initial:
            self._member_added_in_delay = False
            self._delay = min(turn.settings.initial_rebalance_delay_ms, timeout)
            self._remaining = timeout - self._delay
            self._join_due = turn.now_ms + self._delay
        else:
            self._join_due = turn.now_ms + timeout
            self._maybe_complete_join(turn)

    def _on_members_removed(self, turn: Turn) -> None:
        """Members were removed: begin a rebalance, or shorten the current one."""
        if self.state in (STABLE, COMPLETING_REBALANCE):
            self._prepare_rebalance(turn, "", "")
        elif self._join_due is not None:
            self._join_due = min(self._join_due, turn.now_ms + self.rebalance_timeout_ms())
            self._maybe_complete_join(turn)

    def _maybe_complete_join(self, turn: Turn) -> None:
        all_here = self.awaiting_join == len(self.members) and not self.pending
        if self.state == PREPARING_REBALANCE and all_here and not self._initial:
            self._complete_join(turn)

    def _complete_join(self, turn: Turn) -> None:
        """Begin the next generation with those who joined."""
        late = [m for m in self.members.values() if m.join is None and m.instance_id is None]
        for member in late:
            self._remove(turn, member, f"{member.id} did not join in time")
        if self.members and not self._elect_leader():  # all are absent static members
            self._join_due = turn.now_ms + max(self.rebalance_timeout_ms(), REBALANCE_RETRY_MS)
            return
        self._join_due = None
        self._initial = False
        self._next_generation(turn)
        if not self.members:
            self.protocol = None
            self.subscribed = self.topics()
            self._transition_to(turn, EMPTY)
            self.store(turn)
            self.history.on_generation(self.generation, 0)
            self.history.end(turn.now_ms)
            return
        self.protocol = self.select_protocol()
        self.subscribed = self.topics()
        self._transition_to(turn, COMPLETING_REBALANCE)
        self._sync_due = turn.now_ms + self.rebalance_timeout_ms()
        self.history.on_generation(self.generation, len(self.members))
        joined = [each for each in self.members.values() if each.join is not None]
        self.unsynced = {each.id for each in joined}
        for member in joined:
            reply = self.joined(member, with_members=member.id == self.leader)
            self._end_join(turn, member, reply)
        self._call_assignor(turn)

    def _next_generation(self, turn: Turn) -> None:
        """Take the next generation. At most one generation may be missing in the log, so a missing
        one is first stored with the last assignment.
        """
        latest = max(self.generation, self.issued_generation)
        if latest > self.stored_generation:
            latest += 1
            self.record(turn, {**(self.stored_value or self.value([])), "generation": latest})
        self.generation = latest + 1

    def _elect_leader(self) -> bool:
        """Keep the leader if it joined; otherwise the first member that joined becomes the leader.
        False: no member joined.
        """
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                self.leader = member.id
                return True
        return False

    def _remove(self, turn: Turn, member: ClassicMember, why: str) -> None:
        """Remove a member. Its waiting requests are refused so that it can join again."""
        self.history.add_reason(member.id, why, turn.now_ms)
        if member.join is not None:
            self._end_join(turn, member, replies.join_refusal(Code.UNKNOWN_MEMBER_ID, ""))
        if member.sync is not None:
            self._end_sync(turn, member, replies.sync_refusal(Code.UNKNOWN_MEMBER_ID))
        self.remove_member(member)
        turn.dirty[self.id] = None

    def refresh(self, turn: Turn) -> None:
        """After a replay, begin the rebalance that the log shows to be due."""
        if len(self.members) > turn.settings.max_size:
            self.request_rejoin(turn, "more members than group.max.size")
        if self.state == STABLE and self.leader is None:
            self.request_rejoin(turn, "the group was converted and its members must join again")

    def request_rejoin(self, turn: Turn, why: str) -> None:
        """Begin a rebalance for a reason outside the group."""
        self._prepare_rebalance(turn, "", why)

    def cancel_for_conversion(self, turn: Turn) -> None:
        """The group continues as a consumer group: waiting members must join again."""
        for member in self.members.values():
            self._end_join(
                turn, member, replies.join_refusal(Code.REBALANCE_IN_PROGRESS, member.id)
            )
            self._end_sync(turn, member, replies.sync_refusal(Code.REBALANCE_IN_PROGRESS))
        self._transition_to(turn, DEAD)

    # -- the assignment

    def _call_assignor(self, turn: Turn) -> None:
        """Have krust's assignor called, if the members are consumers."""
        self._assignor_call = self._leader_assignment = None
        if self.protocol_type == PROTOCOL_TYPE and turn.settings.server_assignor(self.id):
            before = (self.stored_value or self.value([]))["members"]
            had = {each["member_id"]: each["assignment"] for each in before}
            members = [
                (each.id, each.instance_id, each.metadata(self.protocol), had.get(each.id, b""))
                for each in self.members.values()
            ]
            protocol, topics = self.protocol or "", self.subscribed
            self._assignor_call = AssignCall(self.id, self.generation, protocol, members, topics)
            turn.out.calls.append(self._assignor_call)

    def on_assigned(self, turn: Turn, message: Assigned[Mapping[str, bytes]]) -> None:
        """The assignor has answered. None: it failed, the leader's assignment holds."""
        if self._assignor_call is None or message["call"] is not self._assignor_call:
            return
        if self.state == COMPLETING_REBALANCE:
            self.history.note_assignor(message.get("line"), message.get("assignor"))
            self._end_assignor_call(turn, message["assignments"])

    def _end_assignor_call(self, turn: Turn, assignments: Mapping[str, bytes] | None) -> None:
        """End the wait for the assignor, which has answered or is late."""
        if self._assignor_call is not None:
            self._assignor_call = None
            chosen = self._leader_assignment if assignments is None else assignments
            if chosen is not None:
                self.apply_assignment(turn, chosen)

    def apply_assignment(self, turn: Turn, assignments: Mapping[str, bytes]) -> None:
        """Store the assignment, and answer all waiting syncs."""
        self.set_assignments(assignments)
        self._assignor_call = self._leader_assignment = None
        if not self.unsynced:
            self._sync_due = None
        self._transition_to(turn, STABLE)
        self.store(turn)
        self.history.end(turn.now_ms)
        for member in self.members.values():
            if member.sync is not None:
                self._end_sync(turn, member, self.synced(member))

    # -- time

    def due(self) -> int | None:
        """When `on_time` has to be called."""
        while self._timers and not self._is_current(*self._timers[0]):
            heappop(self._timers)
        times = [each for each in (self._join_due, self._sync_due) if each is not None]
        if self._timers:
            times.append(self._timers[0][0])
        return min(times, default=None)

    def on_time(self, turn: Turn) -> None:
        """Do what is due."""
        gone = False
        while self._timers and self._timers[0][0] <= turn.now_ms:
            timer = heappop(self._timers)
            if self._is_current(*timer):
                gone = True
                member = self.members.get(timer[1])
                if self.pending.pop(timer[1], None) is None and member is not None:
                    self._remove(turn, member, f"first join of {member.id} waited too long")
        if gone:
            self._maybe_complete_join(turn)
        if self._join_due is not None and self._join_due <= turn.now_ms:
            self._on_join_deadline(turn)
        if self._sync_due is not None and self._sync_due <= turn.now_ms:
            self._sync_due = None
            self._end_assignor_call(turn, None)
            late = [each for each in self.members.values() if each.id in self.unsynced]
            for each in late:
                self._remove(turn, each, f"{each.id} did not sync in time")
            if late:
                self._on_members_removed(turn)

    def _on_join_deadline(self, turn: Turn) -> None:
        """The initial delay or the rebalance timeout is over."""
        due = self._join_due or turn.now_ms
        if self._initial and self._member_added_in_delay and self._remaining > 0:
            self._member_added_in_delay = False
            delay = min(turn.settings.initial_rebalance_delay_ms, self._remaining)
            self._remaining = max(self._remaining - self._delay, 0)
            self._delay = delay
            self._join_due = due + delay
        else:
            self._complete_join(turn)

    def add_pending(self, member_id: str, due: int) -> None:
        """Keep a member id that was given out until `due`."""
        self.pending[member_id] = due
        self._set_timer(due, member_id)

    def _set_timer(self, due: int, member_id: str) -> None:
        """Set a timer of a member. Remove old timers when most of them no longer hold."""
        heappush(self._timers, (due, member_id))
        if len(self._timers) > 2 * (len(self.pending) + len(self.members)) + 64:
            self._timers = [each for each in self._timers if self._is_current(*each)]
            heapify(self._timers)

    def _is_current(self, due: int, member_id: str) -> bool:
        if member_id in self.pending:
            return self.pending[member_id] == due
        member = self.members.get(member_id)
        return member is not None and member.join_expires_ms == due

    # -- effects

    def answer(self, turn: Turn, ticket: int, reply: Message) -> None:
        """Answer a request."""
        turn.out.replies.append((ticket, reply, (self.id,)))

    def _end_join(self, turn: Turn, member: ClassicMember, reply: JoinGroupResponse) -> None:
        if member.join is not None:
            self.answer(turn, member.join, reply)
            member.join = member.join_expires_ms = None
            member.restart_session, member.suspected = True, False
            self.awaiting_join -= 1

    def _end_sync(self, turn: Turn, member: ClassicMember, reply: SyncGroupResponse) -> None:
        if member.sync is not None:
            self.answer(turn, member.sync, reply)
            member.sync = None
            member.restart_session, member.suspected = True, False

    def _transition_to(self, turn: Turn, state: str) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.id}: from {self.state} to {state}")
        self.state, self.since_ms = state, turn.wall_ms
        turn.dirty[self.id] = None
