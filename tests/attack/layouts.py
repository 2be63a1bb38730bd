"""The requests of every API by krust's schema, and an encoder for them that shares no code with it.

An API is added in `rust/schema` alone, so this code meets each new one. `rust/build/schema.rs`
explains the format of the lines.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SCHEMA = Path(__file__).parents[2] / "rust/schema"
LATEST = 0x7FFF
NUMBERS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
NUMBERS |= {"float64": "d"}

Value = None | bool | int | float | bytes | list["Value"] | dict[str, "Value"]


@dataclass
class Field:
    """One line of a schema: `kind` is a scalar's type, or `inner` has the struct's fields."""

    name: str
    kind: str
    array: bool
    first: int
    last: int
    nullable: tuple[int, int] | None
    tagged: bool
    default: str | None
    inner: list[Field] = field(default_factory=list)

    def at(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass
class Layout:
    """The request of one API."""

    key: int
    name: str
    first: int
    last: int
    flexible: int
    fields: list[Field] = field(default_factory=list)

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible


@cache
def layouts() -> dict[int, Layout]:
    """The requests that the schema has, by key."""
    found = [_parsed(path.read_text()) for path in sorted(SCHEMA.glob("*.txt"))]
    return {each.key: each for each in sorted(found, key=lambda each: each.key)}


def _parsed(text: str) -> Layout:
    lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
    layout, parents = Layout(-1, "", 0, 0, LATEST), [(-1, list[Field]())]
    for line in filter(None, lines):
        words = line.split()
        if words[0] == "api":
            first, _, last = words[3].partition("-")
            flexible = LATEST if words[5] == "none" else int(words[5])
            layout = Layout(int(words[1]), words[2], int(first), int(last), flexible)
            parents = [(0, layout.fields)]
        elif line == "response":
            break
        elif line != "request":
            depth = (len(line) - len(line.lstrip())) // 2
            while parents[-1][0] >= depth:
                parents.pop()
            above = parents[-1][1]
            new = _field(words)
            above.append(new)
            parents.append((depth, new.inner))
    return layout


def _field(words: list[str]) -> Field:
    name, kind, *marks = words
    new = Field(name, kind.strip("[]"), kind[0] == "[", 0, LATEST, None, tagged=False, default=None)
    while marks:
        mark = marks.pop(0)
        if mark in ("tag", "="):
            new.tagged |= mark == "tag"
            new.default = marks.pop(0) if mark == "=" else new.default
            _ = marks.pop(0) if mark == "tag" else None
        elif mark.startswith("?"):
            new.nullable = _range(mark[1:]) if mark[1:] else (new.first, new.last)
        else:
            new.first, new.last = _range(mark)
    return new


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), LATEST
    return int(first), int(last or first)


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def header(layout: Layout, version: int, correlation_id: int, client_id: bytes) -> bytes:
    """The header of a request."""
    tags = b"\0" if layout.is_flexible(version) else b""
    head = struct.pack(">hhih", layout.key, version, correlation_id, len(client_id))
    return head + client_id + tags


def count(number: int, *, flexible: bool) -> bytes:
    """How many elements an array has."""
    return varint(number + 1) if flexible else struct.pack(">i", number)


def scalar(kind: str, value: Value, *, flexible: bool) -> bytes:
    """One value that is neither a struct nor an array."""
    if kind in NUMBERS:
        return struct.pack(">" + NUMBERS[kind], value)
    if kind == "uuid":
        assert isinstance(value, bytes)
        return value
    if value is None:
        return b"\0" if flexible else b"\xff\xff" if kind == "string" else b"\xff\xff\xff\xff"
    assert isinstance(value, bytes)
    if flexible:
        return varint(len(value) + 1) + value
    return struct.pack(">h" if kind == "string" else ">i", len(value)) + value
