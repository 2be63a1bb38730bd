"""Ctrl-C between two things that belong together: it acts after both.

Promised: a second Ctrl-C acts at once, whatever is going on. Threads: the main one.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def whole() -> Iterator[None]:
    """What is done in here is done whole, then KeyboardInterrupt is raised if one was due."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # nobody is interrupted
        return
    came = False

    def note(number: int, frame: object) -> None:
        nonlocal came
        signal.signal(signal.SIGINT, signal.default_int_handler)
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
