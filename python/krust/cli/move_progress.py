"""Follows reassignments until all have ended, for `krust cluster reassign`.

    moving   12 of 40 partitions  [########------------]  41%  3.4 GB of 8.2 GB  120 MB/s  eta 40s

A partition is done when ListPartitionReassignments no longer lists it. The bytes are those of the
new replicas on their brokers (DescribeLogDirs), of the leaders' bytes when the move began.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from krust.cli.log_sizes import replica_sizes
from krust.cli.progress import RATE_S, Line, duration
from krust.cli.replica_health import ongoing_moves
from krust.errors import KrustError
from krust.named_tuple import NamedTuple
from krust.quantities import counted, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust import _krust
    from krust.cli.options import Options
    from krust.cli.replica_health import PartitionKey

BAR = 20
_BETWEEN_S = 0.5
_PATIENCE_S = 60.0
"""how long nobody may be the controller, or answer"""
_LOG_EVERY_S = 10.0
"""between two lines where no terminal is"""


class PartitionCopy(NamedTuple):
    """The copies that a partition needs."""

    added: Sequence[int]
    """the brokers that get it"""
    bytes: int
    """of its leader's replica"""


def follow(
    options: Options, asked: _krust.Client, copies: Mapping[PartitionKey, PartitionCopy]
) -> None:
    """Return when none of these partitions moves any more, and show how far it is.

    raises  KrustError: no broker answers for a minute
    """
    line = Line(quiet=options.quiet)
    total = sum(len(copy.added) * copy.bytes for copy in copies.values())
    seen: deque[tuple[float, int]] = deque()
    written = heard = time.monotonic()
    try:
        while True:
            try:
                left = ongoing_moves(asked).keys() & copies.keys()
                copied = total - sum(_missing(asked, copies, left).values())
                heard = time.monotonic()
            except KrustError:
                if time.monotonic() - heard > _PATIENCE_S:
                    raise
                time.sleep(_BETWEEN_S)
                continue
            seen.append((heard, copied))
            while seen[0][0] < heard - RATE_S:
                seen.popleft()
            if not left and len(seen) == 1 and not total:
                return
            if line.terminal or not left or heard - written >= _LOG_EVERY_S:
                written = heard
                line.write(progress_line(len(copies) - len(left), len(copies), total, seen))
            if not left:
                return
            time.sleep(_BETWEEN_S)
    finally:
        line.end()


def _missing(
    asked: _krust.Client, copies: Mapping[PartitionKey, PartitionCopy], left: set[PartitionKey]
) -> dict[PartitionKey, int]:
    """The bytes that new replicas still lack."""
    brokers = {broker for place in left for broker in copies[place].added}
    sizes = replica_sizes(asked, brokers, left) if brokers else {}
    return {
        place: sum(
            max(0, copies[place].bytes - sizes.get((*place, broker), 0))
            for broker in copies[place].added
        )
        for place in left
    }


def progress_line(done: int, count: int, total: int, seen: Sequence[tuple[float, int]]) -> str:
    """The line: partitions done, and bytes copied as (time, bytes) in the last seconds."""
    parts = [f"moving  {done} of {counted(count, 'partition')}"]
    (first, at_first), (last, copied) = seen[0], seen[-1]
    share = copied / total if total else done / count
    full = round(BAR * share)
    parts += [f"[{'#' * full}{'-' * (BAR - full)}]", f"{100 * share:3.0f}%"]
    if total:
        parts.append(f"{size(copied)} of {size(total)}")
        rate = (copied - at_first) / (last - first) if last > first else 0.0
        if rate > 0:
            parts += [f"{size(rate)}/s", f"eta {duration((total - copied) / rate)}"]
    return "  ".join(parts)
