"""Shows progress: a line that is rewritten on a terminal (`Line`), and the progress of `krust
pipeline run`. Without a terminal it writes a new line now and then.

    flights  backfill   52%  1,234,000 rows  312,000 rows/s  lag 1,100,000  eta 4s  3 bad

Rates are those of the offsets that were published in the last RATE_S. All output goes to stderr.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import click

from krust.errors import KrustError

if TYPE_CHECKING:
    from threading import Event

    from krust.cli.options import Options
    from krust.spark.flow import Flow
    from krust.spark.recipe import Pipeline

FAILURES = 5
RATE_S = 15
STEP_MS = 100
LINE_S = 10
_ASK_S = 2.0


class Line:
    """A line on stderr. On a terminal it replaces the line before."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()

    def write(self, line: str) -> None:
        """Write the line."""
        if self.quiet:
            return
        if self.terminal:
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)
        else:
            click.echo(line, err=True)

    def end(self) -> None:
        """Keep the last line, and begin a new one."""
        if self.terminal and not self.quiet:
            click.echo(err=True)


class Progress:
    """Follows a flow and shows its progress."""

    def __init__(self, options: Options, made: Pipeline) -> None:
        self._line = Line(quiet=options.quiet)
        self._made = made
        self._began = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque()
        self._lag = -1
        self._asked = 0.0
        self._last_line_s = time.monotonic()
        self._position: Any = None

    def say(self, what: str) -> None:
        """Show what takes a while."""
        self._line.write(f"{self._made.name}  {what}")

    def follow(self, flow: Flow, phase: str, stop: Event, *, once: bool) -> None:
        """Start a phase and follow it to its end. After a temporary failure, start it again.

        raises  KeyboardInterrupt: `stop` was set; KrustError: it failed for good, or FAILURES times
                without a batch between
        """
        failures, batches = 0, -1
        while True:
            try:
                self._followed(flow, phase, stop, once=once)
                return
            except KrustError as error:
                self._line.end()
                failures = failures + 1 if flow.counts.batches == batches else 1
                batches = flow.counts.batches
                if not error.retriable or failures >= FAILURES:
                    raise
                pause = 2.0**failures
                self._line.write(f"{self._made.name}  {error}; again in {pause:.0f} s")
                if stop.wait(pause):
                    raise KeyboardInterrupt from error

    def _followed(self, flow: Flow, phase: str, stop: Event, *, once: bool) -> None:
        flow.start(once=once)
        self._seen.clear()
        self._asked = 0.0
        while not flow.wait(STEP_MS):
            if stop.is_set():
                self._line.end()
                flow.stop()
                raise KeyboardInterrupt
            self._look(flow)
            self._show(phase, flow)
        self._asked = 0.0
        self._look(flow)
        self._show(phase, flow, last=True)
        self._line.end()

    def result(self, flow: Flow) -> dict[str, object]:
        """The result of the run, for stdout."""
        counts = flow.counts
        return {
            "name": self._made.name,
            "rows": counts.rows,
            "bad_rows": counts.bad_rows,
            "batches": counts.batches,
            "files": counts.files,
            "bytes": counts.bytes,
            "elapsed_ms": round((time.monotonic() - self._began) * 1000),
        }

    def _look(self, flow: Flow) -> None:
        """Note the progress, and now and then ask for the end offsets."""
        from krust.spark import positions

        now = time.monotonic()
        reached = flow.reached()
        done = sum(end for ends in reached.values() for end in ends.values())
        self._seen.append((now, done))
        while self._seen[0][0] < now - RATE_S:
            self._seen.popleft()
        if now - self._asked < _ASK_S:
            return
        self._asked = now
        try:
            if self._position is None:
                self._position = positions.Position(self._made, 2000)
            found = positions.lags(self._position, reached)
            self._lag = sum(one.records for one in found)
        except KrustError:  # the flow reports a broker that is down
            self._lag = -1

    def _rate(self) -> float:
        (first, at_first), (last, at_last) = self._seen[0], self._seen[-1]
        return (at_last - at_first) / (last - first) if last > first else 0.0

    def _show(self, phase: str, flow: Flow, *, last: bool = False) -> None:
        now = time.monotonic()
        if not self._line.terminal and not last and now - self._last_line_s < LINE_S:
            return
        self._last_line_s = now
        counts, rate = flow.counts, self._rate()
        parts = [f"{self._made.name}  {phase}"]
        total = counts.rows + max(0, self._lag)
        if phase == "backfill" and total and self._lag >= 0:
            parts.append(f"{100 * counts.rows // total:3d}%")
        parts += [f"{counts.rows:,} rows", f"{rate:,.0f} rows/s"]
        if self._lag >= 0:
            parts.append(f"lag {self._lag:,}")
        if self._lag > 0 and rate > 0:
            parts.append(f"eta {duration(self._lag / rate)}")
        if counts.bad_rows:
            parts.append(f"{counts.bad_rows:,} bad")
        self._line.write("  ".join(parts))


def duration(seconds: float) -> str:
    """`40s`, `12m`, `3h05m`."""
    if seconds < 120:
        return f"{seconds:.0f}s"
    minutes = round(seconds / 60)
    return f"{minutes}m" if minutes < 120 else f"{minutes // 60}h{minutes % 60:02d}m"
