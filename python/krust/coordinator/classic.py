"""One classic group: JoinGroup, SyncGroup, LeaveGroup, lost members and deadlines.

    EMPTY ──join──> PREPARING_REBALANCE ──all joined, or deadline──> COMPLETING_REBALANCE
      ^  ^                │  ^  ^                                       │          │
      │  └──nobody left───┘  │  └── join, leave, lost member, ──────────┘   leader's sync
      │                      │      sync deadline                              stored
      │                      └── join, leave, lost member ── STABLE <──────────────┘
      └── the core's news: replayed without members (with members: STABLE)
    EMPTY ──deleted, offsets expired──> DEAD;  any ──append failed, our own bug──> DEAD, replayed

Rules that hold at every step (the simulator checks them):
- A generation is never given out twice, restarts included: `generation <= recorded + 1`, where
  `recorded` stands in the log (`_number`).
- A join waits no longer than the rebalance timeout (the largest of its members), nor than 5
  minutes where the member is new; a sync no longer than the rebalance timeout.
- Whatever the core must know is marked in `turn.dirty`; it is published before any answer.
A member that begins to wait is not published for that alone (500 joins are not 500 rows of 500
members): when the core takes its silence for death, SessionExpired finds it waiting and publishes.
Source: Kafka 3.9 `GroupMetadataManager.classicGroup*`. Other than there: a rebalance timeout that
is not positive is the session timeout; a static member that did not rejoin is kept until its
session ends and owes no sync; a join that a newer one of the same member replaces is answered;
a static member comes back into a full group; at most MAX_PENDING members are pending.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from krust.coordinator import replies
from krust.coordinator.consumer_protocol import PROTOCOL_TYPE
from krust.coordinator.member import Ask, Member
from krust.coordinator.outcome import AssignCall
from krust.coordinator.roster import Roster
from krust.coordinator.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    STEPS,
)
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust.coordinator.member import Turn
    from krust.coordinator.outcome import Event, Message

NEW_MEMBER_JOIN_MS = 300_000
"""So long does a first join wait: its client has no id yet and may be gone without a trace."""
AGAIN_MS = 1000
"""Least time until a rebalance that nobody joined is looked at again."""

MAX_PENDING = 10_000
"""Members that were told an id and have not used it yet; the oldest makes room."""

MEMBER_ID_REQUIRED_SINCE, SKIP_ASSIGNMENT_SINCE, SYNC_NAMES_PROTOCOL_SINCE = 4, 9, 5


class Group(Roster):
    """The state machine. Methods take a Turn and put their effects there."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self._join_due: int | None = None
        self._sync_due: int | None = None
        self._timers: list[tuple[int, str]] = []
        """of pending members and of new ones: those that no longer hold are skipped"""
        self._initial = False
        self._more_came = False
        self._delay = 0
        self._remaining = 0
        self._called: AssignCall | None = None
        """krust's own assignor is at work; the leader's assignment waits for it"""
        self._offer: dict[str, bytes] | None = None
        """what the leader assigned meanwhile"""

    # -- requests

    def join(self, turn: Turn, event: Event) -> None:
        """JoinGroup."""
        ask = Ask.of(event)
        if not self._has_room(turn, ask):
            member = self.members.get(ask.member_id)
            if member is not None:
                self._remove(turn, member, "the group is full")
            self._refuse(turn, ask, Code.GROUP_MAX_SIZE_REACHED, "")
            self._complete_if_all(turn)
        elif not self._supports(ask):
            self._refuse(turn, ask, Code.INCONSISTENT_GROUP_PROTOCOL)
        elif not ask.member_id:
            self._join_first(turn, ask)
        elif ask.member_id in self.pending and ask.instance_id is None:
            self._add(turn, ask, ask.member_id)
        else:
            code = self.fenced(ask.member_id, ask.instance_id)
            if code is not Code.NONE:
                self._refuse(turn, ask, code)
            else:
                self._join_again(turn, ask, self.members[ask.member_id])

    def sync(self, turn: Turn, event: Event) -> None:
        """SyncGroup."""
        message = event.message
        code = self._refuses_sync(event)
        if code is not Code.NONE:
            self.answer(turn, event.ticket, replies.sync(code))
            return
        member = self.members[message["member_id"]]
        self.unsynced.discard(member.id)
        if not self.unsynced and self._called is None:
            self._sync_due = None
        if self.state == STABLE:
            self.answer(turn, event.ticket, self.synced(member))
            return
        if member.sync is not None:
            self.answer(turn, member.sync, replies.sync(Code.REBALANCE_IN_PROGRESS))
        member.sync = event.ticket
        member.suspected = False
        if member.id == self.leader:
            given = {each["member_id"]: each["assignment"] for each in message["assignments"]}
            self._offer = given
            if self._called is None:
                self.assign(turn, given)

    def assigned(self, turn: Turn, message: Message) -> None:
        """The assignor that was called has answered; None: it could not, the leader's word counts.

        One that comes for a call that is over is not heard.
        """
        if self._called is None or message["call"] is not self._called:
            return
        if self.state == COMPLETING_REBALANCE:
            self.history.trouble(message.get("line"), message.get("assignor"))
            self._end_call(turn, message["assignments"])

    def assign(self, turn: Turn, given: dict[str, bytes]) -> None:
        """The assignment is here: store it, answer all that wait."""
        self.hand_out(given)
        self._called = self._offer = None
        if not self.unsynced:
            self._sync_due = None
        self._enter(turn, STABLE)
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
            self._after_loss(turn)
        else:
            self._complete_if_all(turn)  # one that was pending may be the last it waited for

    def expire(self, turn: Turn, member_ids: Iterable[str]) -> None:
        """The core takes these members for dead. One that waits is silent for that: said again, its
        connection is gone. The session of one just answered begins anew with the next row.
        """
        turn.dirty[self.id] = None
        before = len(self.members)
        for member in [self.members[each] for each in member_ids if each in self.members]:
            if member.waits and not member.suspected:
                member.suspected = True
            elif member.waits:
                self._remove(turn, member, f"connection of {member.id} closed")
            elif not member.renew:
                self._remove(turn, member, f"session of {member.id} expired")
        if len(self.members) < before:
            self._after_loss(turn)

    # -- time

    def due(self) -> int | None:
        """When `on_time` wants to be called."""
        while self._timers and not self._holds(*self._timers[0]):
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
            if self._holds(*timer):
                gone = True
                member = self.members.get(timer[1])
                if self.pending.pop(timer[1], None) is None and member is not None:
                    self._remove(turn, member, f"first join of {member.id} waited too long")
        if gone:
            self._complete_if_all(turn)
        if self._join_due is not None and self._join_due <= turn.now_ms:
            self._join_deadline(turn)
        if self._sync_due is not None and self._sync_due <= turn.now_ms:
            self._sync_due = None
            self._end_call(turn, None)
            late = [each for each in self.members.values() if each.id in self.unsynced]
            for each in late:
                self._remove(turn, each, f"{each.id} did not sync in time")
            if late:
                self._after_loss(turn)

    def _call(self, turn: Turn) -> None:
        """Have krust's own assignor called, for members that are consumers."""
        self._called = self._offer = None
        if self.protocol_type == PROTOCOL_TYPE and turn.settings.server_assignor(self.id):
            before = (self.last or self.value([]))["members"]
            had = {each["member_id"]: each["assignment"] for each in before}
            members = [
                (each.id, each.instance_id, each.metadata(self.protocol), had.get(each.id, b""))
                for each in self.members.values()
            ]
            protocol, topics = self.protocol or "", self.subscribed
            self._called = AssignCall(self.id, self.generation, protocol, members, topics)
            turn.out.calls.append(self._called)

    def _end_call(self, turn: Turn, given: dict[str, bytes] | None) -> None:
        """The wait for the assignor is over: by its answer, or by the sync deadline."""
        if self._called is not None:
            self._called = None
            chosen = self._offer if given is None else given
            if chosen is not None:
                self.assign(turn, chosen)

    def expect(self, member_id: str, due: int) -> None:
        """Keep an id that was given out for whoever joins with it by then."""
        self.pending[member_id] = due
        self._remind(due, member_id)

    def _remind(self, due: int, member_id: str) -> None:
        """Set a timer of a member; sweep when most of them hold no more."""
        heappush(self._timers, (due, member_id))
        if len(self._timers) > 2 * (len(self.pending) + len(self.members)) + 64:
            self._timers = [each for each in self._timers if self._holds(*each)]
            heapify(self._timers)

    def _holds(self, due: int, member_id: str) -> bool:
        if member_id in self.pending:
            return self.pending[member_id] == due
        member = self.members.get(member_id)
        return member is not None and member.gives_up_ms == due

    def _join_deadline(self, turn: Turn) -> None:
        """The initial delay or the rebalance timeout is over."""
        due = self._join_due or turn.now_ms
        if self._initial and self._more_came and self._remaining > 0:
            self._more_came = False
            delay = min(turn.settings.initial_rebalance_delay_ms, self._remaining)
            self._remaining = max(self._remaining - self._delay, 0)
            self._delay = delay
            self._join_due = due + delay
        else:
            self._complete(turn)

    # -- joining

    def _has_room(self, turn: Turn, ask: Ask) -> bool:
        """Who waits already stays; while a rebalance goes on, the first `max_size` to join stay."""
        known = self.members.get(ask.member_id)
        if self.state == EMPTY or (not ask.member_id and ask.instance_id in self.static):
            return True
        if self.state == PREPARING_REBALANCE:
            waits = known is not None and known.join is not None
            return waits or self.waiting < turn.settings.max_size
        return known is not None or len(self.members) < turn.settings.max_size

    def _supports(self, ask: Ask) -> bool:
        """Whether a protocol is left that everybody speaks."""
        if self.state == EMPTY:
            return bool(ask.protocol_type and ask.protocols)
        count = len(self.members)
        same = ask.protocol_type == self.protocol_type
        return same and any(self.supported[name] == count for name, _ in ask.protocols)

    def _join_first(self, turn: Turn, ask: Ask) -> None:
        """A join without a member id."""
        member_id = f"{ask.instance_id or ask.client_id}-{turn.new_id()}"
        if ask.instance_id is not None:
            old = self.static.get(ask.instance_id)
            if old is not None:
                self._replace(turn, ask, self.members[old], member_id)
            else:
                self._add(turn, ask, member_id)
        elif ask.version >= MEMBER_ID_REQUIRED_SINCE:
            if len(self.pending) >= MAX_PENDING:
                del self.pending[next(iter(self.pending))]
            self.expect(member_id, turn.now_ms + ask.session_timeout_ms)
            self._refuse(turn, ask, Code.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(turn, ask, member_id)

    def _join_again(self, turn: Turn, ask: Ask, member: Member) -> None:
        """A member joins again."""
        same = member.says_the_same(ask.protocols, self.protocol)
        leads = member.id == self.leader
        if same and (self.state == COMPLETING_REBALANCE or (self.state == STABLE and not leads)):
            self._update(turn, member, ask)
            told = leads and self.state == COMPLETING_REBALANCE
            self.answer(turn, ask.ticket, self.joined(member, told=told))
            return
        self._update(turn, member, ask)
        self._park(turn, member, ask)
        why = "leader joined again" if leads else "member joined again"
        if same or self.state == PREPARING_REBALANCE:
            self._rebalance(turn, member.id, ask, f"{why}: {member.id}")
        else:
            self._rebalance(turn, member.id, ask, f"{why} with other metadata: {member.id}")

    def _add(self, turn: Turn, ask: Ask, member_id: str) -> None:
        """Somebody new."""
        self.pending.pop(member_id, None)
        if self.state == PREPARING_REBALANCE and self.generation == 0:
            self._more_came = True
        if not self.members:
            self.protocol_type = ask.protocol_type
        member = Member(
            member_id,
            ask.instance_id,
            ask.client_id,
            ask.client_host,
            ask.connection,
            ask.session_timeout_ms,
            ask.rebalance_timeout_ms,
            ask.protocols,
        )
        self.enlist(member)
        turn.dirty[self.id] = None
        member.gives_up_ms = turn.now_ms + NEW_MEMBER_JOIN_MS
        self._remind(member.gives_up_ms, member_id)
        self._park(turn, member, ask)
        self._rebalance(turn, member_id, ask, f"member {member_id} joined")

    def _update(self, turn: Turn, member: Member, ask: Ask) -> None:
        """Take over what a known member says now."""
        before = (member.connection, member.session_timeout_ms)
        if member.protocols != ask.protocols:
            self._count(member, -1)
            member.update(ask)
            self._count(member, 1)
        else:
            member.update(ask)
        if before != (member.connection, member.session_timeout_ms):
            turn.dirty[self.id] = None

    def _park(self, turn: Turn, member: Member, ask: Ask) -> None:
        """The join waits; one that waited before is answered, its client has moved on."""
        if member.join is None:
            self.waiting += 1
        else:
            refusal = replies.join(Code.REBALANCE_IN_PROGRESS, member.id)
            self.answer(turn, member.join, refusal)
        member.join = ask.ticket
        member.suspected = False

    def _replace(self, turn: Turn, ask: Ask, old: Member, member_id: str) -> None:
        """A static member is back without its id: it takes the old one's place, which is fenced."""
        led, assignment = self.leader, old.assignment
        if old.join is not None:
            self._end_join(turn, old, replies.join(Code.FENCED_INSTANCE_ID, old.id))
        if old.sync is not None:
            self._end_sync(turn, old, replies.sync(Code.FENCED_INSTANCE_ID))
        self.strike(old)
        member = Member(
            member_id,
            ask.instance_id,
            ask.client_id,
            ask.client_host,
            ask.connection,
            ask.session_timeout_ms,
            ask.rebalance_timeout_ms,
            ask.protocols,
            assignment,
        )
        self.enlist(member)
        if led == old.id:
            self.leader = member_id
        turn.dirty[self.id] = None
        why = f"static member {ask.instance_id} is back as {member_id}"
        if self.state == STABLE and self.vote() == self.protocol:
            self.store(turn)
            skips = ask.version >= SKIP_ASSIGNMENT_SINCE
            leads = skips and self.leader == member_id
            # Before v9 it is told the old leader's id, lest it assign: nobody would hear it.
            shown = self.leader if skips else led
            reply = self.joined(member, told=leads, leader=shown, skip_assignment=leads)
            self.answer(turn, ask.ticket, reply)
            return
        self._park(turn, member, ask)
        if self._join_due is not None:  # the one it replaces may have wanted longer
            self._join_due = min(self._join_due, turn.now_ms + self.rebalance_timeout_ms())
        self._rebalance(turn, member_id, ask, why)

    def refresh(self, turn: Turn) -> None:
        """After a replay: a rebalance that the log shows to be due."""
        if len(self.members) > turn.settings.max_size:
            self.call_again(turn, "more members than group.max.size")
        if self.state == STABLE and self.leader is None:
            self.call_again(turn, "converted, and not called yet")

    def call_again(self, turn: Turn, why: str) -> None:
        """Everybody is to join again, for a reason from outside."""
        self._prepare(turn, "", why)

    def call_off(self, turn: Turn) -> None:
        """The group goes on under the other protocol: who waits is to join again."""
        for member in self.members.values():
            self._end_join(turn, member, replies.join(Code.REBALANCE_IN_PROGRESS, member.id))
            self._end_sync(turn, member, replies.sync(Code.REBALANCE_IN_PROGRESS))
        self._enter(turn, DEAD)

    # -- rebalancing

    def _rebalance(self, turn: Turn, member_id: str, ask: Ask, why: str) -> None:
        """A join asks for a rebalance, or takes part in the one that goes on."""
        if ask.reason:
            why = f"{why} ({ask.reason})"
        if self.state == PREPARING_REBALANCE:
            self.history.because(member_id, why, turn.now_ms)
            self._complete_if_all(turn)
        else:
            self._prepare(turn, member_id, why)

    def _prepare(self, turn: Turn, member_id: str, why: str) -> None:
        """Call everybody to join."""
        if self.state == COMPLETING_REBALANCE:
            self.hand_out({})
            for member in self.members.values():
                if member.sync is not None:
                    self._end_sync(turn, member, replies.sync(Code.REBALANCE_IN_PROGRESS))
        if why:
            self.history.because(member_id, why, turn.now_ms)
        self._sync_due = None
        self._called = None
        self._initial = self.state == EMPTY
        self._enter(turn, PREPARING_REBALANCE)
        timeout = self.rebalance_timeout_ms()
        if self._initial:
            self._more_came = False
            self._delay = min(turn.settings.initial_rebalance_delay_ms, timeout)
            self._remaining = timeout - self._delay
            self._join_due = turn.now_ms + self._delay
        else:
            self._join_due = turn.now_ms + timeout
            self._complete_if_all(turn)

    def _after_loss(self, turn: Turn) -> None:
        """Members have gone; no join waits any more for the one that needed longest."""
        if self.state in (STABLE, COMPLETING_REBALANCE):
            self._prepare(turn, "", "")
        elif self._join_due is not None:
            self._join_due = min(self._join_due, turn.now_ms + self.rebalance_timeout_ms())
            self._complete_if_all(turn)

    def _complete_if_all(self, turn: Turn) -> None:
        all_here = self.waiting == len(self.members) and not self.pending
        if self.state == PREPARING_REBALANCE and all_here and not self._initial:
            self._complete(turn)

    def _complete(self, turn: Turn) -> None:
        """Begin the next generation with those who joined."""
        late = [m for m in self.members.values() if m.join is None and m.instance_id is None]
        for member in late:
            self._remove(turn, member, f"{member.id} did not join in time")
        if self.members and not self._elect():  # absent static members alone: their sessions end
            self._join_due = turn.now_ms + max(self.rebalance_timeout_ms(), AGAIN_MS)
            return
        self._join_due = None
        self._initial = False
        self._number(turn)
        if not self.members:
            self.protocol = None
            self.subscribed = self.topics()
            self._enter(turn, EMPTY)
            self.store(turn)
            self.history.formed(self.generation, 0)
            self.history.ended(turn.now_ms)
            return
        self.protocol = self.vote()
        self.subscribed = self.topics()
        self._enter(turn, COMPLETING_REBALANCE)
        self._sync_due = turn.now_ms + self.rebalance_timeout_ms()
        self.history.formed(self.generation, len(self.members))
        joined = [each for each in self.members.values() if each.join is not None]
        self.unsynced = {each.id for each in joined}
        for member in joined:
            reply = self.joined(member, told=member.id == self.leader)
            self._end_join(turn, member, reply)
        self._call(turn)

    def _number(self, turn: Turn) -> None:
        """The next generation's number. Two in a row that the log has not heard of: a restart would
        count from before them; so it hears of a number between them that stands for the last
        assignment it knows, and for nothing else.
        """
        latest = max(self.generation, self.issued)
        if latest > self.recorded:
            latest += 1
            self.record(turn, {**(self.last or self.value([])), "generation": latest})
        self.generation = latest + 1

    def _elect(self) -> bool:
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
        self.history.because(member.id, why, turn.now_ms)
        if member.join is not None:
            self._end_join(turn, member, replies.join(Code.UNKNOWN_MEMBER_ID, ""))
        if member.sync is not None:
            self._end_sync(turn, member, replies.sync(Code.UNKNOWN_MEMBER_ID))
        self.strike(member)
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

    def _refuse(self, turn: Turn, ask: Ask, code: Code, member_id: str | None = None) -> None:
        named = ask.member_id if member_id is None else member_id
        self.answer(turn, ask.ticket, replies.join(code, named))

    def _end_join(self, turn: Turn, member: Member, reply: Message) -> None:
        if member.join is not None:
            self.answer(turn, member.join, reply)
            member.join = member.gives_up_ms = None
            member.renew, member.suspected = True, False
            self.waiting -= 1

    def _end_sync(self, turn: Turn, member: Member, reply: Message) -> None:
        if member.sync is not None:
            self.answer(turn, member.sync, reply)
            member.sync = None
            member.renew, member.suspected = True, False

    def _enter(self, turn: Turn, state: str) -> None:
        if state not in STEPS[self.state]:
            raise AssertionError(f"group {self.id}: from {self.state} to {state}")
        self.state, self.since_ms = state, turn.wall_ms
        turn.dirty[self.id] = None
