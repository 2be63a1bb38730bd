"""The changes of a ZooKeeper in order, from its own transaction log, and who was the controller.

Format (big-endian): `ZKLG`, version 2, an id; then for each change a checksum, a length, the
change, the byte `B`; zeros behind the last. A change is session, cxid, zxid, time, type, record; a
multi's record holds types and records of its own. Refused changes are errors there; they are left
out. `two_controllers` finds each write of a controller that was not the last elected session, or
that was made in another epoch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CREATE, DELETE, SET, CHECK, MULTI = 1, 2, 5, 13, 14
_CREATE_TYPES = (CREATE, 15)
_WITH_DATA = (*_CREATE_TYPES, SET)
_OF_THE_CONTROLLER = ("/brokers/topics/", "/latest_producer_id_block")


class LoggedWrite(NamedTuple):
    """One write of a change, or a check."""

    kind: int
    path: str
    data: bytes = b""


class LoggedChange(NamedTuple):
    """One atomic change."""

    zxid: int
    session: int
    writes: tuple[LoggedWrite, ...]


class _Record:
    """Bytes in ZooKeeper's own encoding."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, layout: str) -> int:
        (found,) = struct.unpack_from(f">{layout}", self._data, self._at)
        self._at += struct.calcsize(f">{layout}")
        return int(found)

    def buffer(self) -> bytes:
        size = max(self.take("i"), 0)
        self._at += size
        return self._data[self._at - size : self._at]


def read(folder: Path) -> list[LoggedChange]:
    """All changes that the servers of an ensemble have logged below a folder, each once."""
    found: dict[int, LoggedChange] = {}
    for file in folder.rglob("version-2/log.*"):
        found |= {each.zxid: each for each in _changes(file.read_bytes())}
    return [found[zxid] for zxid in sorted(found)]


def _changes(data: bytes) -> Iterator[LoggedChange]:
    assert data[:4] in (b"ZKLG", b"")
    at = 16
    while at + 12 < len(data):
        _, size = struct.unpack_from(">qi", data, at)
        entry = data[at + 12 : at + 12 + size]
        if not size or data[at + 12 + size : at + 13 + size] != b"B":
            return  # nothing yet, or half of it
        at += 13 + size
        record = _Record(entry)
        session, _, zxid, _, kind = (record.take(each) for each in "qiqqi")
        if kind == MULTI:
            parts = [(record.take("i"), _Record(record.buffer())) for _ in range(record.take("i"))]
            yield LoggedChange(zxid, session, tuple(_write(*each) for each in parts))
        elif kind in (DELETE, *_WITH_DATA):
            yield LoggedChange(zxid, session, (_write(kind, record),))


def _write(kind: int, record: _Record) -> LoggedWrite:
    path = record.buffer().decode()
    data = record.buffer() if kind in _WITH_DATA else b""
    return LoggedWrite(CREATE if kind in _CREATE_TYPES else kind, path, data)


def two_controllers(changes: Iterable[LoggedChange], root: str) -> list[str]:
    """Each write that shows a second controller; `root` is the brokers' chroot."""
    wrong: list[str] = []
    holder, epoch = 0, 0
    epochs: dict[str, int] = {}
    for change in changes:
        mine = [each for each in change.writes if each.path.startswith(f"{root}/")]
        writes = [each._replace(path=each.path.removeprefix(root)) for each in mine]
        for each in writes:
            if each.kind in (CREATE, SET) and each.path == "/controller_epoch":
                if int(each.data) != epoch + 1 and each.kind == SET:
                    wrong.append(f"{change.zxid:x}: the epoch goes from {epoch} to {each.data!r}")
                epoch = int(each.data)
            if each.kind == CREATE and each.path == "/controller":
                holder = change.session
        for each in writes:
            why = _intrusion(each, writes, change.session == holder, epoch)
            why = why or _step_back(each, epochs)
            wrong += [f"{change.zxid:x}: {each.path} {why}"] if why else []
    return wrong


def _intrusion(each: LoggedWrite, writes: list[LoggedWrite], elected: bool, epoch: int) -> str:
    """Why a write is not the last elected controller's; empty: it is."""
    shared = (CREATE, "/latest_producer_id_block")
    ours = each.path.startswith(_OF_THE_CONTROLLER) and (each.kind, each.path) != shared
    if not ours or each.kind == CHECK:
        return ""
    if not elected:
        return "is written by a session that is not the controller"
    if (CHECK, "/controller_epoch") not in [(one.kind, one.path) for one in writes]:
        return "is written without a look at the epoch"
    if each.path.endswith("/state") and each.data:
        its_epoch = json.loads(each.data)["controller_epoch"]
        return f"bears epoch {its_epoch}, not {epoch}" if its_epoch != epoch else ""
    return ""


def _step_back(each: LoggedWrite, epochs: dict[str, int]) -> str:
    """Why a partition's state is older than the one before it; empty: it is not."""
    if each.kind == DELETE:
        epochs.pop(each.path, None)
    if each.kind not in (CREATE, SET) or not each.path.endswith("/state"):
        return ""
    now, before = json.loads(each.data)["leader_epoch"], epochs.get(each.path, -1)
    epochs[each.path] = now
    return f"goes from leader epoch {before} to {now}" if now < before else ""
