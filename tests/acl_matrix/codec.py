"""Requests and answers of every API as dicts with Kafka's field names, by Kafka's own layouts.

The layouts are `tests/data/facts/layouts.json`; no code is shared with krust. A field that a dict
lacks is 0, "", false, None or [] (None where it may be null). Fields that a version lacks are left
out, so that one dict serves all versions.
"""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

FACTS = Path(__file__).parents[1] / "data/facts/layouts.json"
NUMBERS = {"boolean": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
NUMBERS |= {"float64": "d"}
NULLABLE = {("ConsumerGroupHeartbeat", "assignment")}
NULLABLE |= {("DescribeTopicPartitions", name) for name in ("cursor", "next_cursor")}
"""structs that may be null, which the layouts do not say"""

Body = dict[str, Any]
Layout = list[list[Any]]


@cache
def _apis() -> dict[str, dict[str, Any]]:
    found = {each["name"]: each for each in json.loads(FACTS.read_text())}
    for api, name in NULLABLE:
        for layout in (*found[api]["request"].values(), *found[api]["response"].values()):
            for field in layout:
                if field[0] == name:
                    field[1] = {"nullable": field[1]}
    return found


def versions(api: str, kafka: str = "kafka_3_9") -> range:
    """The versions that a Kafka serves."""
    first, last, *_ = _apis()[api][kafka]
    return range(first, last + 1)


def request(api: str, version: int, body: Body) -> bytes:
    """A whole frame."""
    facts = _apis()[api]
    tags = b"\0" if _is_flexible(api, version) else b""
    head = struct.pack(">hhihs", facts["key"], version, 0, 1, b"m") + tags
    found = head + _struct(facts["request"][str(version)], body)
    return struct.pack(">i", len(found)) + found


def answer(api: str, version: int, data: bytes) -> Body:
    """The body of an answer, given without its length."""
    reader = _Reader(data, 4)
    if _is_flexible(api, version) and api != "ApiVersions":
        reader.take(1)
    found = reader.struct(_apis()[api]["response"][str(version)])
    assert reader.at == len(data), f"{len(data) - reader.at} bytes are left of {api} {version}"
    return found


def _is_flexible(api: str, version: int) -> bool:
    first = next((each for each in _apis()[api]["flexible_from"] if each >= 0), 1 << 15)
    return version >= first


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _struct(layout: Layout, body: Body) -> bytes:
    return b"".join(_field(name, kind, body) for name, kind in layout)


def _field(name: str, kind: Any, body: Body) -> bytes:
    value = body.get(name)
    if isinstance(kind, list):
        return _struct(kind, value or {})
    if not isinstance(kind, dict):
        return _scalar(kind, value)
    [(word, inner)] = kind.items()
    if word == "tags":
        return _tags(inner, body)
    if word == "nullable":
        return b"\xff" if value is None else b"\1" + _struct(inner, value)
    if value is None and "nullable" in word:
        return _length(None, word)
    items = value or []
    whole = [
        _struct(inner, each) if isinstance(inner, list) else _scalar(inner, each) for each in items
    ]
    return _length(len(items), word) + b"".join(whole)


def _tags(inner: dict[str, Any], body: Body) -> bytes:
    found = []
    for word, kind in inner.items():
        number, name = word.split()
        if name in body:
            data = _field(name, kind, body)
            found.append(_varint(int(number)) + _varint(len(data)) + data)
    return _varint(len(found)) + b"".join(found)


def _scalar(kind: str, value: Any) -> bytes:
    if kind in NUMBERS:
        return struct.pack(">" + NUMBERS[kind], value or 0)
    if kind == "uuid":
        return value or bytes(16)
    if value is None and "nullable" not in kind:
        value = b""
    data = value.encode() if isinstance(value, str) else value
    return _length(None if data is None else len(data), kind) + (data or b"")


def _length(length: int | None, kind: str) -> bytes:
    if "compact" in kind:
        return _varint(0 if length is None else length + 1)
    return struct.pack(">h" if "string" in kind else ">i", -1 if length is None else length)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        assert len(found) == size, "the answer is cut"
        self.at += size
        return found

    def struct(self, layout: Layout) -> Body:
        found: Body = {}
        for name, kind in layout:
            if isinstance(kind, dict) and "tags" in kind:
                self._tags(kind["tags"], found)
            else:
                found[name] = self._field(kind)
        return found

    def _tags(self, known: dict[str, Any], found: Body) -> None:
        names = {int(word.split()[0]): (word.split()[1], kind) for word, kind in known.items()}
        for _ in range(self._varint()):
            number, size = self._varint(), self._varint()
            if number in names:
                name, kind = names[number]
                found[name] = self._field(kind)
            else:
                self.take(size)

    def _field(self, kind: Any) -> Any:
        if isinstance(kind, list):
            return self.struct(kind)
        if isinstance(kind, dict):
            [(word, inner)] = kind.items()
            if word == "nullable":
                return self.struct(inner) if self.take(1) == b"\1" else None
            length = self._length(word)
            return None if length is None else [self._field(inner) for _ in range(length)]
        if kind in NUMBERS:
            code = ">" + NUMBERS[kind]
            return struct.unpack(code, self.take(struct.calcsize(code)))[0]
        if kind == "uuid":
            return self.take(16)
        length = self._length(kind)
        data = None if length is None else self.take(length)
        return data.decode() if data is not None and "string" in kind else data

    def _length(self, kind: str) -> int | None:
        if "compact" in kind:
            length = self._varint() - 1
        else:
            code = ">h" if "string" in kind else ">i"
            [length] = struct.unpack(code, self.take(struct.calcsize(code)))
        return None if length < 0 else length

    def _varint(self) -> int:
        value = shift = 0
        while True:
            [byte] = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
