"""`krust-metadata.journal`: the second copy of the metadata, with checksums.

Format: records. Each is MAGIC, the length of its payload, the checksum of the record before it (0:
the first), its own checksum (CRC-32 of length, checksum before and payload), 4 bytes each, then the
payload: kind, zxid, total (`rows.total` after it), count of rows; then rows (`rows.py`).
A file begins with a snapshot: HEADER, whose count is that of all nodes, then PARTs with these.
Changes follow, each of any number of MOREs and one CHANGE. A record has at most LARGEST bytes.
Invariant: a file gets its name when its snapshot is whole and synced; a change is synced before
`append` returns; so what is whole up to some record is the tree as it was after that change.
It is written again (`roll`) when its changes are larger than 1 MiB and than 4 times its snapshot.
Threads: one.
Not promised: that every change is quick: with 100,000 partitions a snapshot takes almost a second,
once in 100 MB of changes; that the file alone shows that whole records are missing at its end: the
database has the number of the last change.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

from krust.metadata import rows
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from krust.metadata.rows import Row

MAGIC = b"\xabkTx"
LARGEST = 4 << 20
"""the most bytes of a record; a row is smaller than `store.LARGEST`"""
_FULL = 1 << 20
_ROLL = 1 << 20
_HEAD = struct.Struct(">4sIII")
_PAYLOAD = struct.Struct(">BqqI")
_HEADER, _PART, _MORE, _CHANGE = 1, 2, 3, 4

_sync = getattr(os, "fdatasync", os.fsync)


class JournalCopy(NamedTuple):
    """The part of a file that is whole."""

    zxid: int | None
    """the last whole change; None: its snapshot is not whole"""
    total: int
    newest: int
    """the last change that has any whole record; 0: none"""
    end: int
    """the end of that change, in bytes"""
    snapshot: int
    """the size of its snapshot"""
    last: int
    """the checksum of its last record"""
    fault: str | None
    """the damage behind `end`"""


class _Record(NamedTuple):
    kind: int
    zxid: int
    total: int
    nodes: int
    rows: bytes
    before: int
    checksum: int
    size: int


def read(path: Path) -> JournalCopy:
    """Check a whole file. OSError: it cannot be read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        whole, found = _check(file)
        if found.end == size:
            return found._replace(fault=None if whole else "it ends in the middle of a change")
        newest = max(found.newest, _newest(file, found.end, size))
        fault = f"{size - found.end} bytes behind byte {found.end} are damaged"
        return found._replace(newest=newest, fault=fault)


def nodes(path: Path, end: int) -> dict[str, Row]:
    """The tree up to an end that `read` returned. OSError, ValueError: the file has changed."""
    found: dict[str, Row] = {}
    with path.open("rb") as file:
        while file.tell() < end:
            record = _next(file)
            if record is None:
                raise ValueError("it changed while it was read")
            for name, row in rows.decode(record.rows):
                if row is None:
                    found.pop(name, None)
                else:
                    found[name] = row
    return found


def _check(file: BinaryIO) -> tuple[bool, JournalCopy]:
    """Whether the file ends after a whole change, and which part of it is whole."""
    found = JournalCopy(None, 0, 0, 0, 0, 0, "it is empty")
    missing, header, last, open_change = 0, None, 0, True
    while (record := _next(file)) is not None and record.before == last:
        last = record.checksum
        if header is None:
            if record.kind != _HEADER:
                break
            header, missing = record, record.nodes
        elif record.kind == _PART and missing >= record.nodes:
            missing -= record.nodes
        elif missing or record.kind not in (_MORE, _CHANGE):
            break
        open_change = record.kind == _MORE or missing > 0
        if not open_change:
            zxid = max(record.zxid, found.newest)
            end = file.tell()
            found = JournalCopy(
                record.zxid, record.total, zxid, end, found.snapshot or end, last, None
            )
    return not open_change, found


def _next(file: BinaryIO) -> _Record | None:
    """The record at the file's position; None: it is not whole."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, size, before, checksum = _HEAD.unpack(head)
    if magic != MAGIC or not _PAYLOAD.size <= size <= LARGEST:
        return None
    payload = file.read(size)
    if len(payload) < size or _checksum(size, before, payload) != checksum:
        return None
    kind, zxid, total, count = _PAYLOAD.unpack_from(payload)
    data = payload[_PAYLOAD.size :]
    return _Record(kind, zxid, total, count, data, before, checksum, _HEAD.size + size)


def _newest(file: BinaryIO, begin: int, size: int) -> int:
    """The last change that has a whole record behind a position."""
    newest = 0
    while begin < size:
        file.seek(begin)
        block = file.read(_FULL)
        at = block.find(MAGIC)
        if at < 0:
            begin += max(len(block) - len(MAGIC) + 1, 1)
            continue
        file.seek(begin + at)
        record = _next(file)
        if record is not None:
            newest = max(newest, record.zxid)
        begin += at + (1 if record is None else record.size)
    return newest


def _checksum(size: int, before: int, payload: bytes) -> int:
    return crc32(payload, crc32(struct.pack(">II", size, before)))


class Journal:
    """A journal that is open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._last = 0
        self._snapshot = self._size = 0

    @property
    def ready(self) -> bool:
        """Whether changes can be appended. If not, call `roll` first."""
        return self._file >= 0

    @property
    def long(self) -> bool:
        """Whether it has so many changes that a new snapshot is due."""
        return self._size - self._snapshot > max(_ROLL, 4 * self._snapshot)

    def resume(self, copy: JournalCopy) -> None:
        """Append after what `read` returned, which is the whole file. OSError: that fails."""
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._size, self._last, self._snapshot = copy.end, copy.last, copy.snapshot

    def roll(self, everything: Iterable[Row], zxid: int, total: int, count: int) -> None:
        """Write a new file with the whole tree. It replaces the old one when it is synced.

        raises  OSError: it cannot be written; then the old file is removed
        """
        self.close()
        draft = self.path.with_name(f"{self.path.name}.tmp")
        try:
            self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            self._last = self._size = 0
            self._write(self._record(_HEADER, zxid, total, count, b""))
            for some, data in _pieces(row.encode() for row in everything):
                self._write(self._record(_PART, zxid, total, some, data))
            os.fsync(self._file)
            draft.replace(self.path)
            _sync_folder(self.path.parent)
            self._snapshot = self._size
        except OSError:
            self.discard()
            raise

    def append(self, changes: Iterable[bytes], zxid: int, total: int) -> None:
        """Make one change durable.

        raises  OSError: it cannot be written; then the file is removed, because it would be older
                than the database
        """
        try:
            *begin, (count, data) = _pieces(changes)
            for some, part in begin:
                self._write(self._record(_MORE, zxid, total, some, part))
            self._write(self._record(_CHANGE, zxid, total, count, data))
            _sync(self._file)
        except OSError:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the file, which is older than the database and could be taken for the newest."""
        self.close()
        for path in (self.path, self.path.with_name(f"{self.path.name}.tmp")):
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _record(self, kind: int, zxid: int, total: int, count: int, data: bytes) -> bytes:
        payload = _PAYLOAD.pack(kind, zxid, total, count) + data
        before, self._last = self._last, _checksum(len(payload), self._last, payload)
        return _HEAD.pack(MAGIC, len(payload), before, self._last) + payload

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._size += len(data)


def _pieces(encoded: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The parts of records: the number of rows and their bytes. At least one part."""
    held: list[bytes] = []
    size = 0
    for row in encoded:
        if held and size + len(row) > _FULL:
            yield len(held), b"".join(held)
            held, size = [], 0
        held.append(row)
        size += len(row)
    yield len(held), b"".join(held)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
