"""The groups of one broker: their timers, their snapshots, and what happens when a step fails.

A step is what one event or one deadline does to one group. An exception in a step affects that
group alone: the effects of the step are rolled back, its waiting requests are answered with
COORDINATOR_NOT_AVAILABLE, and the group is dropped until the core has read it again from the log.
Invariant: a group has at most one timer that holds (`_scheduled`); others in `_timers` are skipped.
Threads: the policy thread.
"""

from __future__ import annotations

import traceback
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from krust.coordinator import convert, replies
from krust.coordinator.budget import Budget
from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.effects import StepFailedError, roll_back, run_step
from krust.coordinator.states import DEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.events import GroupSettings, Reply
    from krust.coordinator.history import RebalanceRecord

RELOAD_RETRY_MS = 10_000
"""A group that was dropped and not replayed for so long is asked for again."""
AnyGroup = ClassicGroup | ConsumerGroup


class GroupTable:
    """All groups of this broker. `new_id` returns a unique text for a member id."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self.settings = settings
        self._new_id = new_id
        self._groups: dict[str, AnyGroup] = {}
        self._reloading: dict[str, int] = {}
        """dropped groups -> when to ask for them again"""
        self.budget = Budget(settings)
        self._timers: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        """groups whose snapshot has to be published"""

    def history(self, group_id: str) -> list[RebalanceRecord]:
        """The last rebalances of a group, oldest first."""
        group = self._groups.get(group_id)
        return group.history.rebalances() if group is not None else []

    # -- steps

    def _step(self, turn: Turn, group: AnyGroup, what: str, step: Callable[[Turn], None]) -> None:
        """Run a step that belongs to no request."""

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

    def _converge(self, turn: Turn, group_id: str) -> None:
        """Let a consumer group converge."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._step(turn, group, "converging", group.converge)

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

    def _is_classic(self, group: ConsumerGroup) -> bool:
        return self.settings.downgrades and group.only_classic()

    def _downgrade(self, turn: Turn, group: ConsumerGroup) -> ClassicGroup:
        why = "the last member of the consumer protocol has gone"
        new = self._groups[group.id] = convert.downgrade(turn, group, why)
        turn.open.pop(group.id, None)
        return new

    def _downgrade_if_due(self, turn: Turn, group_id: str) -> None:
        """Make a consumer group a classic group if only classic members are left."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and self._is_classic(group):
            self._downgrade(turn, group)

    # -- timers

    def _update_timer(self, group_id: str) -> None:
        """Set a group's next timer after a step. Forget a group without members and records."""
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
        """Run the steps of groups that are due, earliest first."""
        while (due := self._next_due()) is not None and due <= turn.now_ms:
            _, group_id = heappop(self._timers)
            del self._scheduled[group_id]
            if group_id in self._reloading:
                turn.out.reload.append(group_id)
                self._schedule_reload(group_id, turn.now_ms)
                continue
            group = self._groups[group_id]
            self._step(turn, group, "a deadline", group.on_time)

    def _next_due(self) -> int | None:
        """The time of the earliest timer that holds."""
        while self._timers:
            due, group_id = self._timers[0]
            if self._scheduled.get(group_id) == due:
                return due
            heappop(self._timers)
        return None

    # -- groups that are dropped

    def _forget(self, group: AnyGroup) -> None:
        self.budget.forget(group.id)
        group.state = DEAD
        del self._groups[group.id]
        self._scheduled.pop(group.id, None)

    def _unload(self, group_id: str, now_ms: int) -> list[Reply]:
        """Forget a group until the core has read it again. Returns the refusals of its waiting
        requests.
        """
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
        """Drop a group whose step failed halfway, because its state cannot be trusted."""
        owed = [replies.refuse_failed(each, {group_id}) for each in undone]
        if group_id in self._groups:
            owed += self._unload(group_id, turn.now_ms)
            turn.out.reload.append(group_id)
        turn.out.replies += {each[0]: each for each in owed if each[0] != asked}.values()
