"""Tells who served a data directory before: krust, a cluster of `krust dev`, or Kafka.

krust writes `meta.properties` without the date that Java writes. When krust takes over a directory
of Kafka's, it adds a comment, which Kafka ignores. So if krust's metadata is missing, krust knows
whether it ever existed: a directory of Kafka's is taken over, a directory of krust's is refused,
because its topics would get other settings.
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

CLUSTER_FILE = "krust-cluster.db"
"""The metadata of a `krust.Cluster`, above the directories of its brokers."""
BROKER_FILE = "krust-metadata.db"
"""The metadata of a lone broker, in its first log directory."""
JOURNALS = {CLUSTER_FILE: "krust-cluster.journal", BROKER_FILE: "krust-metadata.journal"}
_META = "meta.properties"
_OWN_MARK = ("#crc32c=", "#\nbroker.id=")
"""The first bytes of files that krust wrote: today's, and older ones without a checksum."""
_MARK = "#krust\n"

_log = logging.getLogger("krust")


def served_by_krust(folders: Iterable[Path]) -> str | None:
    """What proves that krust has served one of the directories; None: there is no proof."""
    for folder in folders:
        text = _meta(folder)
        if text is not None and (text.startswith(_OWN_MARK) or _MARK in text):
            return f"{folder / _META} shows that krust has served it"
    return None


def mark(folder: Path) -> None:
    """Mark a directory as served by krust if it is not marked yet."""
    text = _meta(folder)
    if text is None or text.startswith(_OWN_MARK) or _MARK in text:
        return
    path = folder / _META
    draft = path.with_name(f"{_META}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(_MARK + text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        _log.warning("cannot write %s: %s", path, error.strerror)


def refuse_cluster(folder: Path) -> None:
    """ServerError: the directory belongs to a cluster of `krust dev`."""
    if _exists(folder, CLUSTER_FILE):
        raise ServerError(
            f"{folder} is the directory of a `krust dev` cluster",
            hint=f"run it with `krust dev -n {max(brokers(folder), 1)} --data-dir {folder}`",
        )
    above = folder.absolute().parent
    if folder.absolute().name.startswith("broker-") and _exists(above, CLUSTER_FILE):
        raise ServerError(
            f"{folder} belongs to a broker of the `krust dev` cluster in {above}",
            hint=f"run it with `krust dev -n {max(brokers(above), 1)} --data-dir {above}`",
        )


def refuse_broker(folder: Path) -> None:
    """ServerError: the directory belongs to a lone broker."""
    if _exists(folder, BROKER_FILE) or (folder / _META).exists():
        raise ServerError(
            f"{folder} is the data directory of one broker, and not of a cluster",
            hint=f"run it with `krust serve --data-dir {folder}`, or choose another --data-dir",
        )


def brokers(folder: Path) -> int:
    """The number of brokers in a cluster's directory."""
    return len(list(folder.glob("broker-*")))


def _exists(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (folder / JOURNALS[name]).exists()


def _meta(folder: Path) -> str | None:
    try:
        return (folder / _META).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
