"""Shows the progress of `krust serve` with the logs of its directories, if that takes long.

    recovering  12 of 64 logs  340 of 2,048 MB checked  3 s

On a terminal it rewrites one line; otherwise it writes a line to the log now and then.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from krust.cli.progress import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.server import Recovery

QUIET_S = 1.0
"""a shorter recovery is not shown"""

LINE_S = 5.0
"""between two lines of the log"""

_MB = 1_000_000
_log = logging.getLogger("krust")


class StoppedEarly(Exception):  # noqa: N818 (no error: somebody asked for it)
    """A signal asked to stop before the broker had started."""


class RecoveryProgress:
    """Shows the progress of a start. A start that has to stop ends with StoppedEarly.

    stop   returns the reason to stop; None: there is none
    clock  seconds on a monotonic clock
    """

    def __init__(
        self,
        stop: Callable[[], str | None],
        *,
        quiet: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stop = stop
        self._line = Line(quiet=quiet)
        self._clock = clock
        self._began: float | None = None
        self._told = -LINE_S
        self._last = ""

    def __call__(self, found: Recovery) -> None:
        """Show the progress."""
        if reason := self._stop():
            self.end()
            raise StoppedEarly(reason)
        if not found.logs:
            return
        now = self._clock()
        if self._began is None:
            self._began, self._told = now, now - LINE_S
        if now - self._began < QUIET_S:
            return
        self._last = _text(found, now - self._began)
        if self._line.terminal:
            self._line.write(self._last)
        elif now - self._told >= LINE_S and found.opened < found.logs:
            self._report(now)

    def end(self) -> None:
        """Keep the last line."""
        if self._last and self._line.terminal:
            self._line.end()
        elif self._last:
            self._report(self._clock())
        self._last = ""

    def _report(self, now: float) -> None:
        self._told = now
        if not self._line.quiet:
            _log.info("%s", self._last)


def _text(found: Recovery, took_s: float) -> str:
    what = "recovering" if found.to_check else "opening"
    parts = [f"{what}  {found.opened:,} of {found.logs:,} logs"]
    if found.to_check:
        parts.append(f"{found.checked // _MB:,} of {found.to_check // _MB:,} MB checked")
    return "  ".join([*parts, f"{took_s:.0f} s"])
