"""The group coordinator: it hands each event to its group, runs timers, publishes snapshots.

`handle_batch`, `tick` and `on_append_failed` return an Outcome and do nothing else. Each call
publishes the snapshot of each changed group once, before all responses. An exception inside a group
affects that group alone: the effects of the event are rolled back, its request is answered with
UNKNOWN_SERVER_ERROR, waiting requests with COORDINATOR_NOT_AVAILABLE, and the group is read again
from the log.
Time: `now_ms` must not jump. It is the wall clock at the start plus the time on a monotonic clock.
Threads: the policy thread.
Not promised: a group that was never stored is unknown after a restart.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from krust.coordinator import convert, replies
from krust.coordinator.budget import Budget
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.classic_member import Turn
from krust.coordinator.consumer import replies as consumer_replies
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.consumer.member import Heartbeat
from krust.coordinator.effects import StepFailedError, roll_back, run_step
from krust.coordinator.events import Outcome
from krust.coordinator.states import DEAD, EMPTY
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from krust.coordinator.events import Event, GroupSettings, Message, Record, Reply
    from krust.coordinator.history import Rebalance

RELOAD_RETRY_MS = 10_000
"""A group that was dropped and not replayed for so long is asked for again."""
TOPIC_CHANGES_PER_BATCH = 2
"""consumer groups that look in one batch at topics that changed; each may assign anew"""
AnyGroup = ClassicGroup | ConsumerGroup
Live = tuple[int, "Message", "Message"]
"""a record of a consumer group that is not a tombstone"""


class GroupCoordinator:
    """All groups of this broker. `new_id`: a fresh unique text, for member ids."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self.settings = settings
        self._new_id = new_id
        self._groups: dict[str, AnyGroup] = {}
        self._reloading: dict[str, int] = {}
        """dropped groups, and when to ask for them again"""
        self.budget = Budget(settings)
        self._groups_with_changed_topics: dict[str, None] = {}
        """consumer groups that have not looked yet at topics that changed"""
        self._timers: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}
        self._dirty: dict[str, None] = {}

    def decides(self, api: str) -> bool:
        """Whether an event of this name is for a coordinator."""
        return api in _HANDLERS

    def handle(self, event: Event, now_ms: int) -> Outcome:
        """One event."""
        return self.handle_batch([event], now_ms)

    def handle_batch(
        self, events: Iterable[Event], now_ms: int, wall_ms: int | None = None
    ) -> Outcome:
        """Events in the order they came, then what is due."""
        turn = Turn(self.settings, self._new_id, now_ms, Outcome(), self._dirty)
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
        """Settings of groups are others; the next Outcome says so to the core."""
        self._dirty |= dict.fromkeys(self._groups.keys() & set(group_ids))

    def tick(self, now_ms: int) -> Outcome:
        """What is due."""
        return self.handle_batch((), now_ms)

    def on_append_failed(
        self, group_ids: Iterable[str], now_ms: int, unsent: Sequence[Reply] = ()
    ) -> Outcome:
        """The core could not write for these groups, and reads them again: forget them.

        unsent   the replies of the failed Outcome; those of these groups are refused here
        """
        on_append_failed = set(group_ids)
        waited = [each for each in unsent if not on_append_failed.isdisjoint(each[2])]
        out = Outcome(replies=[replies.without(each, on_append_failed) for each in waited])
        for group_id in sorted(on_append_failed):
            out.replies += self._unload(group_id, now_ms)
        out.wake_at_ms = self._next_due()
        return out

    def on_batch_failed(self, events: Iterable[Event], now_ms: int) -> Outcome:
        """`handle_batch` raised for these: no group can be trusted, each is read again."""
        out = Outcome(reload=list(self._groups))
        code = Code.UNKNOWN_SERVER_ERROR
        for group_id in out.reload:
            with suppress(Exception):
                owed = self._groups[group_id].pending_replies()
                out.replies += [(ticket, reply, ()) for ticket, reply in owed]
        answered = {ticket for ticket, _, _ in out.replies}
        asked = [each for each in events if each.ticket and each.ticket not in answered]
        out.replies += [(each.ticket, replies.refused(each, code), ()) for each in asked]
        self._groups.clear()
        self._dirty.clear()
        self.budget.clear()
        for group_id in out.reload:
            self._schedule_reload(group_id, now_ms)
        out.wake_at_ms = self._next_due()
        return out

    def replay(
        self, group_id: str, value: Message | None, now_ms: int, log: Sequence[Live] = ()
    ) -> None:
        """Take a group from the log; the next Outcome publishes it.

        value  of a classic group
        log    of a consumer group
        A group that is here stays: it has had no failed write, so it is at least as new.
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

    def history(self, group_id: str) -> list[Rebalance]:
        """The last rebalances of a group, oldest first."""
        group = self._groups.get(group_id)
        return group.history.rebalances() if group is not None else []

    # -- one event

    def _handle_event(self, turn: Turn, event: Event) -> None:
        """Handle an event; an exception costs no more than its group."""
        group_id = event.message.get("group_id", "")
        try:
            run_step(turn, lambda: self._dispatch(turn, event))
        except StepFailedError as failure:
            turn.out.lines.append(f"{event.api} of group {group_id!r} failed\n{failure}")
            self._reload_after_failure(turn, group_id, failure.undone, asked=event.ticket)
            if event.ticket:
                refusal = replies.refused(event, Code.UNKNOWN_SERVER_ERROR)
                turn.out.replies.append((event.ticket, refusal, ()))

    def _dispatch(self, turn: Turn, event: Event) -> None:
        decide = _HANDLERS.get(event.api)
        if decide is None:
            raise KeyError(f"nobody decides {event.api}")
        decide(self, turn, event)
        group_id = event.message.get("group_id", "")
        self._downgrade_if_due(turn, group_id)
        self._update_timer(group_id)

    def _join(self, turn: Turn, event: Event) -> None:
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
        turn.out.replies.append((event.ticket, replies.join(code, member_id), (group_id,)))

    def _sync_or_leave(self, turn: Turn, event: Event) -> None:
        """SyncGroup and LeaveGroup."""
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        if not group_id:
            code = Code.INVALID_GROUP_ID
        elif group_id in self._reloading:
            code = Code.COORDINATOR_LOAD_IN_PROGRESS
        elif group is None:
            code = Code.UNKNOWN_MEMBER_ID
            if event.api == "LeaveGroup" and event.version >= 3:
                reply = replies.left(event, [code] * len(event.message["members"]))
                turn.out.replies.append((event.ticket, reply, (group_id,)))
                return
        elif event.api == "SyncGroup" and not self.budget.may_assign(group, event.message):
            code = Code.UNKNOWN_SERVER_ERROR  # as Kafka, where a group's record is too large
        else:
            (group.sync if event.api == "SyncGroup" else group.leave)(turn, event)
            return
        turn.out.replies.append((event.ticket, replies.refused(event, code), (group_id,)))

    def _heartbeat(self, turn: Turn, event: Event) -> None:
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
                    else convert.upgraded(group, self.settings, turn.now_ms)
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
            reply = consumer_replies.refused(*refusal)
            turn.out.replies.append((event.ticket, reply, (group_id,)))

    def _heartbeat_refusal(self, group_id: str, heartbeat: Heartbeat) -> tuple[Code, str] | None:
        """What is known to be wrong before the group is looked at."""
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

    def _for_classic(self, turn: Turn, group: ConsumerGroup, message: Message) -> AnyGroup:
        """The group that a classic member joins: a consumer group without consumer members becomes
        a classic one.
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

    def _is_classic(self, group: ConsumerGroup) -> bool:
        return self.settings.downgrades and group.only_classic()

    def _downgrade(self, turn: Turn, group: ConsumerGroup) -> ClassicGroup:
        why = "the last member of the consumer protocol has gone"
        new = self._groups[group.id] = convert.downgrade(turn, group, why)
        turn.open.pop(group.id, None)
        return new

    def _downgrade_if_due(self, turn: Turn, group_id: str) -> None:
        """A consumer group that only classic members are left in."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and self._is_classic(group):
            self._downgrade(turn, group)

    # -- news of the core

    def _on_topics_changed(self, turn: Turn, event: Event) -> None:
        names = set(event.message["names"])
        for group in list(self._groups.values()):
            if isinstance(group, ConsumerGroup) and (
                group.resolved or not names.isdisjoint(group.subscribed())
            ):
                self._groups_with_changed_topics[group.id] = None

    def _apply_topic_changes(self, turn: Turn) -> None:
        """Have some groups look at topics that changed; the others do so in the next batches."""
        for group_id in list(self._groups_with_changed_topics)[:TOPIC_CHANGES_PER_BATCH]:
            del self._groups_with_changed_topics[group_id]
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._step(turn, group, "topics changed", group.topics_changed)

    def _on_session_expired(self, turn: Turn, event: Event) -> None:
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        if group is not None:
            group.expire(turn, event.message["members"])
        elif group_id not in self._reloading:
            turn.dirty[group_id] = None

    def _on_assigned(self, turn: Turn, event: Event) -> None:
        group = self._groups.get(event.message["group_id"])
        if group is not None:
            group.on_assigned(turn, event.message)

    def _on_groups_loaded(self, turn: Turn, event: Event) -> None:
        values = {each["group_id"]: each["value"] for each in event.message["groups"]}
        logs: dict[str, list[Live]] = {}
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
                # It begins anew with its next member; in the core it must not stay on its way.
                self._groups.pop(group_id, None)
                self._dirty[group_id] = None
            self._update_timer(group_id)

    def _on_groups_unloaded(self, turn: Turn, event: Event) -> None:
        """Another broker coordinates these groups; or this one, when it has read them anew."""
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

    def _on_offsets_expired(self, turn: Turn, event: Event) -> None:
        group_id = event.message["group_id"]
        group = self._groups.get(group_id)
        if group is not None and group.state == EMPTY and not group.pending:
            turn.out.records.append((group_id, _tombstones(group)))
            self._forget(group)
            turn.dirty[group_id] = None

    # -- groups as such

    def _describe(self, turn: Turn, event: Event) -> None:
        asked = event.message["groups"]
        groups = [self._described(turn, event, group_id) for group_id in asked]
        reply = {"throttle_time_ms": 0, "groups": groups}
        turn.out.replies.append((event.ticket, reply, tuple(asked)))

    def _described(self, turn: Turn, event: Event, group_id: str) -> Message:
        """One group of DescribeGroups. Before v6 an unknown one is Dead, no error."""
        group = self._groups.get(group_id)
        if group_id in self._reloading:
            return replies.described(group_id, "", Code.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(group, ClassicGroup):
            try:
                shown = group.describe()
                if event.message.get("krust_history"):
                    shown["krust_history"] = group.history.shown()
            except Exception:
                turn.out.lines.append(f"describing {group_id!r} failed\n{traceback.format_exc()}")
                self._reload_after_failure(turn, group_id, ())
                return replies.described(group_id, "", Code.UNKNOWN_SERVER_ERROR)
        elif group is None and self.settings.has_offsets(group_id):
            shown = replies.described(group_id, EMPTY)
        elif event.version >= 6:
            why = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
            shown = replies.described(group_id, DEAD, Code.GROUP_ID_NOT_FOUND, why)
        else:
            shown = replies.described(group_id, DEAD)
        if event.message.get("include_authorized_operations"):
            shown["authorized_operations"] = replies.OPERATIONS
        return shown

    def _describe_consumer(self, turn: Turn, event: Event) -> None:
        asked = event.message["group_ids"]
        groups = [self._consumer_described(event, group_id) for group_id in asked]
        reply = {"throttle_time_ms": 0, "groups": groups}
        turn.out.replies.append((event.ticket, reply, tuple(asked)))

    def _consumer_described(self, event: Event, group_id: str) -> Message:
        """One group of ConsumerGroupDescribe."""
        group = self._groups.get(group_id)
        if not self.settings.serves_consumer_protocol:
            return consumer_replies.described(group_id, Code.UNSUPPORTED_VERSION)
        if not group_id:
            return consumer_replies.described(group_id, Code.INVALID_GROUP_ID)
        if group_id in self._reloading:
            return consumer_replies.described(group_id, Code.COORDINATOR_LOAD_IN_PROGRESS)
        if not isinstance(group, ConsumerGroup):
            there = group is not None or self.settings.has_offsets(group_id)
            why = f"Group {group_id} {'is not a consumer group' if there else 'not found'}."
            return consumer_replies.described(group_id, Code.GROUP_ID_NOT_FOUND, why)
        shown = group.describe(self.settings)
        if event.message.get("krust_history"):
            shown["krust_history"] = group.history.shown()
        if event.message.get("include_authorized_operations"):
            shown["authorized_operations"] = replies.OPERATIONS
        return shown

    def _list(self, turn: Turn, event: Event) -> None:
        found = [
            (each.id, each.protocol_type, each.state, each.kind) for each in self._groups.values()
        ]
        known = self._groups.keys() | self._reloading.keys()
        unknown = set(self.settings.groups_with_offsets()) - known
        found += [(group_id, "", EMPTY, ClassicGroup.kind) for group_id in sorted(unknown)]
        turn.out.replies.append((event.ticket, replies.listed(event, found), ()))

    def _delete(self, turn: Turn, event: Event) -> None:
        asked = event.message["groups_names"]
        results = [
            {"group_id": group_id, "error_code": self._delete_one(turn, group_id)}
            for group_id in asked
        ]
        reply = {"throttle_time_ms": 0, "results": results}
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

    # -- bookkeeping

    def _update_timer(self, group_id: str) -> None:
        """After each step of a group: its next timer; one that came to nothing is forgotten."""
        group = self._groups.get(group_id)
        if group is None:
            return
        self.budget.count(group)
        if group.is_unused():
            self._forget(group)
            return
        due = group.due()
        if due is not None and self._scheduled.get(group_id) != due:
            self._scheduled[group_id] = due
            heappush(self._timers, (due, group_id))
        elif due is None:
            self._scheduled.pop(group_id, None)

    def _on_time(self, turn: Turn) -> None:
        """Groups whose time has come, earliest first."""
        while (due := self._next_due()) is not None and due <= turn.now_ms:
            _, group_id = heappop(self._timers)
            del self._scheduled[group_id]
            if group_id in self._reloading:
                turn.out.reload.append(group_id)
                self._schedule_reload(group_id, turn.now_ms)
                continue
            group = self._groups[group_id]
            self._step(turn, group, "a deadline", group.on_time)

    def _converge(self, turn: Turn, group_id: str) -> None:
        """Bring a consumer group as far as it can come in this batch."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._step(turn, group, "converging", group.converge)

    def _step(self, turn: Turn, group: AnyGroup, what: str, step: Callable[[Turn], None]) -> None:
        """A step of a group that no request asks for."""

        def whole() -> None:
            step(turn)
            self._downgrade_if_due(turn, group.id)

        try:
            run_step(turn, whole)
            self._update_timer(group.id)
        except StepFailedError as failure:
            turn.out.lines.append(f"{what} of group {group.id!r} failed\n{failure}")
            self._reload_after_failure(
                turn, group.id, failure.undone + roll_back(turn.out, group.id)
            )

    def _next_due(self) -> int | None:
        """The earliest timer that still holds."""
        while self._timers:
            due, group_id = self._timers[0]
            if self._scheduled.get(group_id) == due:
                return due
            heappop(self._timers)
        return None

    def _publish(self, turn: Turn, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            if group_id not in self._reloading:
                turn.out.snapshots.append((group_id, None))
            return
        try:
            group.publish(turn)
        except Exception:
            line = f"the snapshot of group {group_id!r} failed\n{traceback.format_exc()}"
            turn.out.lines.append(line)
            self._reload_after_failure(turn, group_id, roll_back(turn.out, group_id))

    def _forget(self, group: AnyGroup) -> None:
        self.budget.forget(group.id)
        group.state = DEAD
        del self._groups[group.id]
        self._scheduled.pop(group.id, None)

    def _unload(self, group_id: str, now_ms: int) -> list[Reply]:
        """Forget a group until the core has read it again; the answers that it owes."""
        group = self._groups.get(group_id)
        owed: list[Reply] = []
        if group is not None:
            owed = [(ticket, reply, ()) for ticket, reply in group.pending_replies()]
            self._forget(group)
        self._schedule_reload(group_id, now_ms)
        return owed

    def _schedule_reload(self, group_id: str, now_ms: int) -> None:
        due = now_ms + RELOAD_RETRY_MS
        self._reloading[group_id] = self._scheduled[group_id] = due
        heappush(self._timers, (due, group_id))

    def _reload_after_failure(
        self,
        turn: Turn,
        group_id: str,
        undone: Sequence[Reply],
        asked: int = 0,
    ) -> None:
        """A step of a group failed halfway: nothing of the group can be trusted."""
        owed = [replies.without(each, {group_id}) for each in undone]
        if group_id in self._groups:
            owed += self._unload(group_id, turn.now_ms)
            turn.out.reload.append(group_id)
        turn.out.replies += {each[0]: each for each in owed if each[0] != asked}.values()


_HANDLERS: dict[str, Callable[[GroupCoordinator, Turn, Event], None]] = {
    "JoinGroup": GroupCoordinator._join,
    "SyncGroup": GroupCoordinator._sync_or_leave,
    "LeaveGroup": GroupCoordinator._sync_or_leave,
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
"""Bound methods in a table of its own would keep a stopped broker alive: a cycle."""


def _tombstones(group: AnyGroup) -> list[Record] | None:
    """What takes a group out of the log."""
    return group.tombstones() if isinstance(group, ConsumerGroup) else None
