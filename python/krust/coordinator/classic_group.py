"""One classic group: JoinGroup, SyncGroup, LeaveGroup and lost members.

`classic_rebalance` has the states, the generations and the deadlines.
A member that begins to wait is not published, because 500 joins would publish 500 times 500 rows.
When its session expires in the core, SessionExpired finds it waiting and publishes the snapshot.
Source: Kafka 3.9 `GroupMetadataManager.classicGroup*`. Differences: a rebalance timeout <= 0 is the
session timeout; a static member that did not rejoin stays until its session ends and owes no sync;
a join replaced by a newer one of the same member is answered; a static member may return to a full
group; at most MAX_PENDING members are pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator import replies
from krust.coordinator.classic_member import ClassicMember, JoinRequest
from krust.coordinator.classic_rebalance import ClassicRebalance
from krust.coordinator.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.events import Event
    from krust.messages.join_group import JoinGroupRequest
    from krust.messages.leave_group import LeaveGroupRequest, MemberIdentity
    from krust.messages.sync_group import SyncGroupRequest

NEW_MEMBER_JOIN_MS = 300_000
"""How long a first join waits: its client has no member id yet and may be gone."""
MAX_PENDING = 10_000
"""Members that got an id and have not used it yet. The oldest one makes room."""

MEMBER_ID_REQUIRED_SINCE, SKIP_ASSIGNMENT_SINCE, SYNC_NAMES_PROTOCOL_SINCE = 4, 9, 5


class ClassicGroup(ClassicRebalance):
    """The requests of members. Methods take a Turn and put their effects there."""

    def join(self, turn: Turn, event: Event[JoinGroupRequest]) -> None:
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

    def sync(self, turn: Turn, event: Event[SyncGroupRequest]) -> None:
        """SyncGroup."""
        message = event.message
        code = self._refuses_sync(event)
        if code is not Code.NONE:
            self.answer(turn, event.ticket, replies.sync_refusal(code))
            return
        member = self.members[message["member_id"]]
        self.unsynced.discard(member.id)
        if not self.unsynced and self._assignor_call is None:
            self._sync_due = None
        if self.state == STABLE:
            self.answer(turn, event.ticket, self.synced(member))
            return
        if member.sync is not None:
            self.answer(turn, member.sync, replies.sync_refusal(Code.REBALANCE_IN_PROGRESS))
        member.sync = event.ticket
        member.suspected = False
        if member.id == self.leader:
            assignments = {each["member_id"]: each["assignment"] for each in message["assignments"]}
            self._leader_assignment = assignments
            if self._assignor_call is None:
                self.apply_assignment(turn, assignments)

    def leave(self, turn: Turn, event: Event[LeaveGroupRequest]) -> None:
        """LeaveGroup: v0-2 one member, v3+ several, by member id or by instance id alone."""
        if event.version < 3:
            member_id = event.message["member_id"]
            leaving: Sequence[MemberIdentity] = [
                {"member_id": member_id, "group_instance_id": None}
            ]
        else:
            leaving = event.message["members"]
        before = len(self.members)
        codes = [self._leave(turn, each) for each in leaving]
        self.answer(turn, event.ticket, replies.leave_response(event, codes))
        if len(self.members) < before:
            self._on_members_removed(turn)
        else:
            self._maybe_complete_join(turn)  # the rebalance may have waited for a pending member

    def expire(self, turn: Turn, member_ids: Iterable[str]) -> None:
        """Sessions have expired. A waiting member is removed at the second expiry, because its
        connection is closed. A member that was just answered begins a new session with the next
        snapshot.
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

    # -- joining

    def _has_room(self, turn: Turn, request: JoinRequest) -> bool:
        """Whether the group has room. During a rebalance the first `max_size` members stay."""
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

    def _rejoin(self, turn: Turn, request: JoinRequest, member: ClassicMember) -> None:
        """A known member joins again."""
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
        member = ClassicMember(
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

    def _update(self, turn: Turn, member: ClassicMember, request: JoinRequest) -> None:
        """Take over the request of a known member."""
        before = (member.connection, member.session_timeout_ms)
        if member.protocols != request.protocols:
            self._count_member(member, -1)
            member.update(request)
            self._count_member(member, 1)
        else:
            member.update(request)
        if before != (member.connection, member.session_timeout_ms):
            turn.dirty[self.id] = None

    def _delay_join(self, turn: Turn, member: ClassicMember, request: JoinRequest) -> None:
        """Delay the response. An earlier join of the same member is refused now."""
        if member.join is None:
            self.awaiting_join += 1
        else:
            refusal = replies.join_refusal(Code.REBALANCE_IN_PROGRESS, member.id)
            self.answer(turn, member.join, refusal)
        member.join = request.ticket
        member.suspected = False

    def _replace_static(
        self, turn: Turn, request: JoinRequest, old: ClassicMember, member_id: str
    ) -> None:
        """A static member is back without its member id. It replaces the old member, whose waiting
        requests are fenced.
        """
        leader_before, assignment = self.leader, old.assignment
        if old.join is not None:
            self._end_join(turn, old, replies.join_refusal(Code.FENCED_INSTANCE_ID, old.id))
        if old.sync is not None:
            self._end_sync(turn, old, replies.sync_refusal(Code.FENCED_INSTANCE_ID))
        self.remove_member(old)
        member = ClassicMember(
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
            # Before v9 the response names the old leader, so that the member does not assign: no
            # other member has joined.
            shown = self.leader if skips else leader_before
            reply = self.joined(
                member, with_members=is_leader, leader=shown, skip_assignment=is_leader
            )
            self.answer(turn, request.ticket, reply)
            return
        self._delay_join(turn, member, request)
        if self._join_due is not None:  # the old member may have had a longer timeout
            self._join_due = min(self._join_due, turn.now_ms + self.rebalance_timeout_ms())
        self._rebalance(turn, member_id, request, why)

    # -- leaving and syncing

    def _leave(self, turn: Turn, who: MemberIdentity) -> Code:
        """Remove one of LeaveGroup's members. An admin names a static member by its instance id."""
        member_id, instance_id = who["member_id"], who.get("group_instance_id")
        if not member_id:
            if instance_id is None or instance_id not in self.static:
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

    def _refuses_sync(self, event: Event[SyncGroupRequest]) -> Code:
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

    def _refuse(self, turn: Turn, asked: JoinRequest, code: Code, named: str | None = None) -> None:
        member_id = asked.member_id if named is None else named
        self.answer(turn, asked.ticket, replies.join_refusal(code, member_id))
