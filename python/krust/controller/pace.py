"""Slices of long decisions: a decision pauses, and other requests are decided before it continues.

A decision yields PAUSE after a slice. The controller keeps it, and the runtime resumes it after
other requests. A slice is counted in parts, not in time, so that tests give the same result on a
busy machine. The check of one entry of a request is one part; longer work counts as several.
Invariant: between two pauses a decision spends at most SLICE parts and those of one more entry.
Threads: the policy thread.
Not promised: that the state is the same after a pause. A decision checks it again, or writes with
the version that it has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.metadata.store import Operation

PAUSE: list[list[Operation]] = []
"""yielded by a decision that pauses; compared by identity: no writes are an empty list too"""

SLICE = 150
"""the parts of a slice; they were measured to take at most 2 ms"""

WRITE = 30
"""the parts of a transaction that is committed alone: it syncs the disk"""

BATCHED = 5
"""the parts of a topic, or of a partition, that is written together with others"""

PARSED = 250
"""the bytes of JSON that are parsed in one part"""

DECODED = 20
"""the partitions whose replicas are checked in one part"""


class Pace:
    """Counts what one decision does."""

    def __init__(self) -> None:
        self._left = SLICE

    def add(self, parts: int = 1) -> bool:
        """Add parts to the slice. Returns whether it is full now; then the next one begins."""
        self._left -= parts
        if self._left > 0:
            return False
        self._left = SLICE
        return True
