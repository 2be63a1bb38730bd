"""Whether a broker still has every record that it had before it stopped.

A file in each log directory says under which broker epoch it was served, since which one no record
was lost, and in which boot of the machine. At the next start a directory has lost nothing if it was
stopped cleanly (`.kafka_cleanshutdown` is there, and names that epoch or, as Kafka's does, none).
It has lost nothing either if the machine has not booted since: then the page cache still has what
was not synced. The broker registers with the answer (`controller/leaders.py`).
Format: JSON, `{"version":1,"broker_epoch":n,"kept_epoch":n,"boot_id":"..."}`.
A failure to write it costs the answer at the next start, and nothing else.
Threads: the policy thread.
Not promised: that a file system is noticed that lost data while the machine ran. For one that may
(a volume of another machine), let `krust.boot.id.path` name a file that changes with it.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "krust-broker-epoch.json"
CLEAN = ".kafka_cleanshutdown"
LOST = -1
"""records may be lost"""

_log = logging.getLogger("krust")


class _Note(NamedTuple):
    broker_epoch: int
    kept_epoch: int
    boot_id: str


def boot_id(path: str) -> str:
    """What names the machine's boot; empty: nothing does."""
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError):
        return ""


def kept_epoch(dirs: Sequence[Path], boot: str) -> int:
    """Since which broker epoch these directories have lost nothing; LOST: they may have.

    Called before the core opens them, because that removes the marker.
    """
    found = [_kept(each, boot) for each in dirs]
    notes = {note for note in map(_note, dirs) if note is not None}
    if LOST in found or len({note.broker_epoch for note in notes}) > 1:
        return LOST
    return max(found, default=LOST)


def write(dirs: Sequence[Path], broker_epoch: int, kept: int, boot: str) -> None:
    """Note that these directories are served under this epoch from now on."""
    fields: dict[str, Any] = {"version": 1, "broker_epoch": broker_epoch, "kept_epoch": kept}
    data = json.dumps({**fields, "boot_id": boot}, separators=(",", ":"))
    for folder in dirs:
        draft = folder / f"{FILE}.tmp"
        try:
            with draft.open("w") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(folder / FILE)
        except OSError as error:
            _log.warning("cannot write %s: %s", folder / FILE, error.strerror)


def _kept(folder: Path, boot: str) -> int:
    note, marker = _note(folder), _marker(folder)
    if note is None:
        return 0 if marker is not None else LOST
    if marker in (note.broker_epoch, -1) or (boot and boot == note.boot_id):
        return note.kept_epoch
    return LOST


def _note(folder: Path) -> _Note | None:
    fields = _read(folder / FILE)
    try:
        return _Note(int(fields["broker_epoch"]), int(fields["kept_epoch"]), str(fields["boot_id"]))
    except (KeyError, TypeError, ValueError):
        return None


def _marker(folder: Path) -> int | None:
    """The broker epoch in the marker of a clean stop; None: there is none."""
    if not (folder / CLEAN).exists():
        return None
    epoch = _read(folder / CLEAN).get("brokerEpoch", -1)
    return epoch if isinstance(epoch, int) else -1


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
