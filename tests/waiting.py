"""Tests wait for a condition, not for a time."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

WAIT_S = 60.0
"""much longer than anything takes"""
PAUSE_S, LONG_PAUSE_S = 0.01, 0.1
"""between two looks at a condition: after a short one, and after one that took long"""


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def until(condition: Callable[[], Any]) -> Any:
    """Wait until `condition` returns something true; returns that."""
    began = now = time.monotonic()
    while not (found := condition()):
        now = _pause_after(now)
        assert now < began + WAIT_S
    return found


def until_is(wanted: object, look: Callable[[], object]) -> None:
    """Wait until it equals the value: an answered change may become visible a moment later."""
    began = now = time.monotonic()
    while (found := look()) != wanted and now < began + WAIT_S:
        now = _pause_after(now)
    assert found == wanted


def _pause_after(began: float) -> float:
    """Pause twice as long as the look that began then: looks leave the processor to the others."""
    took_s = time.monotonic() - began
    time.sleep(min(max(PAUSE_S, 2 * took_s), LONG_PAUSE_S))
    return time.monotonic()


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
