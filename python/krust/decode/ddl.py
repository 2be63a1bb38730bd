"""Converts columns in SQL, `id bigint, tags array<string>`, to an Arrow schema and back.

The words and types are Spark's, so a schema of a Spark program can be used unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krust.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_0-9][\w.$-]*)|([<>(),:]))")
_DEPTH = 32
_WORDS = {
    "boolean": "bool_",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}


def schema(text: str) -> pa.Schema:
    """Parse columns. ConfigError: invalid, with the position."""
    import pyarrow as pa

    tokens = _Tokens(text)
    columns = tokens.fields("")
    if not columns or tokens.peek() is not None:
        raise tokens.error("a column: `name type, name type`")
    names = [column.name.lower() for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"schema {text!r}: two columns are named {twice!r}")
    return pa.schema(columns)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def error(self, wanted: str) -> ConfigError:
        rest = self._text[self._at : self._at + 20].strip() or "its end"
        return ConfigError(
            f"schema {self._text!r}: at {rest!r} there should be {wanted}",
            hint="write it as in SQL: id bigint, name string, tags array<string>",
        )

    def peek(self) -> str | None:
        """The next word or sign; None: the end of the text."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                raise self.error("a name or a type")
            return None
        return found[1] or found[2] or found[3]

    def take(self, *wanted: str) -> str:
        """Take the next word, which must be one of these if any are given."""
        word = self.peek()
        if word is None or (wanted and word not in wanted):
            raise self.error(" or ".join(wanted) or "a word")
        found = _TOKEN.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return word

    def fields(self, end: str) -> list[pa.Field]:
        """Parse columns, or a struct's fields, up to `end`."""
        import pyarrow as pa

        found = []
        while True:
            name = self.take()
            if name in "<>(),:":
                raise self.error("a name")
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self.peek() == ":":
                self.take()
            found.append(pa.field(name, self.type()))
            if self.peek() != ",":
                break
            self.take()
        if end:
            self.take(end)
        return found

    def type(self) -> pa.DataType:
        """Parse one type."""
        import pyarrow as pa

        self._depth += 1
        if self._depth > _DEPTH:
            raise self.error(f"no type inside {_DEPTH} others")
        word = self.take().lower()
        if word in _WORDS:
            made = getattr(pa, _WORDS[word])()
        elif word == "timestamp":
            made = pa.timestamp("us", "UTC")
        elif word == "timestamp_ntz":
            made = pa.timestamp("us")
        elif word in ("decimal", "numeric"):
            made = self._decimal()
        elif word == "array":
            self.take("<")
            made = pa.list_(pa.field("element", self.type()))
            self.take(">")
        elif word == "map":
            self.take("<")
            key = self.type()
            self.take(",")
            made = pa.map_(key, self.type())
            self.take(">")
        elif word == "struct":
            self.take("<")
            made = pa.struct(self.fields(">"))
        else:
            raise ConfigError(
                f"schema {self._text!r}: there is no type {word!r}",
                hint=f"there are {', '.join([*_WORDS, 'timestamp', 'decimal(10,2)'])}, "
                "array<..>, map<..>, struct<..>",
            )
        self._depth -= 1
        return made

    def _decimal(self) -> pa.DataType:
        import pyarrow as pa

        if self.peek() != "(":
            return pa.decimal128(10, 0)
        self.take("(")
        numbers = [self.take()]
        if self.take(",", ")") == ",":
            numbers.append(self.take())
            self.take(")")
        if not all(map(str.isdecimal, numbers)):
            raise self.error("decimal(precision, scale)")
        precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
        if not (0 < precision <= 38 and 0 <= scale <= precision):
            raise self.error("a decimal of 1 to 38 digits")
        return pa.decimal128(precision, scale)


def text(columns: pa.Schema) -> str:
    """A schema as SQL. ConfigError: a type that Spark does not have."""
    return ", ".join(f"{_quoted(column.name)} {_type(column.type)}" for column in columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)},{_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        inner = ",".join(f"{_quoted(part.name)}:{_type(part.type)}" for part in kind)
        return f"struct<{inner}>"
    for word, maker in _WORDS.items():
        if getattr(pa, maker)() == kind:
            return word
    raise ConfigError(f"Spark has no column type for Arrow's {kind}")
