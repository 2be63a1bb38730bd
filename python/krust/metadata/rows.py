"""The rows of persistent nodes in both copies of the metadata, and their checksums.

Format of a row: kind (1: the node is so, 0: it is gone), length of the path and of the data (4
bytes each), czxid, mzxid, version, cversion (8 bytes each), path in UTF-8, data; all big-endian.
A tree's `total` is the sum of the CRC-32 of its rows. It does not depend on the order of the rows,
and a change need not read unchanged rows. `seal` binds it to the number of the change.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD = struct.Struct(">BIIqqqq")
_SEAL = struct.Struct(">qqq")
_GONE, _IS = 0, 1


class Row(NamedTuple):
    """A persistent node."""

    path: str
    data: bytes
    czxid: int
    mzxid: int
    version: int
    cversion: int

    def encode(self) -> bytes:
        """The node as bytes. TypeError, struct.error: a field has a wrong type."""
        path = self.path.encode()
        return _HEAD.pack(_IS, len(path), len(self.data), *self[2:]) + path + self.data


def gone(path: str) -> bytes:
    """The bytes of a row that says that a node is deleted."""
    name = path.encode()
    return _HEAD.pack(_GONE, len(name), 0, 0, 0, 0, 0) + name


def decode(data: bytes) -> Iterator[tuple[str, Row | None]]:
    """Decode consecutive rows; None: the node is deleted. ValueError: the bytes are invalid."""
    at = 0
    while at < len(data):
        try:
            kind, path_size, size, *fields = _HEAD.unpack_from(data, at)
        except struct.error:
            raise ValueError("a row is cut off") from None
        begin = at + _HEAD.size
        middle, at = begin + path_size, begin + path_size + size
        if at > len(data):
            raise ValueError("a row is cut off")
        path = data[begin:middle].decode()
        yield path, Row(path, data[middle:at], *fields) if kind == _IS else None


def checksum(row: bytes) -> int:
    """The checksum of an encoded row."""
    return crc32(row)


def checksums(rows: Iterable[Row]) -> dict[str, int]:
    """Path -> checksum. Their sum is the tree's total."""
    return {row.path: crc32(row.encode()) for row in rows}


def seal(form: int, zxid: int, whole: int) -> int:
    """A checksum of a tree's total, the number of its last change and its format."""
    return crc32(_SEAL.pack(form, zxid, whole))
