r"""Converts records to text and text to records: the `-f` verbs, and the JSON form.

    %t topic   %p partition   %o offset   %k key   %v value   %d timestamp (ms)   %i counter from 1
    %T %K %V   the lengths of topic, key, value in bytes      %H number of headers
    %h{...}    the text in braces for each header: %k is its key, %v its value
    %k{hex}    also base64, json, string; %d{...} a strftime format, %d{iso} ISO 8601
    %%         a percent sign;  \n \t \r \0 \\ \xHH as in C

Text output is bytes: keys and values are unchanged. Pure, except for the clock argument.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krust import _krust

Header = tuple[str, bytes | None]


class FormattedRecord(NamedTuple):
    """A record for a format. Its headers are formatted like records."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    @classmethod
    def of(cls, record: _krust.Record) -> FormattedRecord:
        """From a record of the core."""
        place = (record.topic, record.partition, record.offset)
        when = (record.timestamp_ms, record.timestamp_type)
        return cls(*place, *when, record.key, record.value, record.headers)


DECODERS = ("string", "json", "hex", "base64")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_VERB = re.compile(r"%(?:%|([a-zA-Z])(?:\{)?)")


class FormatError(ValueError):
    """An invalid format; the message shows the position."""


def unescape(text: str) -> str:
    r"""Replace `\n`, `\t`, `\r`, `\0`, `\\` and `\xHH`."""

    def replace(found: re.Match[str]) -> str:
        what = found[1]
        if what[0] == "x" and len(what) == 3:
            return chr(int(what[1:], 16))
        if what not in _ESCAPES:
            raise FormatError(rf"\{what} is not an escape; there are \n \t \r \0 \\ \xHH")
        return _ESCAPES[what]

    return _ESCAPE.sub(replace, text)


def split(text: str) -> list[tuple[str, str | None]]:
    """Split a format into (verb, text in its braces) and ("", literal)."""
    pieces: list[tuple[str, str | None]] = []
    at = 0
    while (found := _VERB.search(text, at)) is not None:
        if found.start() > at:
            pieces.append(("", unescape(text[at : found.start()])))
        at = found.end()
        if found[1] is None:
            pieces.append(("", "%"))
        elif found[0].endswith("{"):
            inside, at = _braces(text, at)
            pieces.append((found[1], inside))
        else:
            pieces.append((found[1], None))
    if "%" in text[at:]:
        raise FormatError(f"a % without a verb in {text!r}; %% is a percent sign")
    if text[at:]:
        pieces.append(("", unescape(text[at:])))
    return pieces


def _braces(text: str, at: int) -> tuple[str, int]:
    depth = 1
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[at:place], place + 1
    raise FormatError(f"a brace is not closed in {text!r}")


def formatter(text: str, key: str = "string", value: str = "string") -> Callable[..., bytes]:
    """A function (record, counter) -> bytes for a format.

    key, value  the default decoders of %k and %v, of DECODERS
    raises      FormatError
    """
    pieces = [_piece(verb, inside, (key, value)) for verb, inside in split(text)]
    return lambda record, counter: b"".join(piece(record, counter) for piece in pieces)


def _piece(
    verb: str, inside: str | None, shown: tuple[str, str]
) -> Callable[[FormattedRecord, int], bytes]:
    if verb == "":
        literal = (inside or "").encode()
        return lambda record, counter: literal
    if verb == "h":
        return _headers(inside if inside is not None else "%k=%v ", shown)
    if verb == "d" and inside is not None:
        return lambda record, counter: when(record.timestamp, inside).encode()
    if verb in "kv":
        show = _shower(inside or shown["kv".index(verb)])
        if verb == "k":
            return lambda record, counter: show(record.key)
        return lambda record, counter: show(record.value)
    plain = _PLAIN.get(verb)
    if plain is None or inside is not None:
        braces = "" if inside is None else "{...}"
        raise FormatError(f"there is no %{verb}{braces}; see krust consume --help")
    return lambda record, counter: str(plain(record, counter)).encode()


_PLAIN: dict[str, Callable[[FormattedRecord, int], object]] = {
    "t": lambda record, counter: record.topic,
    "p": lambda record, counter: record.partition,
    "o": lambda record, counter: record.offset,
    "d": lambda record, counter: record.timestamp,
    "i": lambda record, counter: counter,
    "T": lambda record, counter: len(record.topic.encode()),
    "K": lambda record, counter: len(record.key or b""),
    "V": lambda record, counter: len(record.value or b""),
    "H": lambda record, counter: len(record.headers),
}


def _headers(inside: str, shown: tuple[str, str]) -> Callable[[FormattedRecord, int], bytes]:
    each = formatter(inside, "string", shown[1])

    def show(record: FormattedRecord, counter: int) -> bytes:
        as_records = (
            record._replace(key=name.encode(), value=value) for name, value in record.headers
        )
        return b"".join(each(header, counter) for header in as_records)

    return show


def _shower(decoder: str) -> Callable[[bytes | None], bytes]:
    if decoder == "string":
        return lambda data: b"" if data is None else data
    if decoder == "hex":
        return lambda data: b"" if data is None else data.hex().encode()
    if decoder == "base64":
        return lambda data: b"" if data is None else _base64(data).encode()
    if decoder == "json":
        from krust.cli.output import to_json

        return lambda data: to_json(_json(data), compact=True).encode()
    raise FormatError(f"there is no decoder {decoder!r}; there are {', '.join(DECODERS)}")


def when(timestamp: int, form: str) -> str:
    """The timestamp of a record as text; empty: it has none."""
    if timestamp < 0:
        return ""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    if form == "iso":
        return moment.isoformat(timespec="milliseconds")
    found = re.fullmatch(r"strftime\[(.*)\]", form)
    return moment.strftime(found[1] if found else form)


def to_object(
    record: FormattedRecord, key: str = "string", value: str = "string"
) -> dict[str, object]:
    """The JSON form of a record. Bytes that are not UTF-8 are `{"base64": ...}`."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        "key": decode(record.key, key),
        "value": decode(record.value, value),
        "headers": [
            {"key": name, "value": decode(data, "string")} for name, data in record.headers
        ],
    }


def decode(data: bytes | None, decoder: str) -> object:
    """Bytes as a JSON value."""
    if data is None:
        return None
    if decoder == "hex":
        return data.hex()
    if decoder == "base64":
        return _base64(data)
    if decoder == "json":
        return _json(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(data)}


def _json(data: bytes | None) -> object:
    import json

    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return decode(data, "string")


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()


INPUT_FIELDS = frozenset({"key", "value", "headers", "partition", "timestamp_ms"})
OUTPUT_ONLY_FIELDS = frozenset({"topic", "offset", "timestamp_type"})
"""Fields that only `consume` writes into a record's object."""


def from_object(found: object) -> dict[str, Any]:
    """The record of an object of the input. FormatError: an unknown field."""
    if not isinstance(found, dict):
        raise FormatError(f"a record is a JSON object, not {str(found)[:60]!r}")
    if unknown := sorted(found.keys() - INPUT_FIELDS - OUTPUT_ONLY_FIELDS):
        known = ", ".join(sorted(INPUT_FIELDS))
        raise FormatError(f"no field {unknown[0]!r} in a record; its fields are {known}")
    for header in found.get("headers") or ():
        if isinstance(header, dict) and (unknown := sorted(header.keys() - {"key", "value"})):
            raise FormatError(f"no field {unknown[0]!r} in a header; its fields are key, value")
    return found


def encode(value: object) -> bytes | None:
    """The inverse of `decode` for `string`: text, null, `{"base64": ...}`; other values as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        from base64 import b64decode

        return b64decode(value["base64"], validate=True)
    from krust.cli.output import to_json

    return to_json(value, compact=True).encode()


def parser(text: str) -> tuple[re.Pattern[bytes], Sequence[str]]:
    """The pattern of an input format, with one group for each verb (not %h).

    The last literal ends the record. A verb matches as little as possible before the next literal.
    """
    pattern, verbs = b"", []
    for verb, inside in split(text):
        if verb == "":
            pattern += re.escape((inside or "").encode())
        elif verb in "kvtpd" and inside in (None, "hex", "base64", "json", "string"):
            pattern += b"(.*?)" if verb in "kvt" else rb"(-?\d+)"
            verbs.append(verb + (f"{{{inside}}}" if inside in ("hex", "base64") else ""))
        else:
            raise FormatError(f"%{verb} cannot be read; input has %k %v %t %p %d")
    if len({verb[0] for verb in verbs}) != len(verbs) or not verbs:
        raise FormatError(f"{text!r} needs %v or %k, each at most once")
    return re.compile(pattern, re.DOTALL), verbs


def block_fields(text: str) -> list[tuple[str, bytes]] | None:
    """The fields of an input format, each with the literal that ends it.

    None: a field has no such literal or a decoder, or a literal comes first; then use `parser`.
    raises  FormatError
    """
    parser(text)  # raises for an invalid format
    fields: list[tuple[str, bytes]] = []
    for verb, inside in split(text):
        if verb and (verb not in "kvt" or inside in ("hex", "base64")):
            return None
        if verb:
            fields.append((verb, b""))
        elif fields:
            fields[-1] = (fields[-1][0], fields[-1][1] + (inside or "").encode())
        else:
            return None
    return fields if all(literal for _, literal in fields) else None
