"""Requests of a careless or hostile client: written by the layout of their API with plausible
values, and then damaged. The answers are read by the same layout.

The layouts are Kafka's (`tests/data/facts/layouts.json`), not krust's own schema. The seed alone
decides which requests are made.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FACTS = Path(__file__).parents[1] / "data/facts/layouts.json"
WHOLE = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}
EDGES = [-(2**31), -2, -1, 0, 1, 2, 500, 6000, 10_000, 2**31 - 1]
LENGTHS = [-2, -1, 0, 1, 255, 2**16, 2**31 - 1]

Layout = list[list[Any]]


def apis(keys: set[int]) -> dict[int, dict[str, Any]]:
    """Kafka's layouts of these APIs, by key."""
    found = {each["key"]: each for each in json.loads(FACTS.read_text())}
    return {key: found[key] for key in sorted(keys)}


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFF
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(chance: random.Random) -> bytes:
    """A member's metadata of version 0-3, whole, cut, lying about its counts, or noise."""
    version = chance.randrange(-1, 5)
    topics = [chance.choice(["t", "u", "", "no such"]) for _ in range(chance.randrange(4))]
    owned = struct.pack(">i", 1) + text("t") + struct.pack(">iii", 2, 0, chance.choice(EDGES))
    parts = [struct.pack(">h", version), struct.pack(">i", len(topics)), *map(text, topics)]
    parts += [
        struct.pack(">i", 3) + b"raw",
        owned,
        struct.pack(">i", chance.choice(EDGES)),
        text("r"),
    ]
    match chance.randrange(5):
        case 0:
            return b"".join(parts)
        case 1:
            whole = b"".join(parts)
            return whole[: chance.randrange(len(whole) + 1)]
        case 2:
            lie = struct.pack(">i", chance.choice([-2, -1, 2**31 - 1, 2**24]))
            parts[chance.choice([1, 4])] = lie
            return b"".join(parts)
        case 3:
            return chance.randbytes(chance.choice([0, 1, 2, 30, 3000]))
        case _:
            # As many topics as bytes, all of them without a name.
            count = 200_000
            return struct.pack(">hi", 0, count) + b"\0\0" * count + b"\xff\xff\xff\xff"


@dataclass
class Body:
    """The bytes of one message, and the positions of its lengths and counts.

    names   the values that fields of a name may have, besides those of their type
    """

    chance: random.Random
    names: dict[str, list[Any]]
    data: bytearray = field(default_factory=bytearray)
    marks: list[tuple[int, int]] = field(default_factory=list)
    """place and size; a size of 0 stands for a varint of one byte"""

    def write(self, layout: Layout) -> None:
        for name, kind in layout:
            self._field(name, kind)

    def _field(self, name: str, kind: Any) -> None:
        if isinstance(kind, list):
            self.write(kind)
        elif isinstance(kind, dict):
            [(word, element)] = kind.items()
            if word == "tags":
                self.data += b"\0"
            else:
                self._array(name, word, element)
        elif kind in WHOLE:
            wide = self._value(name, EDGES) & (1 << 8 * WHOLE[kind]) - 1
            self.data += wide.to_bytes(WHOLE[kind], "big")
        elif kind == "boolean":
            self.data.append(self.chance.randrange(2))
        elif kind == "uuid":
            self.data += self._value(name, [bytes(16), self.chance.randbytes(16)])
        else:
            self._text(name, kind)

    def _value(self, name: str, others: list[Any]) -> Any:
        value = self.chance.choice(self.names.get(name, others))
        return value(self.chance) if callable(value) else value

    def _text(self, name: str, kind: str) -> None:
        value = self._value(name, ["", "x", "ü" * 10, "y" * 300])
        if "nullable" in kind and self.chance.randrange(3) == 0:
            value = None
        data = value.encode() if isinstance(value, str) else value
        if data is not None and "string" in kind:
            data = data[:0x7FFF]
        self._length(None if data is None else len(data), kind)
        self.data += data or b""

    def _array(self, name: str, word: str, element: Any) -> None:
        count = self.chance.choice([0, 1, 1, 1, 2, 3])
        if "nullable" in word and self.chance.randrange(3) == 0:
            self._length(None, word)
            return
        self._length(count, word)
        for _ in range(count):
            self._field(name, element)

    def _length(self, length: int | None, kind: str) -> None:
        place = len(self.data)
        if "compact" in kind:
            self.data += varint(0 if length is None else length + 1)
            self.marks += [(place, 0)] * (len(self.data) == place + 1)
            return
        size = 4 if "array" in kind or "bytes" in kind else 2
        self.data += (-1 if length is None else length).to_bytes(size, "big", signed=True)
        self.marks.append((place, size))

    def damaged(self) -> bytes:
        """The bytes with one thing wrong."""
        found, chance = bytearray(self.data), self.chance
        kind = chance.randrange(4)
        if kind == 0 or not found:
            return bytes(found[: chance.randrange(len(found) + 1)])
        if kind == 1 and self.marks:
            place, size = chance.choice(self.marks)
            length = chance.choice(LENGTHS)
            if size == 0:
                found[place : place + 1] = varint(length + 1)
            else:
                lie = max(-(1 << 8 * size - 1), min(length, (1 << 8 * size - 1) - 1))
                found[place : place + size] = lie.to_bytes(size, "big", signed=True)
            return bytes(found)
        if kind == 2:
            return bytes(found) + chance.randbytes(chance.choice([1, 4, 400]))
        for _ in range(chance.choice([1, 1, 5])):
            found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
        return bytes(found)


def frame(api: dict[str, Any], version: int, number: int, body: bytes) -> bytes:
    """A request around a body."""
    first = _flexible_from(api)
    tags = b"\0" if 0 <= first <= version else b""
    head = struct.pack(">hhi", api["key"], version, number) + text("bad") + tags
    return struct.pack(">i", len(head + body)) + head + body


def _flexible_from(api: dict[str, Any]) -> int:
    """The first flexible version; one Kafka or the other lacks some APIs."""
    return int(next((each for each in api["flexible_from"] if each >= 0), -1))


class Answer:
    """An answer, read by its layout: `.codes` are all error codes in it, `.members` all ids."""

    def __init__(self, api: dict[str, Any], version: int, data: bytes) -> None:
        self._data, self._at = data, 4
        self._key = api["key"]
        self.number = int.from_bytes(data[:4], "big")
        self.codes: list[int] = []
        self.members: list[str] = []
        first = _flexible_from(api)
        if 0 <= first <= version:
            assert self._take(1) == b"\0"
        self._struct(api["response"][str(version)])
        assert self._at == len(data), "bytes are left"

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        assert len(found) == size, "the answer is cut"
        self._at += size
        return found

    def _whole(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            [byte] = self._take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _struct(self, layout: Layout) -> None:
        for name, kind in layout:
            # The facts do not say that this one may be null.
            if self._key == 68 and name == "assignment" and self._whole(1) < 0:
                continue
            self._field(name, kind)

    def _field(self, name: str, kind: Any) -> None:
        if isinstance(kind, list):
            self._struct(kind)
        elif isinstance(kind, dict):
            [(word, element)] = kind.items()
            if word == "tags":
                assert self._take(1) == b"\0", "tags"
            else:
                for _ in range(self._length(word)):
                    self._field(name, element)
        elif kind in WHOLE:
            value = self._whole(WHOLE[kind])
            if name == "error_code":
                self.codes.append(value)
        elif kind in ("boolean", "uuid"):
            self._take(1 if kind == "boolean" else 16)
        else:
            found = self._take(self._length(kind))
            if name == "member_id" and found:
                self.members.append(found.decode())

    def _length(self, kind: str) -> int:
        if "compact" in kind:
            return max(0, self._varint() - 1)
        return max(0, self._whole(4 if "array" in kind or "bytes" in kind else 2))


def requests(
    known: dict[int, dict[str, Any]],
    chance: random.Random,
    names: dict[str, list[Any]],
    each: int,
    often: set[int],
) -> Iterator[tuple[dict[str, Any], int, bytes, bool]]:
    """API, version, body and whether it is whole, `each` times for every version of every API; four
    times as often for those that get others further."""
    places = [(api, int(version)) for api in known.values() for version in api["request"]]
    places += 3 * [place for place in places if place[0]["key"] in often]
    places *= each
    chance.shuffle(places)
    for api, version in places:
        body = Body(chance, names)
        body.write(api["request"][str(version)])
        whole = chance.randrange(2) == 0
        yield api, version, bytes(body.data) if whole else body.damaged(), whole
