"""Protobuf to columns: values are messages of a descriptor set, with or without a registry's
header.

    protoc --include_imports --descriptor_set_out=events.pb events.proto

The columns are the message's fields. An unset field is null if Protobuf knows whether it was set
(optional, oneof, a message), and otherwise has its default. uint32 is int64; uint64 is
decimal(20,0); an enum is text (an unknown number: that number); Timestamp is a timestamp; a wrapper
is its value; Struct, Value and ListValue are JSON as text. A recursive message has no columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust.decode import framing
from krust.decode.result import BadValueError, Decoded, by_row, reason_of
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_TIMESTAMP = "google.protobuf.Timestamp"
_MICROS = 1_000_000


class ProtobufDecoder:
    """Decodes values to the fields of one message.

    descriptors  a FileDescriptorSet with its imports, as bytes
    message      the full name of the message
    framed       whether values begin with the 5-byte header and a message index
    """

    def __init__(self, descriptors: bytes, message: str, *, framed: bool) -> None:
        self._message, self._class = _message(descriptors, message)
        self._path = _path(self._message)
        self._framed = framed
        fields = [_Field(one, (self._message.full_name,)) for one in self._message.fields]
        self._fields = {field.name: field for field in fields}
        import pyarrow as pa

        self.schema = pa.schema([pa.field(field.name, field.type) for field in fields])

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array."""
        return by_row(values.to_pylist(), self._read, self.schema)

    def _read(self, value: bytes) -> dict[str, Any]:
        from google.protobuf.message import DecodeError

        body = value
        if self._framed:
            framing.schema_id(value)
            path, at = framing.message_index(value)
            if path != self._path:
                raise BadValueError(
                    f"it is message {list(path)} of its file, "
                    f"{self._message.full_name} is {list(self._path)}"
                )
            body = value[at:]
        try:
            found = self._class.FromString(body)
        except DecodeError as error:
            raise BadValueError(f"no {self._message.full_name}: {reason_of(error)}") from None
        return {name: field.read(found) for name, field in self._fields.items()}


def _message(descriptors: bytes, name: str) -> tuple[Any, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptors)
    except DecodeError as error:
        raise ConfigError(
            f"no descriptor set: {error}",
            hint="protoc --include_imports --descriptor_set_out=FILE your.proto",
        ) from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(name)
    except (KeyError, TypeError) as error:
        known = sorted(_names(files))
        raise ConfigError(
            f"the descriptor set has no message {name!r}: {reason_of(error)}",
            hint=f"it has {', '.join(known[:20]) or 'none'}",
        ) from error
    return found, message_factory.GetMessageClass(found)


def _names(files: Any) -> list[str]:
    def inside(messages: Any, prefix: str) -> list[str]:
        names = []
        for message in messages:
            name = f"{prefix}{message.name}"
            names += [name, *inside(message.nested_type, f"{name}.")]
        return names

    found: list[str] = []
    for file in files.file:
        found += inside(file.message_type, f"{file.package}." if file.package else "")
    return found


def _path(message: Any) -> tuple[int, ...]:
    """The path of a message in its file: the numbers of the enclosing messages and its own."""
    from google.protobuf import descriptor_pb2

    outer = message.containing_type
    if outer is None:
        file = descriptor_pb2.FileDescriptorProto()
        message.file.CopyToProto(file)
        return ([one.name for one in file.message_type].index(message.name),)
    described = descriptor_pb2.DescriptorProto()
    outer.CopyToProto(described)
    return (*_path(outer), [one.name for one in described.nested_type].index(message.name))


class _Field:
    """The column of a field: its type, and the function that reads it."""

    def __init__(self, field: Any, inside: tuple[str, ...]) -> None:
        import pyarrow as pa

        self.name: str = field.name
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            self.type, self.read = self._map(field, inside)
            return
        one, read = _value(field, inside)
        if field.is_repeated:
            self.type = pa.list_(pa.field("element", one))
            self.read = lambda message: [read(item) for item in getattr(message, self.name)]
        elif field.has_presence:
            self.type = one
            self.read = lambda message: (
                read(getattr(message, self.name)) if message.HasField(self.name) else None
            )
        else:
            self.type = one
            self.read = lambda message: read(getattr(message, self.name))

    def _map(self, field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
        import pyarrow as pa

        parts = field.message_type.fields_by_name
        key, read_key = _value(parts["key"], inside)
        item, read_item = _value(parts["value"], inside)
        return pa.map_(key, item), lambda message: [
            (read_key(name), read_item(found))
            for name, found in getattr(message, self.name).items()
        ]


def _value(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
    """The type of one value of a field, and the function that reads it."""
    import pyarrow as pa

    if field.message_type is not None:
        return _submessage(field, inside)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return pa.string(), lambda found: names.get(found, str(found))
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
    }
    return kinds[field.cpp_type], lambda found: found


def _submessage(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
    import pyarrow as pa

    message = field.message_type
    name = message.full_name
    if name == _TIMESTAMP:
        return pa.timestamp("us", "UTC"), _micros
    if name in _WRAPPERS:
        kind, read = _value(message.fields_by_name["value"], inside)
        return kind, lambda found: read(found.value)
    if name in _JSON:
        return pa.string(), _json
    if name in inside:
        raise ConfigError(f"message {name} is inside itself: it has no columns")
    fields = [_Field(one, (*inside, name)) for one in message.fields]
    kind = pa.struct([pa.field(one.name, one.type) for one in fields])
    return kind, lambda found: {one.name: one.read(found) for one in fields}


def _micros(found: Any) -> int:
    micros: int = found.seconds * _MICROS + found.nanos // 1000
    if not -(1 << 63) <= micros < 1 << 63:
        raise BadValueError(f"a timestamp of {found.seconds} seconds")
    return micros


def _json(found: Any) -> str:
    from google.protobuf import json_format

    try:
        return str(json_format.MessageToJson(found, indent=None))
    except json_format.Error as error:
        raise BadValueError(reason_of(error)) from None


def read_descriptors(path: str) -> bytes:
    """The bytes of a descriptor set. ConfigError: the file cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"descriptor set {path!r}: {error.strerror}",
            hint="protoc --include_imports --descriptor_set_out=FILE your.proto",
        ) from error
