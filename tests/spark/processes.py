"""Processes that Spark has started below this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.leftovers import children


def descendants(pid: int) -> Iterator[int]:
    """Every process below one."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def workers() -> list[int]:
    """The processes that read and write for tasks: what pyspark's daemon has forked."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            if "pyspark.daemon" in Path(f"/proc/{parent}/cmdline").read_text():
                found.append(pid)
    return found
