"""Protobuf values to columns: every kind of field, message indexes, hostile bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
pytest.importorskip("google.protobuf", reason="the extra `tables` is not installed")

from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2  # noqa: E402

from krust.decode import framing, options  # noqa: E402
from krust.decode.from_protobuf import ProtobufDecoder, _message  # noqa: E402
from krust.decode.result import BadValueError  # noqa: E402
from krust.errors import ConfigError  # noqa: E402

F = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "i32": (F.TYPE_INT32, st.integers(-(2**31), 2**31 - 1)),
    "s64": (F.TYPE_SINT64, st.integers(-(2**63), 2**63 - 1)),
    "u32": (F.TYPE_UINT32, st.integers(0, 2**32 - 1)),
    "u64": (F.TYPE_FIXED64, st.integers(0, 2**64 - 1)),
    "real": (F.TYPE_DOUBLE, st.floats(allow_nan=False)),
    "half": (F.TYPE_FLOAT, st.floats(width=32, allow_nan=False)),
    "flag": (F.TYPE_BOOL, st.booleans()),
    "text": (F.TYPE_STRING, st.text()),
    "raw": (F.TYPE_BYTES, st.binary()),
}


def add(message: Any, name: str, kind: int, **more: Any) -> None:
    message.field.add(
        name=name, number=len(message.field) + 1, type=kind, label=more.pop("label", 1), **more
    )


def events() -> bytes:
    """What protoc would write for two messages, one with a message inside."""
    files = descriptor_pb2.FileDescriptorSet()
    for imported in (timestamp_pb2, struct_pb2, wrappers_pb2):
        imported.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(one.name for one in files.file if one.name != "shop.proto")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    for name, (kind, _) in SCALARS.items():
        add(order, name, kind)
    order.oneof_decl.add(name="_maybe")
    add(order, "maybe", F.TYPE_INT64, proto3_optional=True, oneof_index=0)
    add(order, "many", F.TYPE_INT32, label=3)
    line = order.nested_type.add(name="Line")
    add(line, "sku", F.TYPE_STRING)
    add(order, "lines", F.TYPE_MESSAGE, label=3, type_name=".shop.Order.Line")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", F.TYPE_STRING)
    add(entry, "value", F.TYPE_INT32)
    add(order, "counts", F.TYPE_MESSAGE, label=3, type_name=".shop.Order.CountsEntry")
    kind = order.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    add(order, "kind", F.TYPE_ENUM, type_name=".shop.Order.Kind")
    for name in ("Timestamp", "Struct", "StringValue"):
        add(order, name.lower(), F.TYPE_MESSAGE, type_name=f".google.protobuf.{name}")
    tree = file.message_type.add(name="Tree")
    add(tree, "left", F.TYPE_MESSAGE, type_name=".shop.Tree")
    return bytes(files.SerializeToString())


EVENTS = events()
_, ORDER = _message(EVENTS, "shop.Order")
HEADER = b"\0\0\0\0\7"


def framed(value: bytes, index: bytes = b"\x02\x02") -> bytes:
    """Behind a header; Order is the second message of its file: one number, 1, in zigzag."""
    return HEADER + index + value


ROWS = st.fixed_dictionaries({name: values for name, (_, values) in SCALARS.items()})


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_written_messages_are_decoded_unchanged(rows: list[dict[str, Any]]) -> None:
    decoder = ProtobufDecoder(EVENTS, "shop.Order", framed=True)
    values = [framed(ORDER(**row).SerializeToString()) for row in rows]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    found = decoded.columns.select(list(SCALARS)).to_pylist()
    assert found == [row | {"u64": Decimal(row["u64"])} for row in rows]


def test_messages_maps_enums_times_and_unset_fields_are_decoded() -> None:
    order = ORDER(many=[1, 2], lines=[{"sku": "a"}], counts={"x": 1}, kind=1, maybe=0)
    order.timestamp.FromDatetime(datetime(2026, 11, 21, 1, 2, 3, 4, UTC))
    order.struct.update({"a": [1, None]})
    order.stringvalue.value = "s"
    strange = ORDER()
    strange.kind = 9
    values = [order.SerializeToString(), strange.SerializeToString(), None]
    decoded = ProtobufDecoder(EVENTS, "shop.Order", framed=False).decode(pa.array(values))
    assert not decoded.bad
    first, second, third = decoded.columns.to_pylist()
    assert (first["many"], first["lines"]) == ([1, 2], [{"sku": "a"}])
    assert (first["counts"], first["kind"], first["maybe"]) == ([("x", 1)], "PAID", 0)
    assert first["timestamp"] == datetime(2026, 11, 21, 1, 2, 3, 4, UTC)
    assert (first["struct"], first["stringvalue"]) == ('{"a": [1.0, null]}', "s")
    assert (second["kind"], second["maybe"], second["timestamp"]) == ("9", None, None)
    assert (second["i32"], second["many"], set(third.values())) == (0, [], {None})


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_no_bytes_raise(values: list[bytes]) -> None:
    decoder = ProtobufDecoder(EVENTS, "shop.Order", framed=True)
    all_of_them = [*values, *map(framed, values), *(HEADER + value for value in values)]
    decoded = decoder.decode(pa.array(all_of_them, pa.binary()))
    good = range(len(all_of_them)) if decoded.good is None else decoded.good
    assert sorted([*good, *(row for row, _ in decoded.bad)]) == list(range(len(all_of_them)))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "0 bytes are too few"),
        (HEADER, "the message index is cut short"),
        (framed(b"", b"\0"), "it is message [0] of its file, shop.Order is [1]"),
        (framed(b"", b"\x04\x02\0"), "it is message [1, 0] of its file"),
        (framed(b"", b"\x01"), "a message index of -1 numbers"),
        (framed(b"", b"\xff" * 6), "the message index has a number of more than 32 bits"),
        (framed(b"", b"\xfe\x01" + b"\0" * 20), "a message index of 127 numbers"),
        (framed(b"\xff"), "no shop.Order: "),
        (framed(b"\x42\x02\xff\xfe"), "no shop.Order: "),
    ],
)
def test_a_bad_row_has_the_reason(value: bytes, reason: str) -> None:
    decoded = ProtobufDecoder(EVENTS, "shop.Order", framed=True).decode(pa.array([value]))
    (bad,) = decoded.bad
    assert bad.reason.startswith(reason)


def test_a_message_inside_another_has_a_path_of_two() -> None:
    decoder = ProtobufDecoder(EVENTS, "shop.Order.Line", framed=True)
    _, line = _message(EVENTS, "shop.Order.Line")
    value = framed(line(sku="a").SerializeToString(), b"\x04\x02\0")
    assert decoder.decode(pa.array([value])).columns.to_pylist() == [{"sku": "a"}]


@given(st.binary(max_size=30))
def test_any_bytes_have_a_message_index_or_are_bad(value: bytes) -> None:
    try:
        path, at = framing.message_index(value)
    except BadValueError:
        return
    assert path
    assert at <= len(value)


def test_a_message_inside_itself_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="inside itself"):
        ProtobufDecoder(EVENTS, "shop.Tree", framed=True)
    file = tmp_path / "events.pb"
    file.write_bytes(EVENTS)
    given = {"valueFormat": "protobuf", "descriptorFile": str(file), "messageName": "shop.Ordr"}
    with pytest.raises(ConfigError, match="no message") as refused:
        options.decoder(options.chosen(given))
    assert "shop.Order" in str(refused.value.hint)
    given["messageName"] = "shop.Order"
    assert "counts" in options.decoder(options.chosen(given)).schema.names
