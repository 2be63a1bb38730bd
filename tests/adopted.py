"""Log directories that real Kafkas wrote (`tests/data/kafka-dirs`), unpacked to be adopted."""

from __future__ import annotations

import base64
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data/kafka-dirs"


class ExpectedRecord(NamedTuple):
    """A record as a reader must see it; timestamp None: the format has no timestamp."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def unpack(name: str, target: Path) -> Path:
    """Write the directory `name` below `target`; its path."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target / name


def description(name: str) -> Any:
    """The JSON description of a directory."""
    with lzma.open(DATA / f"{name}.json.xz", "rt") as file:
        return json.load(file)


def acknowledged() -> dict[tuple[int, int], bytes]:
    """(partition, offset) -> value, of the records that the killed broker had acknowledged."""
    rows = description("kafka-3.9.1-killed.acked").items()
    return {_place(place): str(value).encode() for place, value in rows}


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition("-")
    return int(partition), int(offset)


def records(rows: list[Any], *, old: bool) -> list[ExpectedRecord]:
    """Rows of the JSON; `old`: the column order of the 0.8 and 0.10 directories."""
    found = []
    for row in rows:
        offset, second, third, key, value, headers = row
        pairs = tuple((name, _bytes(text)) for name, text in headers)
        timestamp = second if old else third
        found.append(ExpectedRecord(offset, timestamp, _bytes(key), _bytes(value), pairs))
    return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
