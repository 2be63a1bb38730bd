"""_krust.Sender.append: tables of any Arrow producer as records, on krust and on Kafka alike."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from krust import _krust
from krust.errors import ConfigError, KafkaError
from tests.clients.conftest import create, read

TIME = 1_600_000_000_000
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.fixture
def sender(bootstrap: str) -> Iterator[_krust.Sender]:
    sender = _krust.Sender(bootstrap, {"linger.ms": "1"})
    yield sender
    sender.end()


def append(sender: _krust.Sender, table: Any, **more: Any) -> int:
    """Append and wait until all is written."""
    count = sender.append(table, **more)
    assert sender.drain(60_000) == 0
    assert sender.take_failures() is None
    return count


BYTES = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(3),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_binary()),
]


@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_keys_and_values_may_be_any_kind_of_bytes(
    sender: _krust.Sender, bootstrap: str, single: str, kind: pa.DataType
) -> None:
    wanted = [b"abc", None, b"def", b"abc"]
    texts = pa.array(wanted, pa.binary())
    if pa.types.is_dictionary(kind):
        column = texts.cast(kind.value_type).dictionary_encode().cast(kind)
    elif "string" in str(kind):
        column = texts.cast(pa.string()).cast(kind)
    else:
        column = pa.array(wanted, kind)
    table = pa.table({"k": column, "v": column})
    count = append(sender, table, topic=single, columns={"key": "k", "value": "v"})
    assert count == 4
    found = read(bootstrap, single)
    assert [(record.key, record.value) for record in found] == [(one, one) for one in wanted]


def test_a_slice_of_a_table_is_appended_as_a_slice(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    headers = pa.array([[("h", b"%d" % n)] for n in range(100)], pa.map_(pa.string(), pa.binary()))
    whole = pa.table({"v": pa.array([b"%d" % n for n in range(100)]), "h": headers})
    append(sender, whole.slice(40, 5), topic=single, columns={"value": "v", "headers": "h"})
    wanted = [b"40", b"41", b"42", b"43", b"44"]
    found = read(bootstrap, single)
    assert [record.value for record in found] == wanted
    assert [record.headers for record in found] == [(("h", one),) for one in wanted]


@pytest.mark.parametrize("kind", [pa.list_(HEADER), pa.large_list(HEADER)], ids=["list", "large"])
def test_headers_keep_their_order_repeats_and_nulls(
    sender: _krust.Sender, bootstrap: str, single: str, kind: pa.DataType
) -> None:
    rows: list[Any] = [
        [{"key": "b", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
        [{"key": "b", "value": b""}, {"key": "b", "value": b"2"}],
    ]
    table = pa.table({"h": pa.array(rows, kind), "v": ["x"] * 4})
    append(sender, table, topic=single, columns={"value": "v", "headers": "h"})
    wanted = [(("b", b"1"), ("a", None)), (), (), (("b", b""), ("b", b"2"))]
    assert [record.headers for record in read(bootstrap, single)] == wanted


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), None],
    ids=str,
)
def test_timestamps_of_any_unit_become_milliseconds(
    sender: _krust.Sender, bootstrap: str, single: str, kind: pa.DataType | None
) -> None:
    times = [TIME, TIME + 1000]
    moments = [datetime.datetime.fromtimestamp(at // 1000, datetime.UTC) for at in times]
    column = pa.array(times, pa.int64()) if kind is None else pa.array(moments, kind)
    table = pa.table({"t": column, "v": ["a", "b"]})
    append(sender, table, topic=single, columns={"value": "v", "timestamp": "t"})
    assert [record.timestamp_ms for record in read(bootstrap, single)] == times


def test_a_record_without_a_timestamp_gets_the_current_time(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    before = int(datetime.datetime.now().timestamp() * 1000) - 1
    times = pa.array([TIME, None], pa.timestamp("ms"))
    table = pa.table({"v": ["a", "b"], "t": times})
    append(sender, table, topic=single, columns={"value": "v", "timestamp": "t"})
    append(sender, table, topic=single, columns={"value": "v"})
    first, *others = [record.timestamp_ms for record in read(bootstrap, single)]
    assert first == TIME
    assert all(at > before for at in others)


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int32(), pa.uint16(), pa.int64(), pa.uint64()], ids=str
)
def test_the_partition_comes_from_its_column_or_else_from_the_key(
    sender: _krust.Sender, bootstrap: str, topic: str, kind: pa.DataType
) -> None:
    partitions = pa.array([2, 0, None, None], kind)
    table = pa.table({"p": partitions, "k": ["k", "k", "k", "k"], "v": ["a", "b", "c", "d"]})
    roles = {"value": "v", "key": "k", "partition": "p"}
    append(sender, table, topic=topic, columns=roles)
    found = {p: [record.value for record in read(bootstrap, topic, p)] for p in range(3)}
    assert b"a" in found[2]
    assert b"b" in found[0]
    assert any(values[-2:] == [b"c", b"d"] for values in found.values())


def test_records_go_to_the_topic_of_their_row_unless_one_is_given(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    other = f"{single}-other"
    create(bootstrap, other, 1)
    table = pa.table({"t": [other, single, other], "v": ["a", "b", "c"]})
    append(sender, table, columns={"value": "v", "topic": "t"})
    assert [record.value for record in read(bootstrap, other)] == [b"a", b"c"]
    append(sender, table, topic=other, columns={"value": "v", "topic": "t"})
    assert len(read(bootstrap, other)) == 5


def test_a_batch_and_a_stream_of_batches_are_appended_like_tables(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    batch = pa.record_batch({"v": ["a", "b"]})

    class Array:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return batch.__arrow_c_array__(requested_schema)

    reader = pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch, batch]))
    for table in (batch, reader, Array()):
        append(sender, table, topic=single, columns={"value": "v"})
    assert [record.value for record in read(bootstrap, single)] == [b"a", b"b"] * 5


def test_the_result_of_a_scan_can_be_appended(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    wanted = [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]
    table = pa.table(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([None, b"v"], pa.binary()),
            "timestamp": pa.array([TIME * 1000, TIME * 1000], pa.timestamp("us", "UTC")),
            "headers": pa.array([wanted, None], pa.list_(pa.field("element", HEADER))),
        }
    )
    roles = {name: name for name in table.column_names}
    append(sender, table, topic=single, columns=roles)
    stream = _krust.scan([(single, 0, 0, 2)], table.column_names, bootstrap=bootstrap)
    append(sender, stream, topic=single, columns=roles)
    stream = _krust.scan([(single, 0, 0, 4)], table.column_names, bootstrap=bootstrap)
    assert pa.table(stream).equals(pa.concat_tables([table, table]))


def test_a_table_larger_than_the_buffer_waits_for_space(bootstrap: str, single: str) -> None:
    sender = _krust.Sender(bootstrap, {"buffer.memory": "100000", "batch.size": "10000"})
    table = pa.table({"v": [b"x" * 100] * 50_000})
    append(sender, table, topic=single, columns={"value": "v"})
    [(*_, end, _)] = _krust.Client(bootstrap).list_offsets([(single, 0, -1)])
    assert end == 50_000
    sender.end()


def test_an_invalid_column_is_refused_by_its_name(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    table = pa.table(
        {
            "n": [1, 2],
            "v": ["a", None],
            "big": pa.array([0, 2**40]),
            "old": pa.array([0, -5]),
            "h": pa.array([[{"key": "a", "value": b""}], [{"key": None, "value": b""}]]),
        }
    )

    def refused(columns: dict[str, str], topic: str | None = single) -> str:
        with pytest.raises(ConfigError) as error:
            sender.append(table, topic=topic, columns=columns)
        return str(error.value)

    assert "'n'" in refused({"value": "n"}).replace('"', "'")
    assert "int64" in refused({"value": "n"}).lower()
    assert "no column" in refused({"value": "w"})
    assert "none of" in refused({"values": "v"})
    assert "topic" in refused({"value": "v"}, None)
    assert "row 1" in refused({"value": "v", "topic": "v"}, None)
    assert "row 1" in refused({"value": "v", "partition": "big"})
    assert "row 1" in refused({"value": "v", "timestamp": "old"})
    assert "row 1" in refused({"value": "v", "headers": "h"})
    assert "list" in refused({"value": "v", "headers": "v"})
    with pytest.raises(TypeError, match="int is no Arrow table"):
        sender.append(7, topic=single, columns={})
    nine = pa.table({"v": ["a"], "p": [9]})
    with pytest.raises(KafkaError, match="no partition 9"):
        sender.append(nine, topic=single, columns={"value": "v", "partition": "p"})
    sender.drain(60_000)
    assert [record.value for record in read(bootstrap, single)] == [b"a"] * 3


def test_a_failing_stream_of_batches_raises_its_error(sender: _krust.Sender, single: str) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": ["a"]})
        raise RuntimeError("no more of this")

    schema = pa.schema([("v", pa.string())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(OSError, match="no more of this"):
        sender.append(reader, topic=single, columns={"value": "v"})


def test_a_polars_frame_is_appended_with_its_views_and_categories(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame({"k": ["a", "b", "a"], "v": ["1", None, "3"]})
    frame = frame.with_columns(polars.col("k").cast(polars.Categorical))
    append(sender, frame, topic=single, columns={"key": "k", "value": "v"})
    found = [(record.key, record.value) for record in read(bootstrap, single)]
    assert found == [(b"a", b"1"), (b"b", None), (b"a", b"3")]


def test_a_duckdb_result_is_appended_like_a_table(
    sender: _krust.Sender, bootstrap: str, single: str
) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    answer = duckdb.sql("select 'v' || range as v, range::int as n from range(3)")
    append(sender, answer, topic=single, columns={"value": "v"})
    assert [record.value for record in read(bootstrap, single)] == [b"v0", b"v1", b"v2"]
