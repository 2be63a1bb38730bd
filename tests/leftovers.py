"""Threads, child processes and descriptors that a test leaves in this process.

The check compares which ones exist, not how many: those of an earlier test may end at any moment.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import WAIT_S


def children(pid: int) -> Iterator[int]:
    """The processes that the threads of one have started and that still run; of one that has ended
    meanwhile: none."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from map(int, (thread / "children").read_text().split())


def descriptors() -> Iterator[tuple[str, str]]:
    for one in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            yield one.name, str(one.readlink())


def tasks() -> set[str]:
    """Threads as the kernel sees them; a joined one is there a moment longer."""
    listed = Path("/proc/self/task")
    return {one.name for one in listed.iterdir()} if listed.exists() else set()


def held() -> set[object]:
    """Python's threads, children, descriptors."""
    found: set[object] = set(threading.enumerate())
    if tasks():
        found.update(f"process {number}" for number in children(os.getpid()))
        found.update(f"descriptor {number} of {what}" for number, what in descriptors())
    return found


@contextmanager
def nothing_left() -> Iterator[None]:
    """The block leaves no thread, process or descriptor behind."""
    before, running = held(), tasks()
    yield
    left = held() - before
    assert not left, f"left behind: {left}"
    deadline = time.monotonic() + WAIT_S
    while tasks() - running:
        assert time.monotonic() < deadline, f"threads {sorted(tasks() - running)} go on"
        time.sleep(0.001)
