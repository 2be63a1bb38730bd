"""The group coordinator: it hands each event to its group.

`handle_batch`, `tick` and `on_append_failed` return a GroupOutcome and do nothing else. Each call
publishes the snapshot of each changed group once, before all responses. A request whose step raises
is answered with UNKNOWN_SERVER_ERROR; `group_table` says what becomes of its group.
Time: `now_ms` never jumps. It is the wall clock at the start plus the time on a monotonic clock.
Threads: the policy thread.
Not promised: that a group which was never stored survives a restart.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from krust.coordinator import convert, replies
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.classic_member import Turn
from krust.coordinator.consumer import replies as consumer_replies
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.consumer.member import Heartbeat
from krust.coordinator.effects import StepFailedError, run_step
from krust.coordinator.events import GroupOutcome
from krust.coordinator.group_table import AnyGroup, GroupTable
from krust.coordinator.states import DEAD, EMPTY
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krust.coordinator.events import (
        Assigned,
        Event,
        GroupSettings,
        GroupsLoaded,
        GroupsUnloaded,
        LiveRecord,
        OffsetsExpired,
        Record,
        Reply,
        SessionExpired,
        TopicsChanged,
    )
    from krust.messages import Message
    from krust.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
    )
    from krust.messages.consumer_group_describe import (
        DescribedGroup as DescribedConsumerGroup,
    )
    from krust.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from krust.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
    from krust.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
    from krust.messages.group_metadata_value import GroupMetadataValue
    from krust.messages.join_group import JoinGroupRequest
    from krust.messages.leave_group import LeaveGroupRequest
    from krust.messages.list_groups import ListGroupsRequest
    from krust.messages.sync_group import SyncGroupRequest

TOPIC_CHANGES_PER_BATCH = 2
"""how many consumer groups look at changed topics in one batch; each may compute a new target"""


class GroupCoordinator(GroupTable):
    """Hands each event to its group."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        super().__init__(settings, new_id)
        self._groups_with_changed_topics: dict[str, None] = {}
        """consumer groups that have not looked yet at topics that changed"""

    def decides(self, api: str) -> bool:
        """Whether an event of this name is for a coordinator."""
        return api in _HANDLERS

    def handle(self, event: Event[Message], now_ms: int) -> GroupOutcome:
        """One event."""
        return self.handle_batch([event], now_ms)

    def handle_batch(
        self, events: Iterable[Event[Message]], now_ms: int, wall_ms: int | None = None
    ) -> GroupOutcome:
        """Decide events in their order, then what is due."""
        turn = Turn(self.settings, self._new_id, now_ms, GroupOutcome(), self._dirty)
        turn.jumped_ms = 0 if wall_ms is None else wall_ms - now_ms
        for event in events:
            self._handle_event(turn, event)
        self._on_time(turn)
        self._apply_topic_changes(turn)
        for group_id in list(turn.open):
            self._converge(turn, group_id)
        for group_id in list(self._dirty):
            self._publish(turn, group_id)
        self._dirty.clear()
        turn.out.wake_at_ms = turn.now_ms if self._groups_with_changed_topics else self._next_due()
        return turn.out

    def on_configs_changed(self, group_ids: Iterable[str]) -> None:
        """The settings of groups changed: the next GroupOutcome publishes their snapshots."""
        self._dirty |= dict.fromkeys(self._groups.keys() & set(group_ids))

    def tick(self, now_ms: int) -> GroupOutcome:
        """Decide what is due."""
        return self.handle_batch((), now_ms)

    def on_append_failed(
        self, group_ids: Iterable[str], now_ms: int, unsent: Sequence[Reply] = ()
    ) -> GroupOutcome:
        """Forget these groups: the core could not write their records, and reads them again.

        unsent   the replies of the failed GroupOutcome; those of these groups are refused here
        """
        failed = set(group_ids)
        waited = [each for each in unsent if not failed.isdisjoint(each[2])]
        out = GroupOutcome(replies=[replies.refuse_failed(each, failed) for each in waited])
        for group_id in sorted(failed):
            out.replies += self._unload(group_id, now_ms)
        out.wake_at_ms = self._next_due()
        return out

    def on_batch_failed(self, events: Iterable[Event[Message]], now_ms: int) -> GroupOutcome:
        """`handle_batch` raised for these events: every group is dropped and read again."""
        out = GroupOutcome(reload=list(self._groups))
        code = Code.UNKNOWN_SERVER_ERROR
        for group_id in out.reload:
            with suppress(Exception):
                owed = self._groups[group_id].pending_replies()
                out.replies += [(ticket, reply, ()) for ticket, reply in owed]
        answered = {ticket for ticket, _, _ in out.replies}
        asked = [each for each in events if each.ticket and each.ticket not in answered]
        out.replies += [(each.ticket, replies.refusal(each, code), ()) for each in asked]
        self._groups.clear()
        self._dirty.clear()
        self.budget.clear()
        for group_id in out.reload:
            self._schedule_reload(group_id, now_ms)
        out.wake_at_ms = self._next_due()
        return out

    def replay(
        self,
        group_id: str,
        value: GroupMetadataValue | None,
        now_ms: int,
        log: Sequence[LiveRecord] = (),
    ) -> None:
        """Take over a group from the log. The next GroupOutcome publishes it.

        value  the value of a classic group
        log    the records of a consumer group
        A group that is in memory stays: no write of it has failed, so it is at least as new.
        """
        if self._reloading.pop(group_id, None) is not None:
            del self._scheduled[group_id]
        if group_id in self._groups:
            return
        if value is not None:
            self._groups[group_id] = ClassicGroup.replayed(group_id, value, now_ms)
        elif log:
            self._groups[group_id] = ConsumerGroup.replayed(group_id, log, now_ms)
        self._dirty[group_id] = None

    # -- one event

    def _handle_event(self, turn: Turn, event: Event[Message]) -> None:
        """Handle an event. An exception costs only its group."""
        group_id = event.message.get("group_id", "")
        try:
            run_step(turn, lambda: self._dispatch(turn, event))
        except StepFailedError as failure:
            turn.out.lines.append(f"{event.api} of group {group_id!r} failed\n{failure}")
            self._reload_after_failure(turn, group_id, failure.undone, asked=event.ticket)
            if event.ticket:
                refusal = replies.refusal(event, Code.UNKNOWN_SERVER_ERROR)
                turn.out.replies.append((event.ticket, refusal, ()))

    def _dispatch(self, turn: Turn, event: Event[Message]) -> None:
        decide = _HANDLERS.get(event.api)
        if decide is None:
            raise KeyError(f"the coordinator has no handler for {event.api}")
        decide(self, turn, event)
        group_id = event.message.get("group_id", "")
        self._downgrade_if_due(turn, group_id)
        self._update_timer(group_id)

    # -- requests of members

    def _join(self, turn: Turn, event: Event[JoinGroupRequest]) -> None:
        message = event.message
        group_id, member_id = message["group_id"], message["member_id"]
        low, high = self.settings.min_session_timeout_ms, self.settings.max_session_timeout_ms
        group = self._groups.get(group_id)
        if not group_id:
            code = Code.INVALID_GROUP_ID
        elif group_id in self._reloading:
            code = Code.COORDINATOR_LOAD_IN_PROGRESS
        elif not low <= message["session_timeout_ms"] <= high:
            code = Code.INVALID_SESSION_TIMEOUT
        elif group is None and member_id:
            code = Code.UNKNOWN_MEMBER_ID
        elif not self.budget.has_room(group, message):
            code = Code.GROUP_MAX_SIZE_REACHED
        else:
            if group is None:
                group = self._groups[group_id] = ClassicGroup(group_id, turn.now_ms)
            elif isinstance(group, ConsumerGroup):
                group = self._for_classic(turn, group, message)
            group.join(turn, event)
            return
        turn.out.replies.append((event.ticket, replies.join_refusal(code, member_id), (group_id,)))

    def _sync(self, turn: Turn, event: Event[SyncGroupRequest]) -> None:
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        code = self._refusal(group_id)
        if code is Code.NONE and group is None:
            code = Code.UNKNOWN_MEMBER_ID
        elif group is not None and not self.budget.may_assign(group, event.message):
            code = Code.UNKNOWN_SERVER_ERROR  # as Kafka, where a group's record is too large
        if group is not None and code is Code.NONE:
            group.sync(turn, event)
        else:
            turn.out.replies.append((event.ticket, replies.sync_refusal(code), (group_id,)))

    def _leave(self, turn: Turn, event: Event[LeaveGroupRequest]) -> None:
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        code = self._refusal(group_id)
        if code is not Code.NONE:
            turn.out.replies.append((event.ticket, replies.refusal(event, code), (group_id,)))
        elif group is None:
            leaving = event.message["members"] if event.version >= 3 else [None]
            reply = replies.leave_response(event, [Code.UNKNOWN_MEMBER_ID] * len(leaving))
            turn.out.replies.append((event.ticket, reply, (group_id,)))
        else:
            group.leave(turn, event)

    def _refusal(self, group_id: str) -> Code:
        """Why no group of this name can serve a request; NONE: nothing forbids it."""
        if not group_id:
            return Code.INVALID_GROUP_ID
        if group_id in self._reloading:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        return Code.NONE

    def _heartbeat(self, turn: Turn, event: Event[ConsumerGroupHeartbeatRequest]) -> None:
        """ConsumerGroupHeartbeat."""
        group_id = event.message["group_id"]
        heartbeat = Heartbeat.of(event)
        refusal = self._heartbeat_refusal(group_id, heartbeat)
        group = self._groups.get(group_id)
        if refusal is None and not isinstance(group, ConsumerGroup):
            try:
                new = (
                    ConsumerGroup(group_id, turn.now_ms)
                    if group is None
                    else convert.to_consumer_group(group, self.settings, turn.now_ms)
                )
            except ValueError as error:
                refusal = Code.GROUP_ID_NOT_FOUND, str(error)
            else:
                refusal = new.refusal_of(self.settings, heartbeat)
                if refusal is None:
                    if group is not None:
                        convert.upgrade(turn, group, new)
                    group = self._groups[group_id] = new
        if refusal is None and isinstance(group, ConsumerGroup):
            group.heartbeat(turn, heartbeat)
        elif refusal is not None:
            reply = consumer_replies.heartbeat_refusal(*refusal)
            turn.out.replies.append((event.ticket, reply, (group_id,)))

    def _heartbeat_refusal(self, group_id: str, heartbeat: Heartbeat) -> tuple[Code, str] | None:
        """Why a heartbeat is refused, whatever the state of its group; None: it is not."""
        group = self._groups.get(group_id)
        if not self.settings.serves_consumer_protocol:
            return Code.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled."
        if not group_id:
            return Code.INVALID_REQUEST, "GroupId can't be empty."
        invalid = heartbeat.invalid()
        if invalid is not None:
            return Code.INVALID_REQUEST, invalid
        if heartbeat.assignor is not None and heartbeat.assignor not in self.settings.assignors:
            return consumer_replies.unsupported_assignor(
                heartbeat.assignor, self.settings.assignors
            )
        if group_id in self._reloading:
            return Code.COORDINATOR_LOAD_IN_PROGRESS, "The group is being read."
        if heartbeat.epoch != 0 and not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            who = "Consumer group" if group is None and heartbeat.epoch > 0 else "Group"
            return Code.GROUP_ID_NOT_FOUND, f"{who} {group_id} {what}."
        if not self.budget.has_room_for(group, heartbeat):
            return Code.GROUP_MAX_SIZE_REACHED, "Groups have no room for this subscription."
        return None

    def _for_classic(self, turn: Turn, group: ConsumerGroup, message: JoinGroupRequest) -> AnyGroup:
        """The group that a classic member joins. A consumer group without members of the consumer
        protocol becomes a classic group.
        """
        if message["member_id"]:
            return group
        holder = group.members.get(group.static.get(message.get("group_instance_id") or "", ""))
        if holder is not None and holder.classic is None and self.settings.downgrades:
            only_member = len(group.members) == 1 or group.only_classic(without=holder.id)
            if only_member:
                group.drop_member(turn, holder, f"{holder.id} is back as a classic member")
        if group.members and not self._is_classic(group):
            return group
        return self._downgrade(turn, group)

    # -- notifications of the core

    def _on_topics_changed(self, turn: Turn, event: Event[TopicsChanged]) -> None:
        names = set(event.message["names"])
        for group in list(self._groups.values()):
            if isinstance(group, ConsumerGroup) and (
                group.resolved or not names.isdisjoint(group.subscribed())
            ):
                self._groups_with_changed_topics[group.id] = None

    def _apply_topic_changes(self, turn: Turn) -> None:
        """Have some groups look at the topics that changed. The other groups follow in the next
        batches.
        """
        for group_id in list(self._groups_with_changed_topics)[:TOPIC_CHANGES_PER_BATCH]:
            del self._groups_with_changed_topics[group_id]
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._step(turn, group, "topics changed", group.topics_changed)

    def _on_session_expired(self, turn: Turn, event: Event[SessionExpired]) -> None:
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        if group is not None:
            group.expire(turn, event.message["members"])
        elif group_id not in self._reloading:
            turn.dirty[group_id] = None

    def _on_assigned(self, turn: Turn, event: Event[Assigned[Any]]) -> None:
        group = self._groups.get(event.message["group_id"])
        if group is not None:
            group.on_assigned(turn, event.message)

    def _on_groups_loaded(self, turn: Turn, event: Event[GroupsLoaded]) -> None:
        values = {each["group_id"]: each["value"] for each in event.message["groups"]}
        logs: dict[str, list[LiveRecord]] = {}
        for group_id, kind, key, value in event.message.get("records", ()):
            logs.setdefault(group_id, []).append((kind, key, value))
        for group_id in values | logs:
            known = group_id in self._groups
            try:
                log = logs.get(group_id, ())
                self.replay(group_id, values.get(group_id), turn.now_ms, log)
                group = self._groups.get(group_id)
                if group is not None and not known:
                    group.refresh(turn)
            except Exception:
                line = f"group {group_id!r} cannot be read\n{traceback.format_exc()}"
                turn.out.lines.append(line)
                # The next member creates a new group. The core must not wait for this one.
                self._groups.pop(group_id, None)
                self._dirty[group_id] = None
            self._update_timer(group_id)

    def _on_groups_unloaded(self, turn: Turn, event: Event[GroupsUnloaded]) -> None:
        """Forget groups that another broker coordinates now, or that the core is about to load."""
        for group_id in event.message["groups"]:
            turn.dirty[group_id] = None
            turn.open.pop(group_id, None)
            if self._reloading.pop(group_id, None) is not None:
                del self._scheduled[group_id]
            group = self._groups.get(group_id)
            if group is not None:
                owed = group.pending_replies()
                turn.out.replies += [(ticket, reply, ()) for ticket, reply in owed]
                self._forget(group)

    def _on_offsets_expired(self, turn: Turn, event: Event[OffsetsExpired]) -> None:
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        if group is not None and group.state == EMPTY and not group.pending:
            turn.out.records.append((group_id, _tombstones(group)))
            self._forget(group)
            turn.dirty[group_id] = None

    # -- requests about groups

    def _describe(self, turn: Turn, event: Event[DescribeGroupsRequest]) -> None:
        asked = event.message["groups"]
        groups = [self._described(turn, event, group_id) for group_id in asked]
        reply = replies.describe_response(groups)
        turn.out.replies.append((event.ticket, reply, tuple(asked)))

    def _described(
        self, turn: Turn, event: Event[DescribeGroupsRequest], group_id: str
    ) -> DescribedGroup:
        """One group of DescribeGroups. Before v6 an unknown group is Dead, without an error."""
        group = self._groups.get(group_id)
        if group_id in self._reloading:
            return replies.group_description(group_id, "", Code.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(group, ClassicGroup):
            try:
                shown = group.describe()
                if event.message.get("krust_history"):
                    shown["krust_history"] = group.history.as_message()
            except Exception:
                turn.out.lines.append(f"describing {group_id!r} failed\n{traceback.format_exc()}")
                self._reload_after_failure(turn, group_id, ())
                return replies.group_description(group_id, "", Code.UNKNOWN_SERVER_ERROR)
        elif group is None and self.settings.has_offsets(group_id):
            shown = replies.group_description(group_id, EMPTY)
        elif event.version >= 6:
            why = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
            shown = replies.group_description(group_id, DEAD, Code.GROUP_ID_NOT_FOUND, why)
        else:
            shown = replies.group_description(group_id, DEAD)
        if event.message.get("include_authorized_operations"):
            shown["authorized_operations"] = replies.OPERATIONS
        return shown

    def _describe_consumer(self, turn: Turn, event: Event[ConsumerGroupDescribeRequest]) -> None:
        asked = event.message["group_ids"]
        groups = [self._consumer_described(event, group_id) for group_id in asked]
        reply = replies.consumer_describe_response(groups)
        turn.out.replies.append((event.ticket, reply, tuple(asked)))

    def _consumer_described(
        self, event: Event[ConsumerGroupDescribeRequest], group_id: str
    ) -> DescribedConsumerGroup:
        """One group of ConsumerGroupDescribe."""
        group = self._groups.get(group_id)
        if not self.settings.serves_consumer_protocol:
            return consumer_replies.consumer_group_description(group_id, Code.UNSUPPORTED_VERSION)
        if not group_id:
            return consumer_replies.consumer_group_description(group_id, Code.INVALID_GROUP_ID)
        if group_id in self._reloading:
            return consumer_replies.consumer_group_description(
                group_id, Code.COORDINATOR_LOAD_IN_PROGRESS
            )
        if not isinstance(group, ConsumerGroup):
            there = group is not None or self.settings.has_offsets(group_id)
            why = f"Group {group_id} {'is not a consumer group' if there else 'not found'}."
            return consumer_replies.consumer_group_description(
                group_id, Code.GROUP_ID_NOT_FOUND, why
            )
        shown = group.describe(self.settings)
        if event.message.get("krust_history"):
            shown["krust_history"] = group.history.as_message()
        if event.message.get("include_authorized_operations"):
            shown["authorized_operations"] = replies.OPERATIONS
        return shown

    def _list(self, turn: Turn, event: Event[ListGroupsRequest]) -> None:
        found = [
            (each.id, each.protocol_type, each.state, each.kind) for each in self._groups.values()
        ]
        known = self._groups.keys() | self._reloading.keys()
        unknown = set(self.settings.groups_with_offsets()) - known
        found += [(group_id, "", EMPTY, ClassicGroup.kind) for group_id in sorted(unknown)]
        turn.out.replies.append((event.ticket, replies.list_response(event, found), ()))

    def _delete(self, turn: Turn, event: Event[DeleteGroupsRequest]) -> None:
        asked = event.message["groups_names"]
        results: list[DeletableGroupResult] = [
            {"group_id": group_id, "error_code": self._delete_one(turn, group_id)}
            for group_id in asked
        ]
        reply = replies.delete_response(results)
        turn.out.replies.append((event.ticket, reply, tuple(asked)))

    def _delete_one(self, turn: Turn, group_id: str) -> Code:
        group = self._groups.get(group_id)
        if group_id in self._reloading:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        if group is None and not self.settings.has_offsets(group_id):
            return Code.GROUP_ID_NOT_FOUND
        if group is not None and group.state != EMPTY:
            return Code.NON_EMPTY_GROUP
        gone = _tombstones(group) if group is not None else None
        turn.out.records += [(group_id, "drop_offsets"), (group_id, gone)]
        if group is not None:
            self._forget(group)
        turn.dirty[group_id] = None
        return Code.NONE


_HANDLERS: dict[str, Callable[[GroupCoordinator, Turn, Event[Any]], None]] = {
    "JoinGroup": GroupCoordinator._join,
    "SyncGroup": GroupCoordinator._sync,
    "LeaveGroup": GroupCoordinator._leave,
    "ConsumerGroupHeartbeat": GroupCoordinator._heartbeat,
    "DescribeGroups": GroupCoordinator._describe,
    "ConsumerGroupDescribe": GroupCoordinator._describe_consumer,
    "ListGroups": GroupCoordinator._list,
    "DeleteGroups": GroupCoordinator._delete,
    "SessionExpired": GroupCoordinator._on_session_expired,
    "Assigned": GroupCoordinator._on_assigned,
    "GroupsLoaded": GroupCoordinator._on_groups_loaded,
    "GroupsUnloaded": GroupCoordinator._on_groups_unloaded,
    "OffsetsExpired": GroupCoordinator._on_offsets_expired,
    "TopicsChanged": GroupCoordinator._on_topics_changed,
}
"""Functions, because bound methods in an instance would make a cycle and keep a stopped broker."""


def _tombstones(group: AnyGroup) -> list[Record] | None:
    """The records that remove a group from the log."""
    return group.tombstones() if isinstance(group, ConsumerGroup) else None
