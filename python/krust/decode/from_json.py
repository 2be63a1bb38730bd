"""JSON objects to columns. A value is one object in UTF-8. Members without a column are ignored.

There are two ways with one result. pyarrow reads many values (a piece) at once if both ways must
give the same result. If pyarrow refuses a piece, Python's parser reads it value by value and finds
the bad ones. pyarrow reads a piece as lines `{"v":[VALUE,{"MARK":true}]}`. A new line begins only
where the line before has closed all its brackets, because `}` is followed by `{` nowhere else in
JSON. So a row belongs to its value, whatever the values are. If a line is a list of two whose
second element has the random MARK, then VALUE was one whole object.

Types: an integer must be written without a point and fit; a float is any number; a string is a
string; a timestamp is ISO 8601 (without zone: UTC) or milliseconds since 1970; a date is
`2026-11-21`; a decimal is a number or a string whose digits fit; binary is base64; a map is an
object.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from krust.decode.result import Bad, BadValueError, Decoded, by_row

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

PIECE = 1024
"""How many values are read at once, or one by one if one of them is bad."""
_USUAL_DATE = r"^[12]\d{3}-\d\d-\d\d$"
_USUAL_MOMENT = r"^[12]\d{3}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?Z?$"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=_UTC)


class JsonDecoder:
    """Decodes objects to the columns of a schema. A missing member is null."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._readers = {column.name: _reader(column.type, column.name) for column in schema}
        quick = all(_is_same_in_pyarrow(kind) or _is_time(kind) for kind in schema.types)
        self._quick = _PieceReader(schema) if quick else None

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array, piece by piece."""
        import pyarrow as pa

        parts: list[pa.RecordBatch] = []
        good: list[int] = []
        bad: list[Bad] = []
        for begin in range(0, len(values), PIECE):
            piece = values.slice(begin, PIECE)
            quick = self._quick.read(piece) if self._quick else None
            if quick is not None:
                parts.append(quick)
                good.extend(range(begin, begin + len(piece)))
                continue
            found = by_row(piece.to_pylist(), self._read, self.schema)
            parts.append(found.columns)
            rows = range(len(piece)) if found.good is None else found.good
            good.extend(begin + row for row in rows)
            bad.extend(one._replace(row=begin + one.row) for one in found.bad)
        table = pa.Table.from_batches(parts, self.schema).combine_chunks()
        whole = table.to_batches()
        columns = whole[0] if whole else pa.RecordBatch.from_pylist([], self.schema)
        return Decoded(columns, good if bad else None, bad)

    def _read(self, value: bytes) -> dict[str, Any]:
        try:
            tree = json.loads(value.decode(), object_pairs_hook=_object, parse_float=_Number)
        except json.JSONDecodeError as error:
            raise BadValueError(
                f"no JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
            ) from None
        except UnicodeDecodeError as error:
            raise BadValueError(f"no UTF-8 at byte {error.start}") from None
        except RecursionError:
            raise BadValueError("no JSON: too deep") from None
        if not isinstance(tree, _Object):
            raise BadValueError(f"a JSON object is wanted, this is {_kind(tree)}")
        return {
            name: None if (found := tree.pick(name)) is None else read(found)
            for name, read in self._readers.items()
        }


class _Number(float):
    """A number with a point or an exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


_NUMBERS = (int, float, _Number)  # float: NaN and Infinity


class _Object(dict[str, Any]):
    """An object, and the members that it has twice."""

    twice: frozenset[str] = frozenset()

    def pick(self, name: str) -> Any:
        """The member of a column; None: missing or null."""
        if name in self.twice:
            raise BadValueError(f"{name}: there are two of it")
        return self.get(name)


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.twice = frozenset(name for name in names if names.count(name) > 1)
    return made


class _PieceReader:
    """Reads a piece at once, with pyarrow."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.json as pj

        self._schema = schema
        self._mark = f"krust {secrets.token_hex(8)}"
        read = [one.with_type(pa.string()) if _is_time(one.type) else one for one in schema]
        inner = pa.struct([*read, pa.field(self._mark, pa.bool_())])
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([("v", pa.list_(inner))]), unexpected_field_behavior="ignore"
        )
        end = ',{"' + self._mark + '":true}]}\n'
        self._head, self._joint, self._end = b'{"v":[', f'{end}{{"v":['.encode(), end.encode()

    def read(self, piece: pa.Array) -> pa.RecordBatch | None:
        """The columns; None: the piece has to be read value by value."""
        import pyarrow as pa
        import pyarrow.json as pj

        if piece.null_count or not len(piece):
            return None
        values = piece.to_pylist()
        whole = b"".join((self._head, self._joint.join(values), self._end))
        if b"NaN" in whole or b"Inf" in whole:
            return None
        read = pj.ReadOptions(use_threads=False, block_size=len(whole) + 1)
        try:
            whole.decode()
            table = pj.read_json(pa.BufferReader(whole), read, self._options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return self._checked(table.column(0), len(values))

    def _checked(self, found: pa.ChunkedArray, rows: int) -> pa.RecordBatch | None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if len(found) != rows or found.num_chunks != 1 or found.null_count:
            return None
        lists = found.chunk(0)
        if not pc.all(pc.equal(pc.list_value_length(lists), 2)).as_py():
            return None
        pairs = lists.flatten()
        firsts = pairs.take(pa.array(range(0, 2 * rows, 2), pa.int32()))
        marks = pairs.field(len(self._schema)).is_valid()
        if firsts.null_count or pc.sum(marks).as_py() != rows:
            return None
        if firsts.field(len(self._schema)).null_count != rows:
            return None
        columns = firsts.flatten()[: len(self._schema)]
        for number, kind in enumerate(self._schema.types):
            if _is_time(kind):
                columns[number] = _times(columns[number], kind)
        if any(column is None for column in columns):
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _is_time(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return kind == pa.date32() or bool(pa.types.is_timestamp(kind))


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """A column of dates or timestamps; None: one has another form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    usual = _USUAL_DATE if kind == pa.date32() else _USUAL_MOMENT
    if pc.all(pc.match_substring_regex(texts, usual)).as_py() is False:
        return None
    try:
        if kind == pa.date32():
            return texts.cast(kind)
        return pc.replace_substring(texts, "Z", "").cast(pa.timestamp("us")).cast(kind)
    except pa.ArrowException:
        return None


def _is_same_in_pyarrow(kind: pa.DataType) -> bool:
    """Whether pyarrow and Python read this type in the same way."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return all(_is_same_in_pyarrow(part.type) for part in kind)
    if pa.types.is_list(kind):
        return _is_same_in_pyarrow(kind.value_type)
    return kind in (pa.string(), pa.bool_(), pa.float64()) or pa.types.is_signed_integer(kind)


def _kind(found: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    kinds |= {int: "a whole number", float: "a number"}
    return next((name for kind, name in kinds.items() if isinstance(found, kind)), "null")


def _reader(kind: pa.DataType, path: str) -> Callable[[Any], Any]:
    """The function that converts a member to its column's value. Its errors name the path."""
    import pyarrow as pa

    def mismatch(found: Any) -> BadValueError:
        shown = json.dumps(found, default=str)
        shown = shown if len(shown) <= 40 else f"{shown[:39]}…"
        return BadValueError(f"{path}: {shown} is {_kind(found)}, the column is {kind}")

    if pa.types.is_struct(kind):
        return _struct_reader(kind, path, mismatch)
    if pa.types.is_list(kind):
        element = _reader(kind.value_type, f"{path}[]")

        def read_list(found: Any) -> Any:
            if not isinstance(found, list):
                raise mismatch(found)
            return [None if one is None else element(one) for one in found]

        return read_list
    if pa.types.is_map(kind):
        item = _reader(kind.item_type, f"{path}{{}}")
        if kind.key_type != pa.string():
            raise _no_map(path)

        def read_map(found: Any) -> Any:
            if not isinstance(found, _Object) or found.twice:
                raise mismatch(found)
            return [(key, None if one is None else item(one)) for key, one in found.items()]

        return read_map
    read = _scalar_reader(kind)

    def read_scalar(found: Any) -> Any:
        try:
            value = read(found)
        except (ValueError, ArithmeticError):
            value = None
        if value is None:
            raise mismatch(found)
        return value

    return read_scalar


def _no_map(path: str) -> Exception:
    from krust.errors import ConfigError

    return ConfigError(f"{path}: the keys of a map in JSON are strings", hint="map<string, ..>")


def _struct_reader(
    kind: pa.DataType, path: str, mismatch: Callable[[Any], BadValueError]
) -> Callable[[Any], Any]:
    readers = {part.name: _reader(part.type, f"{path}.{part.name}") for part in kind}

    def read_struct(found: Any) -> Any:
        if not isinstance(found, _Object):
            raise mismatch(found)
        return {
            name: None if (part := found.pick(name)) is None else read(part)
            for name, read in readers.items()
        }

    return read_struct


def _scalar_reader(kind: pa.DataType) -> Callable[[Any], Any]:
    """The function of a scalar. For a bad value it returns None or raises ValueError or
    ArithmeticError.
    """
    import pyarrow as pa

    if pa.types.is_signed_integer(kind):
        top = 1 << (kind.bit_width - 1)
        return lambda found: found if type(found) is int and -top <= found < top else None
    if kind == pa.float64() or kind == pa.float32():
        return lambda found: float(found) if type(found) in _NUMBERS else None
    if kind == pa.bool_():
        return lambda found: found if type(found) is bool else None
    if kind == pa.string():
        return lambda found: _text(found) if type(found) is str else None
    if kind == pa.binary():
        return lambda found: base64.b64decode(found, validate=True) if type(found) is str else None
    if kind == pa.date32():
        return _date
    if pa.types.is_timestamp(kind):
        return _moment
    return lambda found: _decimal(found, kind.precision, kind.scale)


def _text(found: str) -> str:
    found.encode()  # a lone surrogate is no text
    return found


def _date(found: Any) -> dt.date | None:
    if type(found) is not str or not _DATE.fullmatch(found):
        return None
    return dt.date.fromisoformat(found)


def _moment(found: Any) -> dt.datetime | None:
    if type(found) is int:
        return _EPOCH + dt.timedelta(milliseconds=found)
    if type(found) is not str or not _MOMENT.fullmatch(found):
        return None
    moment = dt.datetime.fromisoformat(found)
    return moment.astimezone(_UTC) if moment.tzinfo else moment.replace(tzinfo=_UTC)


def _decimal(found: Any, precision: int, scale: int) -> Decimal | None:
    if type(found) not in (str, *_NUMBERS):
        return None
    number = Decimal(getattr(found, "text", found))
    if not number.is_finite() or abs(number.adjusted()) > 2 * precision:
        return None
    scaled = number.scaleb(scale)
    fits = scaled == scaled.to_integral_value() and abs(scaled) < Decimal(10) ** precision
    return number if fits else None
