"""Makes the logs of a stopped broker look half full, without their bytes on the disk.

Each log of one record becomes a sparse file: its first and its last batch are real, the indexes
between them are of full size. Such a log can be opened and appended to. Nothing else of it can be
read, and it does not survive a start without a clean stop.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FIRST = f"{0:020}"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def grow(data: Path, size: int, interval: int) -> None:
    """Give each log in a directory `size` bytes, and indexes with an entry each `interval` bytes.

    data  a log directory whose partitions hold one record each, of the same timestamp
    """
    count = size // interval
    logs = sorted(data.glob(f"*/{FIRST}.log"))
    batch = logs[0].read_bytes()
    last = struct.pack(">q", count) + batch[8:]
    (timestamp,) = struct.unpack(">q", batch[35:43])
    offsets = b"".join(struct.pack(">ii", n, n * interval) for n in range(1, count + 1))
    times = b"".join(struct.pack(">qi", timestamp - count + n, n) for n in range(1, count + 1))
    for log in logs:
        with log.open("r+b") as file:
            os.pwrite(file.fileno(), last, count * interval)
        log.with_suffix(".index").write_bytes(offsets)
        log.with_suffix(".timeindex").write_bytes(times)
        log.with_name(f"{1:020}.snapshot").rename(log.with_name(f"{count + 1:020}.snapshot"))
    for name in CHECKPOINTS:
        checkpoint = data / name
        lines = checkpoint.read_text().splitlines()
        grown = [f"{line.rsplit(' ', 1)[0]} {count + 1}" for line in lines[2:]]
        checkpoint.write_text("\n".join([*lines[:2], *grown, ""]))
