"""Tests wait for a condition, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT_S = 60.0
"""much longer than anything takes"""


def until(true: Callable[[], Any]) -> Any:
    """Wait until `fact` returns something true; returns that."""
    deadline = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def until_is(wanted: object, look: Callable[[], object]) -> None:
    """Wait until it equals the value: an answered change may become visible a moment later."""
    deadline = time.monotonic() + WAIT_S
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == wanted
