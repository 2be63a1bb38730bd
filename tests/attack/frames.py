"""Expensive frames of any API and version, made from its layout, of about the requested size.

Each array of a request is filled in turn, while its ancestors hold one element. A request without
arrays gets the longest strings. The code knows no single API, except for the names that exist in
the broker under attack (KNOWN) and the form of a compressed batch. So it attacks a new API of the
schema like all others.

    same       one existing name n times, with all its fields
    distinct   n names, or the numbers from 0 to n
    colliding  n names that differ in `.` and `_` alone
    longest    n names of 249 letters; without an array, one string as long as strings may be
    smallest   as many empty elements as fit
    nested     as many elements in each of the arrays as in the one that holds them
    bomb       records that are compressed about 1000:1
    pipelined  one small request n times
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import isqrt

from aiokafka.record.util import calc_crc32c

from tests.attack.layouts import NUMBERS, Field, Layout, Value, count, header, scalar

WIDE, GROUP, CONFIG = b"wide", b"group", b"retention.ms"
WIDE_PARTITIONS = 1000
LONGEST_STRING = 0x7FFF
CLIENT_ID = b"a stranger"
KNOWN: dict[str, Value] = {
    "acks": 1,
    "allow_auto_topic_creation": False,
    "config_operation": 0,
    "configs.name": CONFIG,
    "configuration_keys": CONFIG,
    "coordinator_keys": GROUP,
    "count": 2 * WIDE_PARTITIONS,
    "dirs.path": b"/nowhere",
    "entity_type": b"client-id",
    "entity.entity_type": b"client-id",
    "group": GROUP,
    "group_id": GROUP,
    "group_ids": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "key": GROUP,
    "max_bytes": 1 << 30,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "name": WIDE,
    "ops.key": b"producer_byte_rate",
    "partition_max_bytes": 1 << 20,
    "protocol_type": b"consumer",
    "protocols.name": b"range",
    "rebalance_timeout_ms": 3000,
    "replication_factor": 1,
    "resource_name": WIDE,
    "resource_type": 2,
    "response_partition_limit": 2000,
    "session_epoch": 0,
    "session_timeout": 6000,
    "session_timeout_ms": 6000,
    "subscribed_topic_names": WIDE,
    "subscribed_topic_regex": b"w.*d|n.*",
    "timeout_ms": 1000,
    "topic": WIDE,
    "topic_name": WIDE,
    "topic_names": b"gone",
    "DeleteTopics.topics.name": b"gone",
    "topics": WIDE,
    "users.name": b"user",
    "validate_only": True,
}

Path = tuple[Field, ...]


@dataclass(frozen=True)
class Attack:
    """One request, or many on one connection."""

    layout: Layout
    version: int
    kind: str
    place: str
    body: bytes
    times: int = 1

    def frame(self, correlation_id: int) -> bytes:
        whole = header(self.layout, self.version, correlation_id, CLIENT_ID) + self.body
        return struct.pack(">i", len(whole)) + whole

    def frames(self) -> bytes:
        """All frames of the attack."""
        return b"".join(self.frame(number) for number in range(self.times))

    @property
    def size(self) -> int:
        return len(self.body) * self.times


def attacks(layout: Layout, version: int, size: int, topic_id: bytes) -> Iterator[Attack]:
    """Every kind of attack that the request allows."""
    maker = Maker(layout, version, topic_id)
    paths = list(_arrays(layout.fields, version))
    for path in paths:
        place = ".".join(each.name for each in path)
        for kind, elements in maker.fillings(path[-1], size):
            yield Attack(layout, version, kind, place, maker.body(path, elements))
        if len(path) > 1:
            yield Attack(layout, version, "nested", place, maker.nested(path, size))
    for each in layout.fields:
        if each.at(version) and not each.array and each.kind in ("string", "bytes"):
            longest = LONGEST_STRING if each.kind == "string" else size
            body = maker.with_value(each, b"x" * min(size, longest))
            yield Attack(layout, version, "longest", each.name, body)
    for path in _records(layout.fields, version):
        place = ".".join(each.name for each in path)
        body = maker.body(path, bomb(size, maker.version))
        yield Attack(layout, version, "bomb", place, body)
    small = maker.body((), b"")
    times = max(1, min(size, 65536) // (len(small) + 4 + len(CLIENT_ID) + 10))
    yield Attack(layout, version, "pipelined", "", small, times)


def _arrays(fields: list[Field], version: int) -> Iterator[Path]:
    for each in fields:
        if each.at(version) and not each.tagged:
            if each.array:
                yield (each,)
            yield from ((each, *path) for path in _arrays(each.inner, version))


def _records(fields: list[Field], version: int) -> Iterator[Path]:
    for each in fields:
        if each.at(version) and not each.tagged:
            if each.kind == "records":
                yield (each,)
            yield from ((each, *path) for path in _records(each.inner, version))


class Maker:
    """Writes bodies of one API at one version."""

    def __init__(self, layout: Layout, version: int, topic_id: bytes) -> None:
        self.layout, self.version, self.topic_id = layout, version, topic_id
        self.flexible = layout.is_flexible(version)
        self._values: dict[int, Value] = {}
        self._small = False

    def body(self, path: Path, filling: bytes) -> bytes:
        """A request with the last field of the path written as `filling`."""
        return self._struct(self.layout.fields, "", path, filling)

    def with_value(self, field: Field, value: bytes) -> bytes:
        self._values[id(field)] = value
        try:
            return self.body((), b"")
        finally:
            self._values.clear()

    def nested(self, path: Path, size: int) -> bytes:
        """Both of the two innermost arrays of the path, with equally many elements."""
        outer, inner = path[-2], path[-1]
        piece = self._element(inner)
        number = max(1, isqrt(size // max(1, len(piece))))
        filling = count(number, flexible=self.flexible) + piece * number
        if not outer.array:
            return self.body(path, filling)
        each = self._struct(outer.inner, outer.name, (inner,), filling)
        many = count(number, flexible=self.flexible) + each * number
        return self.body(path[:-1], many)

    def fillings(self, field: Field, size: int) -> Iterator[tuple[str, bytes]]:
        """The possible contents of the array."""
        same = self._element(field)
        yield "same", self._repeated(same, size)
        self._small = True
        try:
            yield "smallest", self._repeated(self._element(field), size)
        finally:
            self._small = False
        varying = self._varying(field)
        if varying is None:
            return
        namings = NAMINGS if varying.kind == "string" else NUMBERINGS
        for kind, (width, name) in namings.items():
            yield kind, self._varied(field, varying, (size, width, name))

    def _varied(
        self, field: Field, varying: Field, what: tuple[int, int, Callable[[int], bytes]]
    ) -> bytes:
        size, width, name = what
        sentinel: Value = (b"\x01\x02\x03\x04\x05\x06\x07" * 40)[:width]
        if varying.kind == "uuid":
            sentinel, name = b"\x01\x02\x03\x04" * 4, lambda i: b"\x07" * 8 + struct.pack(">q", i)
        elif varying.kind != "string":
            form = ">" + NUMBERS[varying.kind]
            sentinel = 0x01020304 >> 8 * max(0, 4 - struct.calcsize(form))
            bits = 8 * struct.calcsize(form) - 1
            name = lambda i: struct.pack(form, i & (1 << min(bits, 31)) - 1)  # noqa: E731
        self._values[id(varying)] = sentinel
        try:
            piece = self._element(field)
        finally:
            self._values.clear()
        written = sentinel if isinstance(sentinel, bytes) else struct.pack(form, sentinel)
        before, _, after = piece.partition(written)
        number = max(1, size // len(piece))
        joined = b"".join([before + name(i) + after for i in range(number)])
        return count(number, flexible=self.flexible) + joined

    def _repeated(self, piece: bytes, size: int) -> bytes:
        number = max(1, size // max(1, len(piece)))
        return count(number, flexible=self.flexible) + piece * number

    def _varying(self, field: Field) -> Field | None:
        """The field that makes elements differ."""
        if not field.inner:
            return field
        inner = [
            each
            for each in field.inner
            if each.at(self.version) and not each.array and not each.tagged
        ]
        names = [each for each in inner if each.kind in ("string", "uuid")]
        numbers = [each for each in inner if each.kind in ("int16", "int32", "int64")]
        return next(iter(names + numbers), None)

    def _element(self, field: Field) -> bytes:
        if field.inner:
            return self._struct(field.inner, field.name, (), b"")
        return scalar(field.kind, self._value(field, ""), flexible=self.flexible)

    def _struct(self, fields: list[Field], holder: str, path: Path, filling: bytes) -> bytes:
        parts = []
        for each in fields:
            if not each.at(self.version) or each.tagged:
                continue
            if path and each is path[0]:
                parts.append(self._on_path(each, path[1:], filling))
            else:
                parts.append(self._off_path(each, holder))
        return b"".join(parts) + (b"\0" if self.flexible else b"")

    def _on_path(self, field: Field, rest: Path, filling: bytes) -> bytes:
        if not rest:
            return filling
        one = self._struct(field.inner, field.name, rest, filling)
        return count(1, flexible=self.flexible) + one if field.array else one

    def _off_path(self, field: Field, holder: str) -> bytes:
        nullable = field.nullable and field.nullable[0] <= self.version <= field.nullable[1]
        if field.array:
            if self._small:
                return count(0, flexible=self.flexible)
            if nullable:
                return b"\0" if self.flexible else b"\xff\xff\xff\xff"
            return count(1, flexible=self.flexible) + self._element(field)
        if field.inner:
            if nullable:
                return b"\xff"
            return self._struct(field.inner, field.name, (), b"")
        return scalar(field.kind, self._value(field, holder), flexible=self.flexible)

    def _value(self, field: Field, holder: str) -> Value:
        """The value of a field: a name that exists in the broker, or else empty."""
        if id(field) in self._values:
            return self._values[id(field)]
        number = field.kind in NUMBERS
        if self._small and not number:
            return bytes(16) if field.kind == "uuid" else b""
        for key in (f"{self.layout.name}.{holder}.{field.name}", f"{holder}.{field.name}"):
            if key in KNOWN:
                return KNOWN[key]
        if field.kind == "uuid":
            return self.topic_id
        if field.kind == "records":
            return None if self._small else plain(self.version)
        known = KNOWN.get(field.name)
        if known is not None and isinstance(known, bytes) != number:
            return known
        if not number:
            return None if field.nullable and field.nullable[0] <= self.version else b""
        return int(field.default or "0", 0) if field.default not in ("true", "false") else False


@cache
def _halves() -> list[bytes]:
    return [bytes(b"._"[number >> bit & 1] for bit in range(10)) for number in range(1024)]


def _colliding(number: int) -> bytes:
    return b"a" + _halves()[number >> 10 & 1023] + _halves()[number & 1023]


NAMINGS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "distinct": (9, lambda i: b"n%08d" % i),
    "colliding": (21, _colliding),
    "longest": (249, lambda i: b"n%0248d" % i),
}
NUMBERINGS = {"distinct": NAMINGS["distinct"]}


def bomb(size: int, version: int) -> bytes:
    """The field `records` of a Produce request, compressed about 1000:1 by gzip."""
    if version >= 3:
        value = _gzip(size, lambda i: _record(i, _ZEROS), 1)
        records = max(1, size * 1000 // _ZEROS)
        batch = _batch(value, records)
    else:
        batch = _wrapper(_gzip(size, lambda i: _message(i, _ZEROS, version), 0), version)
    return scalar("records", batch, flexible=version >= 9)


def filling(topic: bytes, partitions: int, inflated: int) -> bytes:
    """The body of a Produce, v3: to each partition a record of so many compressed zeros."""
    pressed = zlib.compressobj(9, zlib.DEFLATED, 31)
    head, zeros = _record(0, inflated)
    value = pressed.compress(head + bytes(zeros) + b"\0") + pressed.flush()
    records = scalar("records", _batch(value, 1), flexible=False)
    body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(topic)) + topic
    each = (struct.pack(">i", number) + records for number in range(partitions))
    return body + struct.pack(">i", partitions) + b"".join(each)


def plain(version: int) -> bytes:
    """A batch of one record, as `version` of Produce has it."""
    if version >= 3:
        return _batch(_record(0, 10)[0] + b"\0" * 10 + b"\0", 1, codec=0)
    head, zeros = _message(0, 10, version)
    return head + b"\0" * zeros


_ZEROS = 1 << 20


def _record(number: int, zeros: int) -> tuple[bytes, int]:
    """The bytes before the zeros of a record's value."""
    body = b"\0\0" + _zigzag(number) + b"\x01" + _zigzag(zeros)
    return _zigzag(len(body) + zeros + 1) + body, zeros


def _message(number: int, zeros: int, version: int) -> tuple[bytes, int]:
    magic = 1 if version >= 2 else 0
    fixed = bytes([magic, 0]) + (b"\0" * 8 if magic else b"") + b"\xff\xff\xff\xff"
    content = fixed + struct.pack(">i", zeros)
    crc = zlib.crc32(bytes(zeros), zlib.crc32(content))
    size = len(content) + 4 + zeros
    return struct.pack(">qiI", number, size, crc) + content, zeros


def _wrapper(packed: bytes, version: int) -> bytes:
    magic = 1 if version >= 2 else 0
    fixed = bytes([magic, 1]) + (b"\0" * 8 if magic else b"") + b"\xff\xff\xff\xff"
    content = fixed + struct.pack(">i", len(packed)) + packed
    return struct.pack(">qiI", 0, len(content) + 4, zlib.crc32(content)) + content


def _batch(records: bytes, number: int, codec: int = 1) -> bytes:
    rest = struct.pack(">hiqqqhii", codec, number - 1, 0, 0, -1, -1, -1, number) + records
    crc = calc_crc32c(rest)
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, crc) + rest


def _zigzag(value: int) -> bytes:
    found, value = bytearray(), value << 1
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _gzip(size: int, record: Callable[[int], tuple[bytes, int]], end: int) -> bytes:
    """A gzip stream of records of zeros, about 1000 times `size` long.

    The zeros are deflated once; the bytes before them are inserted in stored blocks.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(_ZEROS)
    packed = packer.compress(zeros + b"\0" * end) + packer.flush(zlib.Z_FULL_FLUSH)
    parts, crc, total = [b"\x1f\x8b\x08\0\0\0\0\0\0\x03"], 0, 0
    for number in range(max(1, size * 1000 // _ZEROS)):
        head, _ = record(number)
        parts += [b"\0" + struct.pack("<HH", len(head), len(head) ^ 0xFFFF) + head, packed]
        crc = zlib.crc32(b"\0" * end, zlib.crc32(zeros, zlib.crc32(head, crc)))
        total += len(head) + _ZEROS + end
    parts.append(b"\x01\0\0\xff\xff" + struct.pack("<II", crc, total & 0xFFFFFFFF))
    return b"".join(parts)
