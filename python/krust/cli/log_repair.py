"""Repairs a partition offline: the bytes behind its first bad batch are moved to side files.

Order: the bytes are copied to side files and synced; the checkpoints are lowered, so that the next
start accepts the shorter log; the files are cut. After a kill the repair can be repeated. Side
files are named `<segment>.log.<position>.cut`; brokers ignore them. The data directory's `.lock` is
held, so the directory of a running broker is not repaired. A log that has lost its end
(`log_files.lost_end`) is not cut: its checkpoints are lowered, so that the next start appends at
its current end. Not promised: that the cut bytes are bad. Behind a bad batch nothing shows where
the next one begins.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krust.cli import log_files
from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DERIVED = ("index", "timeindex", "txnindex")
CLEAN_MARKER = ".kafka_cleanshutdown"
_COPY = 1 << 20


def plan(bad: log_files.BadPosition) -> list[tuple[Path, int]]:
    """The files to cut and their positions: the bad file and all later ones."""
    later = [file for file in log_files.segments(bad.file.parent) if file.stem > bad.file.stem]
    return [(bad.file, bad.position), *((file, 0) for file in later)]


def repair(bad: log_files.BadPosition) -> list[Path]:
    """Cut the log at the bad position. Returns the side files."""
    folder = bad.file.absolute().parent
    with locked(folder.parent):
        cuts = plan(bad)
        kept = [side for file, at in cuts if (side := _keep(file, at)) is not None]
        _sync(folder)
        _lower(folder, bad.offset)
        for file, position in reversed(cuts):
            for kind in DERIVED:
                file.with_suffix(f".{kind}").unlink(missing_ok=True)
            if file != bad.file:
                file.with_suffix(".snapshot").unlink(missing_ok=True)
                file.unlink()
                continue
            with file.open("r+b") as cut:
                cut.truncate(position)
                os.fsync(cut.fileno())
        _sync(folder)
    return kept


@contextmanager
def locked(data: Path, what: str = "repair") -> Iterator[None]:
    """Hold the lock of the data directory for `what`. KrustError: a broker has it."""
    import fcntl

    with (data / ".lock").open("a+b") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            text = f"{data} is in use: a broker runs on it"
            raise KrustError(text, hint=f"stop the broker, then {what} again") from error
        yield


def _keep(file: Path, position: int) -> Path | None:
    if file.stat().st_size <= position:
        return None
    side = file.with_name(f"{file.name}.{position}.cut")
    with file.open("rb") as source, side.open("wb") as target:
        source.seek(position)
        while piece := source.read(_COPY):
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    return side


def _lower(partition: Path, offset: int) -> None:
    """Lower the checkpoints to `offset`, and remove the clean-shutdown marker."""
    data = partition.parent
    topic, _, number = partition.name.rpartition("-")
    (data / CLEAN_MARKER).unlink(missing_ok=True)
    for name in ("recovery_point", "high_watermark", "clean_to"):
        path = data / log_files.CHECKPOINTS[name]
        rows = log_files.read_checkpoint(path)
        if rows.get((topic, number), -1) > offset:
            rows[topic, number] = offset
            text = "".join(f"{key[0]} {key[1]} {value}\n" for key, value in sorted(rows.items()))
            temporary = path.with_name(f"{path.name}.tmp")
            with temporary.open("w") as file:
                file.write(f"0\n{len(rows)}\n{text}")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    _sync(data)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
