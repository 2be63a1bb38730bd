"""One classic group: JoinGroup, SyncGroup, LeaveGroup, lost members and deadlines.

    EMPTY ──join──> PREPARING_REBALANCE ──all joined, or deadline──> COMPLETING_REBALANCE
      ^  ^                │  ^  ^                                       │          │
      │  └──nobody left───┘  │  └── join, leave, lost member, ──────────┘   leader's sync
      │                      │      sync deadline                              stored
      │                      └── join, leave, lost member ── STABLE <──────────────┘
      └── the core's news: replayed without members (with members: STABLE)
    EMPTY ──deleted, offsets expired──> DEAD;  any ──append failed, our own bug──> DEAD, replayed

Rules that hold at every step (the simulator checks them):
- A generation is never given out twice, restarts included: `generation <= stored_generation + 1`,
  where `stored_generation` is the last one in the log (`_next_generation`).
- A join waits no longer than the rebalance timeout (the largest of its members), nor than 5
  minutes where the member is new; a sync no longer than the rebalance timeout.
- Whatever the core must know is marked in `turn.dirty`; it is published before any answer.
A member that begins to wait is not published (500 joins would publish 500 times 500 rows). When its
session expires in the core, SessionExpired finds it waiting and publishes the snapshot.
Source: Kafka 3.9 `GroupMetadataManager.classicGroup*`. Differences: a rebalance timeout <= 0 is the
session timeout; a static member that did not rejoin stays until its session ends and owes no sync;
a join replaced by a newer one of the same member is answered; a static member may return to a full
group; at most MAX_PENDING members are pending.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from krust.coordinator import replies
from krust.coordinator.classic_member import JoinRequest, Member
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
    from collections.abc import Iterable

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.events import Event, Message

NEW_MEMBER_JOIN_MS = 300_000
"""How long a first join waits: its client has no member id yet and may be gone."""
REBALANCE_RETRY_MS = 1000
"""Least time until a rebalance that nobody joined is looked at again."""
MAX_PENDING = 10_000
"""Members that were told an id and have not used it yet; the oldest makes room."""

MEMBER_ID_REQUIRED_SINCE, SKIP_ASSIGNMENT_SINCE, SYNC_NAMES_PROTOCOL_SINCE = 4, 9, 5


class ClassicGroup(ClassicGroupMembers):
    """The state machine. Methods take a Turn and put their effects there."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self._join_due: int | None = None
        self._sync_due: int | None = None
        self._timers: list[tuple[int, str]] = []
        """of pending members and of new ones: those that no longer hold are skipped"""
        self._initial = False
        self._member_added_in_delay = False
        self._delay = 0
        self._remaining = 0
        self._assignor_call: AssignCall | None = None
        """krust's own assignor runs; the leader's assignment waits for it"""
        self._leader_assignment: dict[str, bytes] | None = None
        """what the leader assigned meanwhile"""

    # -- requests

    def join(self, turn: Turn, event: Event) -> None:
        """JoinGroup."""
        request = JoinRequest.of(event)
        if not self._has_room(turn, request):
            member = self.members.get(request.member_id)
            if member is not None:
                self._remove(turn, member, "the group is full")
            self._refuse(turn, request, Code.GROUP_MAX_SIZE_REACHED, "")
            self._maybe_complete_join(turn)
        elif not self._supports(request):
            self._refuse(turn, request, Code.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._join_new(turn, request)
        elif request.member_id in self.pending and request.instance_id is None:
            self._add_new(turn, request, request.member_id)
        else:
            code = self.fenced(request.member_id, request.instance_id)
            if code is not Code.NONE:
                self._refuse(turn, request, code)
            else:
                self._rejoin(turn, request, self.members[request.member_id])

    def sync(self, turn: Turn, event: Event) -> None:
        """SyncGroup."""
        message = event.message
        code = self._refuses_sync(event)
        if code is not Code.NONE:
            self.answer(turn, event.ticket, replies.sync(code))
            return
        member = self.members[message["member_id"]]
        self.unsynced.discard(member.id)
        if not self.unsynced and self._assignor_call is None:
            self._sync_due = None
        if self.state == STABLE:
            self.answer(turn, event.ticket, self.synced(member))
            return
        if member.sync is not None:
            self.answer(turn, member.sync, replies.sync(Code.REBALANCE_IN_PROGRESS))
        member.sync = event.ticket
        member.suspected = False
        if member.id == self.leader:
            assignments = {each["member_id"]: each["assignment"] for each in message["assignments"]}
            self._leader_assignment = assignments
            if self._assignor_call is None:
                self.apply_assignment(turn, assignments)

    def on_assigned(self, turn: Turn, message: Message) -> None:
        """The assignor has answered. None: it failed, the leader's assignment holds."""
        if self._assignor_call is None or message["call"] is not self._assignor_call:
            return
        if self.state == COMPLETING_REBALANCE:
            self.history.trouble(message.get("line"), message.get("assignor"))
            self._end_assignor_call(turn, message["assignments"])

    def apply_assignment(self, turn: Turn, assignments: dict[str, bytes]) -> None:
        """The assignment is here: store it, answer all that wait."""
        self.set_assignments(assignments)
        self._assignor_call = self._leader_assignment = None
        if not self.unsynced:
            self._sync_due = None
        self._transition_to(turn, STABLE)
        self.store(turn)
        self.history.ended(turn.now_ms)
        for member in self.members.values():
            if member.sync is not None:
                self._end_sync(turn, member, self.synced(member))

    def leave(self, turn: Turn, event: Event) -> None:
        """LeaveGroup: v0-2 one member, v3+ several, by member id or by instance id alone."""
        if event.version < 3:
            leaving: list[Message] = [{"member_id": event.message["member_id"]}]
        else:
            leaving = event.message["members"]
        before = len(self.members)
        codes = [self._leave(turn, each) for each in leaving]
        self.answer(turn, event.ticket, replies.left(event, codes))
        if len(self.members) < before:
            self._on_members_removed(turn)
        else:
            self._maybe_complete_join(turn)  # one that was pending may be the last it waited for

    def expire(self, turn: Turn, member_ids: Iterable[str]) -> None:
        """Sessions have expired. A waiting member is removed at the second expiry: its connection
        is closed. A member just answered starts a new session with the next snapshot.
        """
        turn.dirty[self.id] = None
        before = len(self.members)
        for member in [self.members[each] for each in member_ids if each in self.members]:
            if member.is_waiting and not member.suspected:
                member.suspected = True
            elif member.is_waiting:
                self._remove(turn, member, f"connection of {member.id} closed")
            elif not member.restart_session:
                self._remove(turn, member, f"session of {member.id} expired")
        if len(self.members) < before:
            self._on_members_removed(turn)

    # -- time

    def due(self) -> int | None:
        """When `on_time` wants to be called."""
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

    def _call_assignor(self, turn: Turn) -> None:
        """Have krust's own assignor called, for members that are consumers."""
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

    def _end_assignor_call(self, turn: Turn, assignments: dict[str, bytes] | None) -> None:
        """The wait for the assignor is over: by its answer, or by the sync deadline."""
        if self._assignor_call is not None:
            self._assignor_call = None
            chosen = self._leader_assignment if assignments is None else assignments
            if chosen is not None:
                self.apply_assignment(turn, chosen)

    def add_pending(self, member_id: str, due: int) -> None:
        """Keep an id that was given out for whoever joins with it by then."""
        self.pending[member_id] = due
        self._set_timer(due, member_id)

    def _set_timer(self, due: int, member_id: str) -> None:
        """Set a timer of a member; sweep when most of them hold no more."""
        heappush(self._timers, (due, member_id))
        if len(self._timers) > 2 * (len(self.pending) + len(self.members)) + 64:
            self._timers = [each for each in self._timers if self._is_current(*each)]
            heapify(self._timers)

    def _is_current(self, due: int, member_id: str) -> bool:
        if member_id in self.pending:
            return self.pending[member_id] == due
        member = self.members.get(member_id)
        return member is not None and member.join_expires_ms == due

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

    # -- joining

    def _has_room(self, turn: Turn, request: JoinRequest) -> bool:
        """Whether the group has room. During a rebalance the first `max_size` to join stay."""
        known = self.members.get(request.member_id)
        if self.state == EMPTY or (not request.member_id and request.instance_id in self.static):
            return True
        if self.state == PREPARING_REBALANCE:
            is_waiting = known is not None and known.join is not None
            return is_waiting or self.awaiting_join < turn.settings.max_size
        return known is not None or len(self.members) < turn.settings.max_size

    def _supports(self, request: JoinRequest) -> bool:
        """Whether all members support one of the protocols."""
        if self.state == EMPTY:
            return bool(request.protocol_type and request.protocols)
        count = len(self.members)
        unchanged = request.protocol_type == self.protocol_type
        return unchanged and any(self.supported[name] == count for name, _ in request.protocols)

    def _join_new(self, turn: Turn, request: JoinRequest) -> None:
        """A join without a member id."""
        member_id = f"{request.instance_id or request.client_id}-{turn.new_id()}"
        if request.instance_id is not None:
            old = self.static.get(request.instance_id)
            if old is not None:
                self._replace_static(turn, request, self.members[old], member_id)
            else:
                self._add_new(turn, request, member_id)
        elif request.version >= MEMBER_ID_REQUIRED_SINCE:
            if len(self.pending) >= MAX_PENDING:
                del self.pending[next(iter(self.pending))]
            self.add_pending(member_id, turn.now_ms + request.session_timeout_ms)
            self._refuse(turn, request, Code.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add_new(turn, request, member_id)

    def _rejoin(self, turn: Turn, request: JoinRequest, member: Member) -> None:
        """A member joins again."""
        unchanged = member.has_same_metadata(request.protocols, self.protocol)
        is_leader = member.id == self.leader
        completing = self.state == COMPLETING_REBALANCE
        if unchanged and (completing or (self.state == STABLE and not is_leader)):
            self._update(turn, member, request)
            reply = self.joined(member, with_members=is_leader and completing)
            self.answer(turn, request.ticket, reply)
            return
        self._update(turn, member, request)
        self._delay_join(turn, member, request)
        why = "leader joined again" if is_leader else "member joined again"
        if unchanged or self.state == PREPARING_REBALANCE:
            self._rebalance(turn, member.id, request, f"{why}: {member.id}")
        else:
            self._rebalance(turn, member.id, request, f"{why} with other metadata: {member.id}")

    def _add_new(self, turn: Turn, request: JoinRequest, member_id: str) -> None:
        """Add a new member."""
        self.pending.pop(member_id, None)
        if self.state == PREPARING_REBALANCE and self.generation == 0:
            self._member_added_in_delay = True
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.connection,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )
        self.add_member(member)
        turn.dirty[self.id] = None
        member.join_expires_ms = turn.now_ms + NEW_MEMBER_JOIN_MS
        self._set_timer(member.join_expires_ms, member_id)
        self._delay_join(turn, member, request)
        self._rebalance(turn, member_id, request, f"member {member_id} joined")

    def _update(self, turn: Turn, member: Member, request: JoinRequest) -> None:
        """Take over what a known member says now."""
        before = (member.connection, member.session_timeout_ms)
        if member.protocols != request.protocols:
            self._count_member(member, -1)
            member.update(request)
            self._count_member(member, 1)
        else:
            member.update(request)
        if before != (member.connection, member.session_timeout_ms):
            turn.dirty[self.id] = None

    def _delay_join(self, turn: Turn, member: Member, request: JoinRequest) -> None:
        """Delay the response. An earlier join of the same member is answered now."""
        if member.join is None:
            self.awaiting_join += 1
        else:
            refusal = replies.join(Code.REBALANCE_IN_PROGRESS, member.id)
            self.answer(turn, member.join, refusal)
        member.join = request.ticket
        member.suspected = False

    def _replace_static(
        self, turn: Turn, request: JoinRequest, old: Member, member_id: str
    ) -> None:
        """A static member is back without its id: it takes the old one's place, which is fenced."""
        leader_before, assignment = self.leader, old.assignment
        if old.join is not None:
            self._end_join(turn, old, replies.join(Code.FENCED_INSTANCE_ID, old.id))
        if old.sync is not None:
            self._end_sync(turn, old, replies.sync(Code.FENCED_INSTANCE_ID))
        self.remove_member(old)
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.connection,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            assignment,
        )
        self.add_member(member)
        if leader_before == old.id:
            self.leader = member_id
        turn.dirty[self.id] = None
        why = f"static member {request.instance_id} is back as {member_id}"
        if self.state == STABLE and self.select_protocol() == self.protocol:
            self.store(turn)
            skips = request.version >= SKIP_ASSIGNMENT_SINCE
            is_leader = skips and self.leader == member_id
            # Before v9 it is told the old leader's id, lest it assign: nobody would hear it.
            shown = self.leader if skips else leader_before
            reply = self.joined(
                member, with_members=is_leader, leader=shown, skip_assignment=is_leader
            )
            self.answer(turn, request.ticket, reply)
            return
        self._delay_join(turn, member, request)
        if self._join_due is not None:  # the one it replaces may have wanted longer
            self._join_due = min(self._join_due, turn.now_ms + self.rebalance_timeout_ms())
        self._rebalance(turn, member_id, request, why)

    def refresh(self, turn: Turn) -> None:
        """After a replay: a rebalance that the log shows to be due."""
        if len(self.members) > turn.settings.max_size:
            self.request_rejoin(turn, "more members than group.max.size")
        if self.state == STABLE and self.leader is None:
            self.request_rejoin(turn, "converted, and not called yet")

    def request_rejoin(self, turn: Turn, why: str) -> None:
        """Begin a rebalance for a reason outside the group."""
        self._prepare_rebalance(turn, "", why)

    def cancel_for_conversion(self, turn: Turn) -> None:
        """The group goes on under the other protocol: who waits is to join again."""
        for member in self.members.values():
            self._end_join(turn, member, replies.join(Code.REBALANCE_IN_PROGRESS, member.id))
            self._end_sync(turn, member, replies.sync(Code.REBALANCE_IN_PROGRESS))
        self._transition_to(turn, DEAD)

    # -- rebalancing

    def _rebalance(self, turn: Turn, member_id: str, request: JoinRequest, why: str) -> None:
        """A join asks for a rebalance, or takes part in the one that goes on."""
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
                    self._end_sync(turn, member, replies.sync(Code.REBALANCE_IN_PROGRESS))
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
            self.history.formed(self.generation, 0)
            self.history.ended(turn.now_ms)
            return
        self.protocol = self.select_protocol()
        self.subscribed = self.topics()
        self._transition_to(turn, COMPLETING_REBALANCE)
        self._sync_due = turn.now_ms + self.rebalance_timeout_ms()
        self.history.formed(self.generation, len(self.members))
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
        """The leader stays if it joined; else the first who did leads. False: nobody joined."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                self.leader = member.id
                return True
        return False

    # -- leaving

    def _leave(self, turn: Turn, who: Message) -> Code:
        """One of LeaveGroup's members. An admin names a static member by its instance id alone."""
        member_id, instance_id = who["member_id"], who.get("group_instance_id")
        if not member_id:
            if instance_id not in self.static:
                return Code.UNKNOWN_MEMBER_ID
            member_id = self.static[instance_id]
        elif member_id in self.pending:
            del self.pending[member_id]
            return Code.NONE
        code = self.fenced(member_id, instance_id)
        if code is Code.NONE:
            reason = who.get("reason") or ""
            why = f"{member_id} left" + (f" ({reason})" if reason else "")
            self._remove(turn, self.members[member_id], why)
        return code

    def _remove(self, turn: Turn, member: Member, why: str) -> None:
        """A member is no more; what it waits for is answered so that it may begin anew."""
        self.history.add_reason(member.id, why, turn.now_ms)
        if member.join is not None:
            self._end_join(turn, member, replies.join(Code.UNKNOWN_MEMBER_ID, ""))
        if member.sync is not None:
            self._end_sync(turn, member, replies.sync(Code.UNKNOWN_MEMBER_ID))
        self.remove_member(member)
        turn.dirty[self.id] = None

    # -- syncing

    def _refuses_sync(self, event: Event) -> Code:
        message = event.message
        kind, protocol = message.get("protocol_type"), message.get("protocol_name")
        if event.version >= SYNC_NAMES_PROTOCOL_SINCE and (kind is None or protocol is None):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        code = self.fenced(message["member_id"], message.get("group_instance_id"))
        if code is not Code.NONE:
            return code
        if message["generation_id"] != self.generation:
            return Code.ILLEGAL_GENERATION
        if kind not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if self.state == PREPARING_REBALANCE:
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    # -- effects

    def answer(self, turn: Turn, ticket: int, reply: Message) -> None:
        """Answer a request."""
        turn.out.replies.append((ticket, reply, (self.id,)))

    def _refuse(self, turn: Turn, asked: JoinRequest, code: Code, named: str | None = None) -> None:
        member_id = asked.member_id if named is None else named
        self.answer(turn, asked.ticket, replies.join(code, member_id))

    def _end_join(self, turn: Turn, member: Member, reply: Message) -> None:
        if member.join is not None:
            self.answer(turn, member.join, reply)
            member.join = member.join_expires_ms = None
            member.restart_session, member.suspected = True, False
            self.awaiting_join -= 1

    def _end_sync(self, turn: Turn, member: Member, reply: Message) -> None:
        if member.sync is not None:
            self.answer(turn, member.sync, reply)
            member.sync = None
            member.restart_session, member.suspected = True, False

    def _transition_to(self, turn: Turn, state: str) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.id}: from {self.state} to {state}")
        self.state, self.since_ms = state, turn.wall_ms
        turn.dirty[self.id] = None
