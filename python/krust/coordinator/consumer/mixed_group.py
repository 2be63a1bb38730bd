"""Joining and leaving of members in a consumer group, classic members included.

A consumer group that was converted serves JoinGroup, SyncGroup and LeaveGroup of its classic
members. It has no leader. A join is answered at once, with the member's epoch as generation, and a
sync with the member's partitions. The core's answer to a heartbeat calls a member to join again
when it has partitions to revoke or to take. Cooperative members revoke between two joins.
Source: Kafka 4.3 `GroupMetadataManager.classicGroup*ToConsumerGroup`. Difference: a member id that
was not given out is unknown, because a client with such an id may still read partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator import replies
from krust.coordinator.classic_member import JoinRequest
from krust.coordinator.consumer import records
from krust.coordinator.consumer import replies as consumer_replies
from krust.coordinator.consumer.member import ClassicProtocols, ConsumerMember, DelayedResponse
from krust.coordinator.consumer.members import ConsumerGroupMembers
from krust.coordinator.consumer.reconcile import reconcile
from krust.coordinator.consumer.target import with_topic_ids, with_topic_names
from krust.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    read_subscription,
    write_assignment,
)
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.consumer.member import Partitions
    from krust.coordinator.events import AssignCall, Event, Record
    from krust.messages import Message
    from krust.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from krust.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from krust.messages.leave_group import LeaveGroupRequest, MemberIdentity
    from krust.messages.sync_group import SyncGroupRequest

MAX_PENDING = 10_000
"""Members that got an id and have not used it yet. The oldest one makes room."""

MEMBER_ID_REQUIRED_SINCE = 4


class MixedGroup(ConsumerGroupMembers):
    """A consumer group that may have classic members too."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self.target_outdated = False
        """whether a change asks for a new epoch"""
        self.call: AssignCall | None = None
        """the running call of user code, which computes a target"""
        self.call_due: int | None = None
        self.pending: dict[str, None] = {}

    # -- requests of classic members

    def join(self, turn: Turn, event: Event[JoinGroupRequest]) -> None:
        """JoinGroup."""
        request = JoinRequest.of(event)
        self.converge_before(turn, request.member_id)
        code = self._refuses_join(turn, request)
        if code is not Code.NONE:
            self.answer(turn, request.ticket, replies.join_refusal(code, request.member_id))
            return
        new_id = request.member_id or f"{request.instance_id or request.client_id}-{turn.new_id()}"
        first = not request.member_id and request.instance_id is None
        if first and request.version >= MEMBER_ID_REQUIRED_SINCE:
            if len(self.pending) >= MAX_PENDING:
                del self.pending[next(iter(self.pending))]
            self.pending[new_id] = None
            self.answer(turn, request.ticket, replies.join_refusal(Code.MEMBER_ID_REQUIRED, new_id))
            return
        self.pending.pop(new_id, None)
        subscription = read_subscription(request.protocols[0][1])
        known = self.members.get(new_id)
        member = known or self.add_or_replace(turn, ConsumerMember(new_id, request.instance_id))
        before = records.member(member) if known else None
        member.rack = subscription.rack if subscription.rack is not None else member.rack
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.connection = request.connection
        member.classic = ClassicProtocols(request.session_timeout_ms, request.protocols)
        member.join_due = member.revoke_due = None
        member.joins = True
        turn.dirty[self.id] = None
        changed = self.subscribe(turn, member, before, frozenset(subscription.topics), "")
        owned = with_topic_ids(subscription.owned, turn.settings)
        with_assignment = True
        self.delay(
            turn,
            DelayedResponse(request.ticket, member.id, owned, with_assignment, changed, request),
        )

    def answer_join(self, turn: Turn, request: JoinRequest, member: ConsumerMember) -> None:
        """Answer the join of a member that was reconciled. It has to sync now."""
        member.sync_due = turn.now_ms + member.rebalance_timeout_ms
        self.set_timers(member)
        member.joins, member.restart_session = False, True
        turn.dirty[self.id] = None
        protocol = request.protocols[0][0]
        reply = replies.join_response(member.id, member.epoch, protocol, PROTOCOL_TYPE, "")
        self.answer(turn, request.ticket, reply)

    def sync(self, turn: Turn, event: Event[SyncGroupRequest]) -> None:
        """SyncGroup: the assignment is known."""
        message = event.message
        member_id = message["member_id"]
        self.converge_before(turn, member_id)
        code = self._refuses_sync(message)
        if code is not Code.NONE:
            self.answer(turn, event.ticket, replies.sync_refusal(code))
            return
        member = self.members[member_id]
        member.sync_due = None
        protocol, metadata = self._classic(member).protocols[0]
        subscription = read_subscription(metadata)
        partitions = tuple(with_topic_names(member.assigned, turn.settings))
        data = write_assignment(Assignment(partitions, None, subscription.version))
        self.answer(turn, event.ticket, replies.sync_response(PROTOCOL_TYPE, protocol, data))
        turn.open[self.id] = None

    def leave(self, turn: Turn, event: Event[LeaveGroupRequest]) -> None:
        """LeaveGroup: v0-2 one member, v3+ several, by member id or by instance id alone. An admin
        names members of either protocol.
        """
        if event.version < 3:
            member_id = event.message["member_id"]
            leaving: Sequence[MemberIdentity] = [
                {"member_id": member_id, "group_instance_id": None}
            ]
        else:
            leaving = event.message["members"]
        codes = [self._leave_one(turn, each) for each in leaving]
        self.answer(turn, event.ticket, replies.leave_response(event, codes))

    def _leave_one(self, turn: Turn, who: MemberIdentity) -> Code:
        member_id, instance_id = who["member_id"], who.get("group_instance_id")
        if not member_id:
            member_id = self.static.get(instance_id or "", "")
        if member_id in self.pending:
            del self.pending[member_id]
            return Code.NONE
        code = self._fenced(member_id, instance_id)
        if code is Code.NONE:
            reason = who.get("reason") or ""
            why = f"{member_id} left" + (f" ({reason})" if reason else "")
            self.drop_member(turn, self.members[member_id], why)
        return code

    def call_to_join(self, turn: Turn) -> None:
        """Call classic members to join again within their rebalance timeout."""
        for each in self.members.values():
            if each.classic is None:
                continue
            if not self.must_rejoin(each, turn.settings):
                each.join_due = None
            elif each.join_due is None:
                each.join_due = turn.now_ms + max(each.rebalance_timeout_ms, 0)
                self.set_timers(each)
                turn.dirty[self.id] = None

    # -- members of both protocols

    def add_or_replace(self, turn: Turn, member: ConsumerMember) -> ConsumerMember:
        """Add a member. If its instance id is known, it replaces the member that has it."""
        old = self.members.get(self.static.get(member.instance_id or "", ""))
        if old is None:
            self.add_member(member)
            self.request_new_target(turn, member.id, f"member {member.id} joined")
            return member
        member_target = self.target.get(old.id, frozenset())
        self.refuse_delayed(turn, old.id, Code.FENCED_INSTANCE_ID)
        self.remove_member(old)
        member.rack, member.names, member.regex = old.rack, old.names, old.regex
        member.rebalance_timeout_ms, member.assignor = old.rebalance_timeout_ms, old.assignor
        member.classic, member.previous_epoch = old.classic, 0
        member.state, member.assigned, member.revoking = old.state, old.assigned, old.revoking
        self.add_member(member)
        self.target[member.id] = member_target
        self.write(turn, *records.member_tombstones(old.id), records.member(member))
        self.write(turn, records.target(member.id, member_target), records.current(member))
        turn.dirty[self.id] = None
        if self.call is not None:
            self.request_new_target(
                turn, member.id, f"{old.id} became {member.id} while user code assigned"
            )
        return member

    def subscribe(
        self,
        turn: Turn,
        member: ConsumerMember,
        before: Record | None,
        names: frozenset[str],
        regex: str,
    ) -> bool:
        """Set a member's subscription and write its record if it changed.

        before   the record of the member before the request; None: it is new
        returns  whether the subscription changed
        """
        old = member.regex
        changed = (member.names, old) != (names, regex)
        member.names, member.regex = names, regex
        if changed:
            self.forget_subscribed()
        if regex != old:
            self._forget_regex(turn, old)
            if regex and regex not in self.resolved:
                found = frozenset(turn.settings.match_topics(regex))
                self.resolved[regex] = found
                self.forget_subscribed()
                self.write(turn, records.regex(regex, found, turn.now_ms))
        now = records.member(member)
        if now != before:
            self.write(turn, now)
        if changed:
            what = "subscribes to other topics" if before is not None else "subscribes"
            self.request_new_target(turn, member.id, f"{member.id} {what}")
        return changed

    def drop_member(self, turn: Turn, member: ConsumerMember, why: str) -> None:
        """Remove a member. Its delayed request is refused so that it can join again."""
        self.refuse_delayed(turn, member.id, Code.UNKNOWN_MEMBER_ID)
        self.remove_member(member)
        self.write(turn, *records.member_tombstones(member.id))
        self._forget_regex(turn, member.regex)
        self.request_new_target(turn, member.id, why)

    def request_new_target(self, turn: Turn, member_id: str, why: str) -> None:
        """Note that a new target is needed, and why."""
        self.history.add_reason(member_id, why, turn.now_ms)
        self.target_outdated = True
        turn.dirty[self.id] = turn.open[self.id] = None

    def reconcile(
        self, turn: Turn, member: ConsumerMember, owned: Partitions | None, *, changed: bool
    ) -> None:
        """Bring a member's partitions closer to its target."""
        member_target = self.member_target(member, turn.settings)
        self.release_partitions(member)
        different = reconcile(member, member_target, owned, changed=changed)
        self.claim_partitions(member)
        if different:
            self.write(turn, records.current(member))
            turn.dirty[self.id] = None

    # -- those who wait

    def delay(self, turn: Turn, delayed: DelayedResponse) -> None:
        """Answer a request at the end of the batch, or when user code has answered."""
        self.delayed.append(delayed)
        turn.open[self.id] = None

    def converge_before(self, turn: Turn, member_id: str) -> None:
        """Finish a member's delayed request before it sends the next one."""
        if any(each.member_id == member_id for each in self.delayed):
            self.converge(turn)
            self.refuse_delayed(turn, member_id, Code.COORDINATOR_NOT_AVAILABLE)

    def converge(self, turn: Turn) -> None:
        """Compute the epoch and the target that are due, and answer delayed requests."""
        raise NotImplementedError

    def refuse_delayed(self, turn: Turn, member_id: str, code: Code) -> None:
        """Refuse the delayed requests of a member."""
        for each in [one for one in self.delayed if one.member_id == member_id]:
            self.answer(turn, each.ticket, refusal(each, code))
            self.delayed.remove(each)
            self.members[member_id].joins = False

    def pending_replies(
        self,
    ) -> list[tuple[int, JoinGroupResponse | ConsumerGroupHeartbeatResponse]]:
        """The delayed requests and their refusals, for a group that is read again."""
        code = Code.COORDINATOR_NOT_AVAILABLE
        return [(each.ticket, refusal(each, code)) for each in self.delayed]

    def answer(self, turn: Turn, ticket: int, reply: Message) -> None:
        """Answer a request."""
        turn.out.replies.append((ticket, reply, (self.id,)))

    # -- checks

    def _refuses_join(self, turn: Turn, request: JoinRequest) -> Code:
        itself = (request.member_id, self.static.get(request.instance_id or ""))
        spoken = [
            {name for name, _ in each.classic.protocols}
            for each in self.members.values()
            if each.classic is not None and each.id not in itself
        ]
        common = [name for name, _ in request.protocols if all(name in each for each in spoken)]
        returns = request.instance_id is not None and request.instance_id in self.static
        here = request.member_id in self.members or returns
        if not here and len(self.members) >= turn.settings.consumer_max_size:
            return Code.GROUP_MAX_SIZE_REACHED
        if request.protocol_type != PROTOCOL_TYPE or not common:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        try:
            read_subscription(request.protocols[0][1])
        except ValueError:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if not request.member_id or (
            request.member_id in self.pending and request.instance_id is None
        ):
            return Code.NONE
        if request.instance_id is not None:
            known = self.static.get(request.instance_id)
            if known is not None and known != request.member_id:
                return Code.FENCED_INSTANCE_ID
            return Code.NONE if known is not None else Code.UNKNOWN_MEMBER_ID
        return Code.NONE if request.member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def _fenced(self, member_id: str, instance_id: str | None) -> Code:
        """The code for a request with these ids; NONE: they belong to one member."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is not None and known != member_id:
                return Code.FENCED_INSTANCE_ID
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def _refuses_sync(self, message: SyncGroupRequest) -> Code:
        code = self._fenced(message["member_id"], message.get("group_instance_id"))
        if code is not Code.NONE:
            return code
        member = self.members[message["member_id"]]
        if member.classic is None:
            return Code.UNKNOWN_MEMBER_ID
        protocol = member.classic.protocols[0][0]
        if message["generation_id"] != member.epoch:
            return Code.ILLEGAL_GENERATION
        subscription = message.get("protocol_type"), message.get("protocol_name")
        if subscription[0] not in (None, PROTOCOL_TYPE) or subscription[1] not in (None, protocol):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        behind = member.epoch < self.assignment_epoch and not member.revoking
        return Code.REBALANCE_IN_PROGRESS if behind else Code.NONE

    def _classic(self, member: ConsumerMember) -> ClassicProtocols:
        if member.classic is None:
            raise AssertionError(f"{member.id} speaks the consumer protocol")
        return member.classic

    def _forget_regex(self, turn: Turn, pattern: str) -> None:
        """Forget a regular expression that no member subscribes with."""
        used = any(each.regex == pattern for each in self.members.values())
        if pattern and not used and self.resolved.pop(pattern, None) is not None:
            self.write(turn, (records.REGEX, {"regular_expression": pattern}, None))


def refusal(
    delayed: DelayedResponse, code: Code
) -> JoinGroupResponse | ConsumerGroupHeartbeatResponse:
    """The refusal of a delayed request of either API."""
    if delayed.join is not None:
        return replies.join_refusal(code, delayed.member_id)
    return consumer_replies.heartbeat_refusal(code)
