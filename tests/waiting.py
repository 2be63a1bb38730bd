"""How a test waits: for what is to be so, and not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT_S = 60.0
"""much longer than anything takes"""


def until(true: Callable[[], Any]) -> Any:
    """What it is when it is true."""
    deadline = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def until_is(wanted: object, look: Callable[[], object]) -> None:
    """Wait until it is that: who answers to a change may show it a moment later."""
    deadline = time.monotonic() + WAIT_S
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == wanted
