"""Long decisions are made in slices: a policy pauses, and others are decided before it goes on.

A policy yields PAUSE where it has done much; the controller keeps it, and the runtime resumes it
when other requests had their turn. What a slice may do is counted in parts and not in time, so that
a test says the same on a busy machine: judging one entry of a request is one part, and what takes
longer is given as a multiple of that.
Invariant: between two pauses a policy spends at most SLICE parts and those of one more entry.
Threads: the policy thread.
Not promised: that the state is, after a pause, what it was before. What was looked at before it is
looked at again, or written with the version that it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.controller.state import Transactions

PAUSE: Transactions = []
"""what a policy yields to let others be decided first; told from "nothing to write" by identity"""

SLICE = 200
"""parts of a slice; at most 2 ms"""

WRITE = 40
"""parts of a transaction that is committed for itself: a sync of the disk"""

MADE = 5
"""parts of a topic, or of a partition, that is written together with others"""


class Pace:
    """Counts what one policy does."""

    def __init__(self) -> None:
        self._left = SLICE

    def is_over(self, parts: int = 1) -> bool:
        """Whether the slice ends with so many parts more; then the next begins."""
        self._left -= parts
        if self._left > 0:
            return False
        self._left = SLICE
        return True
