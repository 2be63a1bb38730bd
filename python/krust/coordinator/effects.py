"""Roll back the effects of a step of a group when the step raises.

A GroupOutcome collects the effects of many groups. A failed step leaves no effect in it.
Only effects are rolled back, not the state of the group: the group is read again from the log.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.coordinator.classic_member import Turn
    from krust.coordinator.events import GroupOutcome, Reply


class StepFailedError(Exception):
    """A step raised; its effects are rolled back."""

    def __init__(self, undone: list[Reply]) -> None:
        super().__init__(traceback.format_exc())
        self.undone = undone
        """the replies of the step"""


def run_step(turn: Turn, step: Callable[[], None]) -> None:
    """Run a step. If it raises, remove its records, replies and calls."""
    out = turn.out
    records, answers, calls = len(out.records), len(out.replies), len(out.calls)
    try:
        step()
    except Exception:
        undone = out.replies[answers:]
        del out.records[records:], out.replies[answers:], out.calls[calls:]
        raise StepFailedError(undone) from None


def roll_back(out: GroupOutcome, group_id: str) -> list[Reply]:
    """Remove all effects of a group from a GroupOutcome; returns the removed responses."""
    undone = [each for each in out.replies if group_id in each[2]]
    out.records[:] = [each for each in out.records if each[0] != group_id]
    out.snapshots[:] = [each for each in out.snapshots if each[0] != group_id]
    out.replies[:] = [each for each in out.replies if group_id not in each[2]]
    out.calls[:] = [each for each in out.calls if each.group_id != group_id]
    return undone
