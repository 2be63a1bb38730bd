"""The result of decoding: the columns of good rows, and each bad row with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

REASON_CHARS = 300
"""The most characters of a reason, which goes into a record's header."""


class BadValueError(Exception):
    """A value cannot be decoded; the text is the reason."""


class Bad(NamedTuple):
    """A row that could not be decoded."""

    row: int
    reason: str


@dataclass
class Decoded:
    """The columns of good rows, the numbers of these rows (None: all), and the bad rows."""

    columns: pa.RecordBatch
    good: Sequence[int] | None = None
    bad: list[Bad] = field(default_factory=list)


class Decoder(Protocol):
    """Decodes values of one format to columns of one schema."""

    schema: pa.Schema

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array. No value makes it raise."""


def reason_of(error: BaseException) -> str:
    """An error as a reason: one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= REASON_CHARS else f"{text[: REASON_CHARS - 1]}…"


def by_row(
    values: Iterable[bytes | None], read: Callable[[bytes], dict[str, Any]], schema: pa.Schema
) -> Decoded:
    """Decode row by row.

    read   one value to its fields by name; BadValueError and what the libraries raise for
           bytes they cannot read mark the row as bad
    """
    good: list[int] = []
    fields: list[dict[str, Any]] = []
    bad: list[Bad] = []
    for row, value in enumerate(values):
        try:
            fields.append({} if value is None else read(value))
            good.append(row)
        except (BadValueError, *_READ_ERRORS) as error:
            bad.append(Bad(row, reason_of(error)))
    return _built(fields, good, bad, schema)


_READ_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The exceptions of the libraries for invalid bytes."""


def _built(
    fields: list[dict[str, Any]], good: list[int], bad: list[Bad], schema: pa.Schema
) -> Decoded:
    import pyarrow as pa

    try:
        return Decoded(columns(fields, schema), good if bad else None, bad)
    except (pa.ArrowException, *_READ_ERRORS):
        pass  # a row does not fit its column: find it
    fitting: list[int] = []
    for number, row in enumerate(good):
        try:
            columns(fields[number : number + 1], schema)
            fitting.append(number)
        except (pa.ArrowException, *_READ_ERRORS) as error:
            bad.append(Bad(row, reason_of(error)))
    kept = columns([fields[number] for number in fitting], schema)
    return Decoded(kept, [good[number] for number in fitting], sorted(bad))


def columns(fields: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of rows, which are fields by name. A missing field is null."""
    import pyarrow as pa

    arrays = [pa.array([row.get(c.name) for row in fields], c.type) for c in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
