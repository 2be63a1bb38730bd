"""_krust.scan: ranges of offsets as Arrow columns, from krust and from Kafka alike."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import krust
from krust import _krust
from krust.errors import ConfigError, ForkedError, KafkaError, UnreachableError
from tests.clients.conftest import run_program
from tests.waiting import is_blocked, until

ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
TIME = 1_600_000_000_000
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}


def table(
    bootstrap: str,
    ranges: Sequence[tuple[str, int, int, int]],
    columns: Sequence[str] = ALL,
    **more: Any,
) -> pa.Table:
    """The whole stream."""
    return pa.table(_krust.scan(ranges, columns, bootstrap=bootstrap, **more))


def fill(bootstrap: str, topic: str, count: int, **settings: Any) -> list[dict[str, Any]]:
    """Records with everything that may be null being so at times; the rows expected."""
    rows = []
    with krust.Producer(bootstrap_servers=bootstrap, **settings) as producer:
        for at in range(count):
            key = None if at % 5 == 0 else b"k%d" % at
            value = None if at % 7 == 0 else b"v" * (at % 200)
            headers = [("h", b"1"), ("h", None), ("é", b"")] if at % 3 == 0 else None
            producer.produce(topic, value, key, 0, None, TIME + at, headers)
            pairs = [{"key": name, "value": text} for name, text in headers or []]
            row = [key, value, topic, 0, at, TIME * 1000 + at * 1000, 0, pairs or None]
            rows.append(dict(zip(ALL, row, strict=True)))
    return rows


def rows(found: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, times as microseconds."""
    at = found.schema.get_field_index("timestamp")
    if at >= 0:
        found = found.set_column(at, "timestamp", found["timestamp"].cast(pa.int64()))
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_field_of_every_record_comes_in_every_codec(
    bootstrap: str, single: str, codec: str
) -> None:
    expected = fill(bootstrap, single, 1000, compression_type=codec, batch_size=5000)
    found = table(bootstrap, [(single, 0, 0, 1000)])
    found.validate(full=True)
    assert rows(found) == expected


def test_the_schema_is_that_of_sparks_kafka_source(bootstrap: str, single: str) -> None:
    stream = _krust.scan([(single, 0, 0, 0)], ALL, bootstrap=bootstrap)
    schema = pa.schema(stream)
    assert schema == pa.schema([pa.field(name, TYPES[name]) for name in ALL])
    assert all(field.nullable for field in schema)
    assert schema.field("headers").type.value_field.name == "element"
    assert pa.table(stream).num_rows == 0


@pytest.mark.parametrize(
    "columns",
    [["offset", "timestamp"], ["value"], ["headers", "topic", "key"], ALL[::-1], ["partition"]],
    ids=",".join,
)
def test_only_the_columns_asked_for_come_and_in_that_order(
    bootstrap: str, single: str, columns: list[str]
) -> None:
    expected = fill(bootstrap, single, 50)
    found = table(bootstrap, [(single, 0, 0, 50)], columns)
    assert found.column_names == columns
    assert rows(found) == [{name: row[name] for name in columns} for row in expected]


def test_no_column_at_all_still_counts_the_records(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 50)
    reader = pa.RecordBatchReader.from_stream(
        _krust.scan([(single, 0, 10, 40)], [], bootstrap=bootstrap)
    )
    assert sum(batch.num_rows for batch in reader) == 30


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 97), (50, 50), (60, 40), (99, 100)])
def test_a_range_may_begin_and_end_inside_a_batch(
    bootstrap: str, single: str, start: int, end: int
) -> None:
    fill(bootstrap, single, 100)  # one batch
    stream = _krust.scan([(single, 0, start, end)], ["offset"], bootstrap=bootstrap)
    assert pa.table(stream)["offset"].to_pylist() == list(range(start, end))
    assert stream.positions() == [(single, 0, max(start, end))]


def test_several_partitions_come_each_in_order(bootstrap: str, topic: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap, batch_size=500) as producer:
        for number in range(3000):
            producer.produce(topic, b"x" * 20, partition=number % 3)
    ranges = [(topic, 0, 0, 1000), (topic, 1, 100, 200), (topic, 2, 500, 1000)]
    found = table(bootstrap, ranges, ["partition", "offset"])
    for _, partition, start, end in ranges:
        ours = [row["offset"] for row in found.to_pylist() if row["partition"] == partition]
        assert ours == list(range(start, end))


def test_batches_are_as_large_as_asked(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 1000)
    stream = _krust.scan([(single, 0, 0, 1000)], ["value"], bootstrap=bootstrap, batch_rows=300)
    sizes = [batch.num_rows for batch in pa.RecordBatchReader.from_stream(stream)]
    assert sizes == [300, 300, 300, 100]
    stream = _krust.scan([(single, 0, 0, 1000)], ["value"], bootstrap=bootstrap, batch_bytes=5000)
    for batch in pa.RecordBatchReader.from_stream(stream):
        assert batch.column("value").nbytes < 5000 + 200 + 4 * 1001


def test_positions_follow_the_batches_that_were_read(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 1000, batch_size=3000)
    stream = _krust.scan([(single, 0, 10, 900)], ["offset"], bootstrap=bootstrap, batch_rows=100)
    assert stream.positions() == [(single, 0, 10)]
    for batch in pa.RecordBatchReader.from_stream(stream):
        last = batch.column("offset")[-1].as_py()
        assert stream.positions() == [(single, 0, last + 1)]
    assert stream.positions() == [(single, 0, 900)]


def test_a_stream_is_read_once(bootstrap: str, single: str) -> None:
    stream = _krust.scan([(single, 0, 0, 0)], ALL, bootstrap=bootstrap)
    pa.table(stream)
    with pytest.raises(ValueError, match="has been read"):
        pa.table(stream)


def test_batches_outlive_their_stream_and_each_other(bootstrap: str, single: str) -> None:
    expected = fill(bootstrap, single, 1000)
    stream = _krust.scan([(single, 0, 0, 1000)], ALL, bootstrap=bootstrap, batch_rows=100)
    reader = pa.RecordBatchReader.from_stream(stream)
    kept: list[Any] = []
    dropped: list[Any] = []
    for number, batch in enumerate(reader):
        (kept if number % 2 else dropped).append(batch)
        if number % 3 == 2:
            dropped.clear()  # their buffers are filled again
    del reader, stream
    dropped.clear()
    found = pa.Table.from_batches(kept)
    found.validate(full=True)
    assert rows(found) == [row for row in expected if row["offset"] // 100 % 2]


def test_deleted_offsets_are_an_error_that_names_them(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 100, batch_size=500)
    stream = _krust.scan([(single, 0, 150, 160)], ["offset"], bootstrap=bootstrap)
    with pytest.raises(OSError, match="offset 150 is gone"):
        pa.table(stream)
    failure = stream.failure()
    assert isinstance(failure, KafkaError)
    assert (failure.code, failure.hint is None) == (1, False)
    assert stream.positions() == [(single, 0, 150)]


def test_deleted_offsets_may_be_skipped_and_are_reported(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 100)
    gone = [(topic, 1, 5, 10), (f"no-{topic}", 0, 3, 9)]
    ranges = [(topic, 0, 90, 100), (topic, 2, 0, 0), *gone]
    stream = _krust.scan(ranges, ["offset"], bootstrap=bootstrap, lost="skip")
    assert pa.table(stream)["offset"].to_pylist() == list(range(90, 100))
    assert sorted(stream.skipped()) == gone
    assert [at for _, _, at in stream.positions()] == [100, 0, 10, 9]
    assert stream.failure() is None


def test_a_scan_whose_end_is_never_reached_raises(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 100)
    stream = _krust.scan(
        [(single, 0, 0, 101)],
        ["offset"],
        bootstrap=bootstrap,
        options={"default.api.timeout.ms": "3000"},
    )
    with pytest.raises(OSError, match=f"{single}:0 offset 100"):
        pa.table(stream)
    assert isinstance(stream.failure(), UnreachableError)


def test_a_topic_that_does_not_exist_is_an_error(bootstrap: str, name: str) -> None:
    stream = _krust.scan([(name, 0, 0, 10)], ["offset"], bootstrap=bootstrap)
    with pytest.raises(OSError, match=name):
        pa.table(stream)
    failure = stream.failure()
    assert isinstance(failure, KafkaError)
    assert failure.code == 3


def test_an_invalid_scan_is_refused_at_once(bootstrap: str, single: str) -> None:
    def refused(ranges: list[tuple[str, int, int, int]], columns: list[str], **more: Any) -> str:
        with pytest.raises(ConfigError) as error:
            _krust.scan(ranges, columns, **{"bootstrap": bootstrap, **more})
        return str(error.value)

    one = [(single, 0, 0, 1)]
    assert "vlaue" in refused(one, ["vlaue"])
    assert "twice" in refused(one, ["key", "key"])
    assert "twice" in refused([*one, (single, 0, 5, 6)], ["key"])
    assert "below 0" in refused([(single, 0, -1, 6)], ["key"])
    assert "lost" in refused(one, ["key"], lost="maybe")
    assert "group.id" in refused(one, ["key"], options={"group.id": "g"})
    assert "bootstrap" in refused(one, ["key"], bootstrap=None)
    assert "bootstrap" in refused(one, ["key"], data_dirs=["/tmp"])


def test_a_stream_of_the_parent_refuses_in_a_child(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 10)
    stream = _krust.scan([(single, 0, 0, 10)], ["offset"], bootstrap=bootstrap)
    reader = pa.RecordBatchReader.from_stream(stream)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            reader.read_next_batch()
        except OSError:
            status = 0 if isinstance(stream.failure(), ForkedError) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert reader.read_all().num_rows == 10


WAITS = """
import os, signal, sys, threading
import pyarrow as pa
from krust import _krust
from tests.waiting import is_blocked, until
bootstrap, topic = sys.argv[1:]
options = {"default.api.timeout.ms": "600000"}
main, begins = threading.main_thread().native_id, threading.Event()
def stop():
    begins.wait()
    until(lambda: is_blocked(main))
    os.kill(os.getpid(), signal.SIGINT)
def interrupted():
    begins.clear()
    stream = _krust.scan(
        [(topic, 0, 0, 20)], ["offset"], bootstrap=bootstrap, batch_rows=10, options=options
    )
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.read_next_batch().num_rows == 10
    try:
        threading.Thread(target=stop).start()
        begins.set()
        reader.read_next_batch()
    except KeyboardInterrupt:
        return False
    except OSError as error:
        assert isinstance(stream.failure(), KeyboardInterrupt)
        assert "KeyboardInterrupt" in str(error)
        return True
while not interrupted():
    pass  # the signal came before the wait
print("interrupted")
"""
"""The wait would last ten minutes."""


def test_ctrl_c_ends_a_scan_that_waits(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 10)
    assert run_program(WAITS, bootstrap, single) == "interrupted"


def test_other_threads_run_while_a_scan_waits(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 10)
    stream = _krust.scan([(single, 0, 0, 20)], ["offset"], bootstrap=bootstrap, batch_rows=10)
    reader = pa.RecordBatchReader.from_stream(stream)
    begun, rows = threading.Event(), []

    def read() -> None:
        rows.append(reader.read_next_batch().num_rows)
        begun.set()
        rows.append(reader.read_next_batch().num_rows)

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    until(lambda: is_blocked(thread.native_id or 0))
    assert rows == [10]
    fill(bootstrap, single, 10)  # nobody else could end the wait
    thread.join()
    assert rows == [10, 10]


def test_polars_reads_it(bootstrap: str, single: str) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    fill(bootstrap, single, 1000)
    stream = _krust.scan([(single, 0, 0, 1000)], ALL, bootstrap=bootstrap, batch_rows=300)
    frame = polars.DataFrame(stream)
    assert frame.shape == (1000, 8)
    assert frame["offset"].to_list() == list(range(1000))
    assert frame["headers"][3].to_list()[0] == {"key": "h", "value": b"1"}


def test_duckdb_reads_it(bootstrap: str, single: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    fill(bootstrap, single, 1000)
    stream = _krust.scan([(single, 0, 0, 1000)], ["key", "offset"], bootstrap=bootstrap)
    assert stream is not None
    found = duckdb.sql('select count(*), count(key), max("offset") from stream').fetchall()
    assert found == [(1000, 800, 999)]


def test_pandas_reads_it(bootstrap: str, single: str) -> None:
    pandas = pytest.importorskip("pandas", "3", reason="pandas 3 is not installed")
    fill(bootstrap, single, 100)
    stream = _krust.scan([(single, 0, 0, 100)], ["offset", "value"], bootstrap=bootstrap)
    frame = pandas.DataFrame.from_arrow(stream)
    assert frame["offset"].sum() == 4950
