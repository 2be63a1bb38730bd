"""`krust produce` turns lines into records: flushes, the end of input, bad lines. No broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from krust.cli.produce import _send_input
from krust.cli.records import FormatError, block_fields, parser

HOW = {"form": r"%v\n", "key": None, "headers": (), "partition": None, "null": False}


class Sent:
    """A producer that keeps what it is given; blocks are cut by the pattern of their format."""

    def __init__(self, form: str) -> None:
        self.values: list[bytes] = []
        self._pattern, self._fields = parser(form)[0], block_fields(form)

    def send(self, topic: str, records: list[Any]) -> None:
        self.values += [value for _, value, *_ in records]

    def send_block(
        self, topic: str, block: bytes, fields: object, *, limit: int | None, **common: object
    ) -> tuple[int, int]:
        assert fields == self._fields
        found = list(self._pattern.finditer(block))[:limit]
        self.values += [one.groups()[-1] for one in found]
        return len(found), found[-1].end() if found else 0


@pytest.fixture
def pipe() -> Iterator[tuple[str, int]]:
    """A pipe: the name of its end for reading, and the other end."""
    reader, writer = os.pipe()
    yield f"/dev/fd/{reader}", writer
    os.close(reader)


def run(how: dict[str, Any], sent: Sent, flush: Callable[[], None]) -> None:
    """Send what can be read, to its end."""
    for _ in _send_input("t", how, sent, flush):  # type: ignore[arg-type]
        pass


def send(given: bytes, pipe: tuple[str, int], **how: Any) -> list[bytes]:
    """Send all of `given` and then its end."""
    source, writer = pipe
    os.write(writer, given)
    os.close(writer)
    how = HOW | {"count": None, "source": source} | how
    sent = Sent(how["form"]) if how["form"] != "json" else Sent(r"%v\n")
    run(how, sent, lambda: None)
    return sent.values


@pytest.mark.parametrize("form", [r"%v\n", r"%v{hex}\n"])
def test_a_line_is_flushed_before_the_wait_for_the_next(form: str, pipe: tuple[str, int]) -> None:
    source, writer = pipe
    sent, seen = Sent(form), list[int]()
    steps: list[Callable[[], object]] = [
        lambda: os.write(writer, b"61\n62"),
        lambda: os.write(writer, b"63\n64\n"),
        lambda: os.close(writer),
    ]

    def flush() -> None:
        seen.append(len(sent.values))
        steps.pop(0)()

    how = HOW | {"form": form, "count": None, "source": source}
    run(how, sent, flush)
    assert seen == [0, 1, 3]


def test_a_last_line_needs_no_newline(pipe: tuple[str, int]) -> None:
    assert send(b"a\n\nb", pipe) == [b"a", b"", b"b"]


@pytest.mark.parametrize("form", [r"%v\n", r"%v{base64}\n"])
def test_a_count_ends_the_reading_without_a_wait(form: str, pipe: tuple[str, int]) -> None:
    source, writer = pipe
    os.write(writer, b"YQ==\nYg==\nYw==\n")
    sent = Sent(form)

    def flush() -> None:
        raise AssertionError("waited for more than the count")

    how = HOW | {"form": form, "count": 2, "source": source}
    run(how, sent, flush)
    os.close(writer)
    assert len(sent.values) == 2


@pytest.mark.parametrize(
    ("form", "given", "line"),
    [
        (r"%k\t%v\n", b"a\tb\nc\td\n\nonly\n", 3),
        (r"%k{hex}\t%v\n", b"61\tb\n6\td\n", 2),
        (r"%p %v\n", b"1 a\n2 b\nx c\n", 3),
        ("json", b'{"value": "a"}\n\n{"value": "b"}\n{"valeu": "c"}\n', 4),
        ("json", b'{"value": "a"}\n{', 2),
    ],
)
def test_an_error_names_the_line(form: str, given: bytes, line: int, pipe: tuple[str, int]) -> None:
    with pytest.raises(FormatError, match=f"^line {line}: "):
        send(given, pipe, form=form)
