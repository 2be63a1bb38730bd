"""Ctrl-C and SIGTERM: both end a command in order, and neither between two things that belong
together.

Promised: a second Ctrl-C acts at once, whatever is going on. Threads: the main one.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


ACTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminate}
"""what a signal does where it may interrupt"""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends what is done in here as Ctrl-C does, by an exception: Terminated."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def whole() -> Iterator[None]:
    """What is done in here is done whole, then KeyboardInterrupt is raised if one was due."""
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
