"""Who served a data directory before: krust, a cluster of `krust dev`, or Kafka.

krust writes `meta.properties` without the date that Java writes, and marks one that Kafka wrote
when it has taken its directory over (a comment, which Kafka passes over). So where krust's own
metadata is missing it is known whether it ever was there: a directory of Kafka's is taken over, one
of krust's is refused, because its topics would come back with other settings.
Threads: the policy thread.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from krust.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CLUSTER = "krust-cluster.db"
"""The metadata of a `krust.Cluster`, above the directories of its brokers."""
ALONE = "krust-metadata.db"
"""The metadata of a broker on its own, in its first log directory."""
JOURNALS = {CLUSTER: "krust-cluster.journal", ALONE: "krust-metadata.journal"}
_META = "meta.properties"
_OURS = ("#crc32c=", "#\nbroker.id=")
"""What files that krust wrote begin with: those of today, and those without a checksum."""
_MARK = "#krust\n"

_log = logging.getLogger("krust")


def served_by_krust(folders: Iterable[Path]) -> str | None:
    """What proves that krust has served one of the directories; None: nothing does."""
    for folder in folders:
        text = _meta(folder)
        if text is not None and (text.startswith(_OURS) or _MARK in text):
            return f"{folder / _META} shows that krust has served it"
    return None


def mark(folder: Path) -> None:
    """Write into a directory that krust serves it, where nothing says so yet."""
    text = _meta(folder)
    if text is None or text.startswith(_OURS) or _MARK in text:
        return
    place = folder / _META
    draft = place.with_name(f"{_META}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(_MARK + text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
    except OSError as error:
        _log.warning("cannot write %s: %s", place, error.strerror)


def refuse_cluster(folder: Path) -> None:
    """ServerError: the directory belongs to a cluster of `krust dev`."""
    if _there(folder, CLUSTER):
        raise ServerError(
            f"{folder} is the directory of a `krust dev` cluster",
            hint=f"run it with `krust dev -n {max(brokers(folder), 1)} --data-dir {folder}`",
        )
    above = folder.absolute().parent
    if folder.absolute().name.startswith("broker-") and _there(above, CLUSTER):
        raise ServerError(
            f"{folder} belongs to a broker of the `krust dev` cluster in {above}",
            hint=f"run it with `krust dev -n {max(brokers(above), 1)} --data-dir {above}`",
        )


def refuse_broker(folder: Path) -> None:
    """ServerError: the directory belongs to a broker on its own."""
    if _there(folder, ALONE) or (folder / _META).exists():
        raise ServerError(
            f"{folder} is the data directory of one broker, and not of a cluster",
            hint=f"run it with `krust serve --data-dir {folder}`, or choose another --data-dir",
        )


def brokers(folder: Path) -> int:
    """How many brokers' directories a cluster's directory has."""
    return len(list(folder.glob("broker-*")))


def _there(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (folder / JOURNALS[name]).exists()


def _meta(folder: Path) -> str | None:
    try:
        return (folder / _META).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
