"""Whether a broker still has every record that it had before it stopped.

A file in each log directory holds the broker epoch under which it was served, the epoch since which
it has lost no record, and the boot of the machine. At the next start a directory has all its
records if the broker stopped cleanly (`.kafka_cleanshutdown` exists, and names that epoch or, as
Kafka's does, none). It also has all of them if the machine has not booted since, because the page
cache still has what was not synced. And it has all that the broker acknowledged or reported
to a leader if the broker ran with `krust.flush.mode=ack` on directories that were synced when it
started. The broker registers with the answer (`controller/leaders.py`).
Format: JSON, `{"version":1,"broker_epoch":n,"kept_epoch":n,"boot_id":"...","synced":true}`.
If the file cannot be written, the next start counts the records as possibly lost.
Threads: the policy thread.
Not noticed: a file system that lost data while the machine ran. If yours may (a volume of another
machine), let `krust.boot.id.path` name a file that changes with it. And a Kafka that lost its power
after it served the directories of a killed krust in flush mode ack.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.config import Config

FILE = "krust-broker-epoch.json"
CLEAN = ".kafka_cleanshutdown"
MAY_HAVE_LOST = -1
"""records may be lost"""

_log = logging.getLogger("krust")


class _ServedUnder(NamedTuple):
    broker_epoch: int
    kept_epoch: int
    boot_id: str
    synced: bool


class UncleanShutdownCheck:
    """What a broker finds in its directories at its start, and notes in them for the next one.

    Made before the core opens them, because that removes the marker.
    """

    def __init__(self, config: Config, dirs: Sequence[Path]) -> None:
        self._boot_id = boot_id(str(config.text("krust.boot.id.path")))
        self.kept_epoch = kept_epoch(dirs, self._boot_id)
        """the broker epoch since which no record is lost, or MAY_HAVE_LOST"""
        self._is_synced = config.text("krust.flush.mode") == "ack" and are_synced(dirs)
        """what this broker acknowledges, or reports to a leader, is always on the disk"""

    def note(
        self, dirs: Sequence[Path], broker_epoch: int, kept: int, *, stops: bool = False
    ) -> None:
        """Note that the directories are served under this epoch.

        stops  the broker stops in order: the marker will say so, and a Kafka may be next here
        """
        if stops and (not self._is_synced or broker_epoch < 0):
            return
        self._is_synced &= not stops
        write_served(dirs, broker_epoch, kept, self._boot_id, synced=self._is_synced)


def boot_id(path: str) -> str:
    """The id of the machine's boot; empty: it has none."""
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError):
        return ""


def kept_epoch(dirs: Sequence[Path], boot: str) -> int:
    """The broker epoch since which these directories have lost no record, or MAY_HAVE_LOST.

    Called before the core opens them, because that removes the marker.
    """
    found = [_kept(each, boot) for each in dirs]
    notes = {note for note in map(_note, dirs) if note is not None}
    if MAY_HAVE_LOST in found or len({note.broker_epoch for note in notes}) > 1:
        return MAY_HAVE_LOST
    return max(found, default=MAY_HAVE_LOST)


def are_synced(dirs: Sequence[Path]) -> bool:
    """Whether all that was acknowledged or reported from these directories is on the disk.

    Called before the core opens them, because that removes the marker.
    """
    return all(_is_synced(each) for each in dirs)


def write_served(
    dirs: Sequence[Path], broker_epoch: int, kept: int, boot: str, *, synced: bool = False
) -> None:
    """Note that these directories are served under this epoch from now on.

    synced  what is acknowledged, or reported to a leader, is always on the disk
    """
    fields: dict[str, Any] = {"version": 1, "broker_epoch": broker_epoch, "kept_epoch": kept}
    data = json.dumps({**fields, "boot_id": boot, "synced": synced}, separators=(",", ":"))
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
        return 0 if marker is not None else MAY_HAVE_LOST
    if note.synced or marker in (note.broker_epoch, -1) or (boot and boot == note.boot_id):
        return note.kept_epoch
    return MAY_HAVE_LOST


def _is_synced(folder: Path) -> bool:
    note, marker = _note(folder), _marker(folder)
    if note is None:
        return marker is not None or not any(each.is_dir() for each in folder.glob("*"))
    return note.synced or marker in (note.broker_epoch, -1)


def _note(folder: Path) -> _ServedUnder | None:
    fields = _read(folder / FILE)
    try:
        epochs = int(fields["broker_epoch"]), int(fields["kept_epoch"])
        return _ServedUnder(*epochs, str(fields["boot_id"]), fields.get("synced") is True)
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
