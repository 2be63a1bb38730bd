"""Avro to columns: the 5-byte header names the writer's schema, fastavro resolves it to the
reader's.

The reader's schema is a record whose fields are the columns. [null, T] is a nullable T. A union of
int and long, or of float and double, is the wider type. Other unions have no column type. Times,
dates and decimals have Arrow's types; uuid and enum are text.

A writer's schema is refused if a few hostile bytes could ask for endless work: a recursive record,
or an array or map whose elements take no bytes (null, an empty record).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from krust.decode import framing
from krust.decode.result import BadValueError, Decoded, by_row, reason_of
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from krust.decode.schemas import Schemas

_PLAIN = {
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "fixed": "binary",
}


class AvroDecoder:
    """Decodes values to the fields of a reader's schema.

    reader   the reader's schema, as JSON
    schemas  writers' schemas by id; None: values have no header and are written with `reader`
    """

    def __init__(self, reader: Any, schemas: Schemas | None) -> None:
        self._reader = _parsed(reader)
        self.schema = arrow_schema(reader)
        self._schemas = schemas
        self._writers: dict[int, Any] = {}

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array."""
        if len(self._writers) > 1000:
            self._writers.clear()
        return by_row(values.to_pylist(), self._read, self.schema)

    def _read(self, value: bytes) -> dict[str, Any]:
        import fastavro

        writer, body = self._reader, value
        if self._schemas is not None:
            writer, body = self._writer(framing.schema_id(value)), value[framing.HEADER_BYTES :]
        stream = io.BytesIO(body)
        reader = None if writer is self._reader else self._reader
        try:
            found: Any = fastavro.schemaless_reader(stream, writer, reader)
        except MemoryError:
            raise BadValueError("the lengths in it are larger than any value") from None
        except fastavro.read.SchemaResolutionError as error:
            raise BadValueError(f"its schema does not fit: {reason_of(error)}") from None
        left = len(body) - stream.tell()
        if left:
            raise BadValueError(f"{left} bytes are left behind the value")
        return {name: _plain(field) for name, field in found.items()}

    def _writer(self, number: int) -> Any:
        found = self._writers.get(number)
        if found is None:
            source = self._schemas[number] if self._schemas is not None else None
            try:
                found = _parsed(source)
            except ConfigError as error:
                found = error
            self._writers[number] = found
        if isinstance(found, ConfigError):
            raise BadValueError(f"schema {number}: {found}")
        return found


def _plain(found: Any) -> Any:
    """A value for pyarrow: a uuid becomes text."""
    import uuid

    if isinstance(found, uuid.UUID):
        return str(found)
    if isinstance(found, dict):
        return {name: _plain(field) for name, field in found.items()}
    if isinstance(found, list):
        return [_plain(one) for one in found]
    return found


def _parsed(schema: Any) -> Any:
    """A schema for fastavro, after it was checked to be harmless."""
    import fastavro

    try:
        parsed = fastavro.parse_schema(schema)
    except Exception as error:  # fastavro raises exceptions of many types
        raise ConfigError(f"no Avro schema: {reason_of(error)}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError("an Avro record is wanted, its fields are the columns")
    _least_bytes(schema, {}, ())
    return parsed


def _least_bytes(schema: Any, named: dict[str, int], inside: tuple[str, ...]) -> int:
    """The fewest bytes of a value. ConfigError: hostile bytes could abuse the schema."""
    if isinstance(schema, list):
        for branch in schema:
            _least_bytes(branch, named, inside)
        return 1
    if isinstance(schema, str):
        name = schema.rpartition(".")[2]
        if name in inside:
            raise ConfigError(f"record {name} is inside itself: it has no columns")
        return 0 if schema == "null" else named.get(name, 1)
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _least_bytes(kind, named, inside)
    name = str(schema.get("name", "")).rpartition(".")[2]
    if kind in ("record", "error"):
        parts = (field["type"] for field in schema["fields"])
        named[name] = sum(_least_bytes(part, named, (*inside, name)) for part in parts)
        return named[name]
    if kind in ("array", "map"):
        item = _least_bytes(schema["items" if kind == "array" else "values"], named, inside)
        if kind == "array" and not item:
            raise ConfigError("an array of things that take no bytes")
        return 1
    if kind == "fixed":
        named[name] = int(schema["size"])
        return named[name]
    return _least_bytes(kind, named, inside) if kind not in _PLAIN else 1


def arrow_schema(schema: Any) -> pa.Schema:
    """The columns of a reader's schema. ConfigError: no record, or a field has no column type."""
    import pyarrow as pa

    _parsed(schema)
    return pa.schema(list(_Types().of(schema, "")))


class _Types:
    """Converts Avro types to Arrow types, and keeps the named types of the schema."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}

    def of(self, schema: Any, path: str) -> pa.DataType:
        import pyarrow as pa

        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            name = schema.rpartition(".")[2]
            if schema in _PLAIN:
                return getattr(pa, _PLAIN[schema])()
            if name in self._named:
                return self._named[name]
            raise ConfigError(f"{path}: no column can be of type {schema}")
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.of(kind, path)
        made = self._made(schema, kind, path)
        if "name" in schema and kind in ("record", "error", "enum", "fixed"):
            self._named[str(schema["name"]).rpartition(".")[2]] = made
        return made

    def _made(self, schema: Mapping[str, Any], kind: str, path: str) -> pa.DataType:
        import pyarrow as pa

        if kind in ("record", "error"):
            fields = schema["fields"]
            parts = [
                pa.field(one["name"], self.of(one["type"], f"{path}.{one['name']}".strip(".")))
                for one in fields
            ]
            return pa.struct(parts)
        if kind == "array":
            return pa.list_(pa.field("element", self.of(schema["items"], f"{path}[]")))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{path}{{}}"))
        return self._logical(schema, kind) or self.of(kind, path)

    def _logical(self, schema: Mapping[str, Any], kind: str) -> pa.DataType | None:
        import pyarrow as pa

        match schema.get("logicalType"), kind:
            case "timestamp-millis" | "timestamp-micros", "long":
                return pa.timestamp("us", "UTC")
            case "local-timestamp-millis" | "local-timestamp-micros", "long":
                return pa.timestamp("us")
            case "date", "int":
                return pa.date32()
            case "time-millis", "int":
                return pa.time32("ms")
            case "time-micros", "long":
                return pa.time64("us")
            case "decimal", "bytes" | "fixed":
                return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
            case "uuid", "string" | "fixed":
                return pa.string()
        return getattr(pa, _PLAIN[kind])() if kind in _PLAIN else None

    def _union(self, branches: list[Any], path: str) -> pa.DataType:
        import pyarrow as pa

        kinds = {self.of(branch, path) for branch in branches if branch != "null"}
        if len(kinds) == 1:
            return kinds.pop()
        if kinds == {pa.int32(), pa.int64()}:
            return pa.int64()
        if kinds == {pa.float32(), pa.float64()}:
            return pa.float64()
        raise ConfigError(
            f"{path}: a column is of one type, this union is of {len(kinds)}",
            hint="give a reader schema that takes one of them",
        )
