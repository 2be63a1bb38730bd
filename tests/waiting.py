"""Tests wait for a condition, not for a time."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

WAIT_S = 60.0
"""much longer than anything takes"""


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def until(condition: Callable[[], Any]) -> Any:
    """Wait until `condition` returns something true; returns that."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def until_is(wanted: object, look: Callable[[], object]) -> None:
    """Wait until it equals the value: an answered change may become visible a moment later."""
    deadline = time.monotonic() + WAIT_S
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == wanted


def is_readable(source: HasFileno, timeout_s: float = WAIT_S) -> bool:
    """Whether it can be read within the time. `select.select` refuses a descriptor above 1,023,
    which a test gets after a broker of its own process has opened a thousand logs.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def is_blocked(thread_id: int) -> bool:
    """Whether a thread, by the kernel's id, waits in a system call; False if it has ended."""
    try:
        stat = Path(f"/proc/{thread_id}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(") ")[2].startswith("S")
