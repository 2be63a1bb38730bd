"""Ctrl-C and SIGTERM: both end a command cleanly, and never between two steps that belong together.

Promised: a second Ctrl-C acts at once. Threads: the main thread.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


ACTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}
"""the handlers of signals that may interrupt"""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated, as Ctrl-C raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def whole() -> Iterator[None]:
    """Delay signals until the end of the block. Then KeyboardInterrupt is raised if one arrived."""
    acting = [number for number, acts in ACTS.items() if signal.getsignal(number) is acts]
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(number, ACTS[signal.Signals(number)])
        came.append(number)

    for number in acting:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in acting:
            signal.signal(number, ACTS[number])
    if came:
        raise Terminated if signal.SIGTERM in came else KeyboardInterrupt
