"""Avro values to columns: writers' schemas by id, evolution, hostile bytes and hostile schemas."""

from __future__ import annotations

import io
import json
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
fastavro = pytest.importorskip("fastavro", reason="the extra `tables` is not installed")

from krust.decode import options  # noqa: E402
from krust.decode.from_avro import AvroDecoder, arrow_schema  # noqa: E402
from krust.decode.schemas import Registry, Schemas  # noqa: E402
from krust.errors import ConfigError, KrustError, UnreachableError  # noqa: E402


def record(*fields: tuple[Any, ...], name: str = "Order") -> dict[str, Any]:
    parts = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "namespace": "shop", "fields": parts}


ORDER = record(
    ("id", "long"),
    ("name", ["null", "string"], None),
    ("price", "double"),
    ("small", "int"),
    ("flag", "boolean"),
    ("raw", "bytes"),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": "long"}),
    ("inner", record(("x", "float"), name="Inner")),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
)


def encoded(schema: Any, row: dict[str, Any], number: int = 7) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def keeping(reader: Any, writers: dict[int, Any]) -> AvroDecoder:
    return AvroDecoder(reader, Schemas(writers.__getitem__))


LONG = st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {
        "id": LONG,
        "name": st.none() | st.text(),
        "price": st.floats(allow_nan=False),
        "small": st.integers(-(2**31), 2**31 - 1),
        "flag": st.booleans(),
        "raw": st.binary(),
        "tags": st.lists(st.text(), max_size=3),
        "counts": st.dictionaries(st.text(), LONG, max_size=3),
        "inner": st.fixed_dictionaries({"x": st.floats(width=32, allow_nan=False)}),
        "kind": st.sampled_from("AB"),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_written_messages_are_decoded_unchanged(rows: list[dict[str, Any]]) -> None:
    decoded = keeping(ORDER, {7: ORDER}).decode(pa.array([encoded(ORDER, row) for row in rows]))
    assert not decoded.bad
    found = [row | {"counts": dict(row["counts"])} for row in decoded.columns.to_pylist()]
    assert found == rows


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_no_bytes_raise(values: list[bytes]) -> None:
    made = keeping(ORDER, {7: ORDER, 0: ORDER})
    framed = [b"\0\0\0\0\7" + value for value in values] + values
    decoded = made.decode(pa.array(framed, pa.binary()))
    good = range(len(framed)) if decoded.good is None else decoded.good
    assert sorted([*good, *(row for row, _ in decoded.bad)]) == list(range(len(framed)))
    assert decoded.columns.num_rows == len(good)


def test_logical_types_have_columns_of_their_own() -> None:
    kinds = {
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "day": {"type": "int", "logicalType": "date"},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        "key": {"type": "string", "logicalType": "uuid"},
        "odd": {"type": "string", "logicalType": "unheard-of"},
    }
    schema = record(*kinds.items())
    row = {
        "at": datetime(2026, 11, 21, 1, 2, 3, 4000, UTC),
        "day": date(2026, 11, 21),
        "price": Decimal("12.34"),
        "key": uuid.UUID(int=5),
        "odd": "x",
    }
    decoded = keeping(schema, {7: schema}).decode(pa.array([encoded(schema, row), None]))
    assert decoded.columns.to_pylist() == [row | {"key": str(row["key"])}, dict.fromkeys(row)]
    assert decoded.columns.schema.field("at").type == pa.timestamp("us", "UTC")


def test_an_older_and_a_newer_writer_are_read_by_one_reader() -> None:
    older = record(("id", "int"))
    newer = record(("id", "long"), ("more", "string"))
    reader = record(("id", "long"), ("name", ["null", "string"], None))
    made = keeping(reader, {1: older, 2: newer})
    values = [encoded(older, {"id": 1}, 1), encoded(newer, {"id": 2, "more": "x"}, 2)]
    decoded = made.decode(pa.array(values))
    assert decoded.columns.to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "0 bytes are too few for the 5-byte schema header"),
        (b"\1\0\0\0\7", "the schema header begins with 0x01"),
        (b"\0\0\0\0\x09", "schema 9: there is none"),
        (b"\0\0\0\0\7", ""),
        (encoded(ORDER, {"id": 1, "price": 0, "small": 0, "flag": True, "raw": b"", "tags": [],
                         "counts": {}, "inner": {"x": 0}, "kind": "A"}) + b"!",
         "1 bytes are left behind the value"),
        (b"\0\0\0\0\x08" + b"\2", "its schema does not fit: "),
    ],
)  # fmt: skip
def test_a_bad_row_has_the_reason(value: bytes, reason: str) -> None:
    made = keeping(ORDER, {7: ORDER, 8: record(("id", "string"))})
    decoded = made.decode(pa.array([value], pa.binary()))
    (bad,) = decoded.bad
    assert bad.reason.startswith(reason)
    assert bad.reason


NULLS = record(("all", {"type": "array", "items": "null"}))
LIST = record(("next", ["null", "shop.Order"], None))


@pytest.mark.parametrize(
    "schema",
    [NULLS, LIST, record(("a", {"type": "array", "items": record(name="Nothing")})), "string",
     {"type": "record"}, [], {"type": "array", "items": "long"}],
)  # fmt: skip
def test_schemas_that_few_bytes_could_abuse_are_refused(schema: Any) -> None:
    with pytest.raises(ConfigError):
        keeping(schema, {})
    bomb = b"\0\0\0\0\7" + b"\xfe" * 8 + b"\x01\0"
    began = time.monotonic()
    decoded = keeping(record(("id", ["null", "long"], None)), {7: schema}).decode(pa.array([bomb]))
    assert decoded.bad
    assert time.monotonic() - began < 5


def test_lengths_of_a_bomb_ask_for_no_memory() -> None:
    schema = record(("raw", "bytes"))
    for length in (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xfe\xff\xff\xff\x0f", b"\x01"):
        decoded = keeping(schema, {7: schema}).decode(pa.array([b"\0\0\0\0\7" + length]))
        assert decoded.bad


@pytest.mark.parametrize(
    ("kind", "column"),
    [(["null", "int", "long"], pa.int64()), (["float", "double"], pa.float64())],
)
def test_unions_of_numbers_are_the_wider(kind: Any, column: Any) -> None:
    assert arrow_schema(record(("a", kind))).field("a").type == column


def test_a_union_without_a_column_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match="a: a column is of one type"):
        arrow_schema(record(("a", ["int", "string"])))


class Answers(BaseHTTPRequestHandler):
    """A schema registry of three answers."""

    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        found = {
            "/base/schemas/ids/7": {"schema": json.dumps(ORDER)},
            "/base/schemas/ids/8": {"schema": "{}", "schemaType": "JSON"},
            "/base/subjects/orders-value/versions/latest": {"schema": json.dumps(ORDER)},
        }.get(self.path)
        if self.path.endswith("/9"):
            self.send_response(500)
        else:
            self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"error_code": 40403}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    Answers.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/base"
        server.shutdown()
        thread.join()


def test_a_registry_is_asked_once_for_each_present_or_missing_schema(registry: str) -> None:
    made = AvroDecoder(ORDER, Schemas(Registry(registry).schema))
    headers = [b"\0\0\0\0" + bytes([number]) for number in (7, 6, 8)]
    decoded = made.decode(pa.array(headers * 5))
    assert [reason for _, reason in decoded.bad[1:3]] == [
        "schema 6: there is none",
        "schema 8: it is of type JSON, not AVRO",
    ]
    assert sorted(Answers.asked) == [f"/base/schemas/ids/{number}" for number in (6, 7, 8)]


def test_a_registry_that_does_not_answer_ends_the_task_and_no_record_is_bad(registry: str) -> None:
    made = AvroDecoder(ORDER, Schemas(Registry(registry).schema))
    with pytest.raises(UnreachableError, match="does not answer /schemas/ids/9"):
        made.decode(pa.array([b"\0\0\0\0\x09"]))


def test_options_make_a_decoder(registry: str, tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    for more in (
        {"schemaDir": str(tmp_path), "valueSchema": str(tmp_path / "7.avsc")},
        {"schema.registry.url": registry, "valueSchema": "latest", "valueSubject": "orders-value"},
        {"schemaDir": str(tmp_path), "valueSchema": json.dumps(ORDER)},
        {"framing": "none", "valueSchema": json.dumps(ORDER)},
    ):
        chosen = options.chosen({"VALUEFORMAT": "avro", **more})
        assert options.decoder(chosen).schema.names == [field["name"] for field in ORDER["fields"]]


@pytest.mark.parametrize(
    "given",
    [
        {"valueFormat": "xml"},
        {"valueSchema": "a int"},
        {"valueFormat": "json"},
        {"valueFormat": "json", "valueSchema": "a int", "keep": "ofset"},
        {"valueFormat": "json", "valueSchema": "a int", "badRecords": "eat"},
        {"valueFormat": "json", "valueSchema": "a int", "badRecords": "topic"},
        {"valueFormat": "json", "valueSchema": "@/no/such/file"},
        {"valueFormat": "json", "valueSchema": "a int", "framing": "confluent"},
        {"valueFormat": "avro", "valueSchema": "{}"},
        {"valueFormat": "avro", "valueSchema": "{", "framing": "none"},
        {"valueFormat": "avro", "valueSchema": "{}", "schemaDir": "/no/such"},
        {"valueFormat": "avro", "valueSchema": "latest", "schemaDir": "/"},
        {"valueFormat": "avro", "valueSchema": "{}", "schema.registry.url": "localhost:8081"},
        {"valueFormat": "protobuf", "messageName": "a.B"},
        {"valueFormat": "protobuf", "messageName": "a.B", "descriptorFile": "/no/such"},
        {"valueFormat": "protobuf", "messageName": "a.B", "descriptorFile": __file__},
    ],
)
def test_invalid_decoder_options_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(KrustError):
        options.decoder(options.chosen(given))
