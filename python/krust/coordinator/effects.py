"""What a step of a group has said so far, taken back when the step fails.

An Outcome collects the words of many groups; one that fails must leave none of its own in it.
Not promised: the group's own state; whoever fails is read again from the log.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.coordinator.member import Turn
    from krust.coordinator.outcome import Outcome, Reply


class FailedError(Exception):
    """A step raised; its effects are taken back."""

    def __init__(self, undone: list[Reply]) -> None:
        super().__init__(traceback.format_exc())
        self.undone = undone
        """the answers it had given"""


def with_effects(turn: Turn, step: Callable[[], None]) -> None:
    """Run a step; if it raises, take its records, answers and calls back."""
    out = turn.out
    records, answers, calls = len(out.records), len(out.replies), len(out.calls)
    try:
        step()
    except Exception:
        undone = out.replies[answers:]
        del out.records[records:], out.replies[answers:], out.calls[calls:]
        raise FailedError(undone) from None


def take_back(out: Outcome, group_id: str) -> list[Reply]:
    """Take all that an Outcome says of a group out of it; the answers among that."""
    undone = [each for each in out.replies if group_id in each[2]]
    out.records[:] = [each for each in out.records if each[0] != group_id]
    out.fences[:] = [each for each in out.fences if each[0] != group_id]
    out.replies[:] = [each for each in out.replies if group_id not in each[2]]
    out.calls[:] = [each for each in out.calls if each.group_id != group_id]
    return undone
