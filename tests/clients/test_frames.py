"""krust.scan and krust.append: topics as tables, on krust and on Kafka alike."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import krust
from krust.errors import ConfigError, KafkaError, UnreachableError
from tests.clients.conftest import create
from tests.clients.test_scan import ALL, TIME, fill, rows
from tests.serving import ServedBroker


@pytest.fixture
def filled(bootstrap: str, name: str) -> str:
    """Two partitions of 100 records, one a second."""
    create(bootstrap, name, 2)
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(200):
            at = number // 2
            producer.produce(name, b"%d" % at, b"k", number % 2, timestamp_ms=TIME + at * 1000)
    return name


def test_a_whole_topic_is_a_table(bootstrap: str, single: str) -> None:
    expected = fill(bootstrap, single, 300)
    scan = krust.scan(single, bootstrap=bootstrap)
    assert scan.arrow().column_names == ALL
    assert rows(scan.arrow()) == expected  # read again
    assert rows(pa.table(scan)) == expected
    assert pa.schema(scan) == scan.arrow().schema


MOMENT = datetime.datetime.fromtimestamp(TIME // 1000 + 40, datetime.UTC)


@pytest.mark.parametrize(
    ("since", "until", "begin", "end"),
    [
        ("start", None, 0, 100),
        ("end", None, 100, 100),
        (10, None, 10, 100),
        ("10:20", None, 10, 20),
        ("+3", "-3", 3, 97),
        ("-3", None, 97, 100),
        (-3, None, 97, 100),
        (90, "+5", 90, 95),
        ("start", 1000, 0, 100),
        (MOMENT, None, 40, 100),
        ("start", MOMENT, 0, 40),
        (f"@{TIME + 39_001}", f"@{TIME + 42_000}", 40, 42),
        (MOMENT.isoformat(), "+2", 40, 42),
        ("-1h", None, 100, 100),
        ("@-1h:", None, 100, 100),
    ],
    ids=str,
)
def test_offsets_are_given_as_in_every_other_command(
    bootstrap: str,
    filled: str,
    since: str | int | datetime.datetime,
    until: str | int | datetime.datetime | None,
    begin: int,
    end: int,
) -> None:
    scan = krust.scan(filled, since, until, bootstrap=bootstrap, columns=["partition", "offset"])
    assert scan.ranges() == [(filled, number, begin, end) for number in (0, 1)]
    found = scan.arrow()
    for number in (0, 1):
        ours = [row["offset"] for row in found.to_pylist() if row["partition"] == number]
        assert ours == list(range(begin, end))


def test_partitions_and_columns_may_be_chosen(bootstrap: str, filled: str) -> None:
    scan = krust.scan(filled, bootstrap=bootstrap, partitions=[1], columns=["value", "partition"])
    found = scan.arrow()
    assert found.column_names == ["value", "partition"]
    assert found["partition"].unique().to_pylist() == [1]
    with pytest.raises(KafkaError) as error:
        krust.scan(filled, bootstrap=bootstrap, partitions=[1, 7]).arrow()
    assert error.value.code == 3


def test_a_failed_scan_raises_krusts_errors(bootstrap: str, filled: str, name: str) -> None:
    with pytest.raises(KafkaError) as error:
        krust.scan(f"no-{name}", bootstrap=bootstrap).arrow()
    assert error.value.code == 3
    stream = krust.scan(filled, bootstrap=bootstrap).stream()
    assert stream.positions() == [(filled, 0, 0), (filled, 1, 0)]
    with pytest.raises(UnreachableError):
        krust.scan(filled, bootstrap="127.0.0.1:1").arrow()


def test_an_invalid_scan_is_refused_before_anything_is_read() -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {},
        {"bootstrap": "b", "data_dir": "d"},
        {"bootstrap": "b", "columns": ["vlaue"]},
        {"bootstrap": "b", "columns": ["key", "key"]},
        {"bootstrap": "b", "isolation_level": "read_all"},
        {"bootstrap": "b", "lost": "maybe"},
        {"bootstrap": "b", "group_id": "g"},
        {"data_dir": "d", "fetch_max_bytes": 5},
        {"bootstrap": "b", "since": "someday"},
        {"bootstrap": "b", "since": "1:5", "until": 7},
        {"bootstrap": "b", "until": "1:5"},
    )
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            krust.scan("t", **wrong)


def test_a_table_is_appended_and_comes_back(bootstrap: str, single: str) -> None:
    expected = fill(bootstrap, single, 100)
    scan = krust.scan(single, bootstrap=bootstrap)
    count = krust.append(
        single,
        scan,
        key="key",
        headers="headers",
        timestamp="timestamp",
        bootstrap=bootstrap,
        compression_type="zstd",
    )
    assert count == 100
    both = rows(krust.scan(single, bootstrap=bootstrap).arrow())
    assert both == expected + [{**row, "offset": row["offset"] + 100} for row in expected]


def test_a_column_may_name_the_topic_of_each_row(bootstrap: str, single: str) -> None:
    table = pa.table({"where": [single, single], "text": ["a", "b"]})
    assert krust.append(None, table, value="text", topics="where", bootstrap=bootstrap) == 2
    found = krust.scan(single, bootstrap=bootstrap, columns=["value"]).arrow()
    assert found["value"].to_pylist() == [b"a", b"b"]
    with pytest.raises(ConfigError, match="no column"):
        krust.append(single, table, bootstrap=bootstrap)


def test_rows_that_a_broker_refuses_are_an_error(bootstrap: str, single: str) -> None:
    table = pa.table({"value": [b"x" * 3_000_000]})
    with pytest.raises(KafkaError) as error:
        krust.append(single, table, bootstrap=bootstrap)
    assert error.value.name in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")


def test_polars_pandas_and_duckdb_read_a_scan(bootstrap: str, filled: str) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    scan = krust.scan(filled, bootstrap=bootstrap)
    assert scan.pl().shape == polars.DataFrame(scan).shape == (200, 8)
    assert len(scan.df()) == 200
    answer = duckdb.sql("select count(*), epoch_ms(max(timestamp)) from scan").fetchall()
    assert answer == [(200, TIME + 99_000)]


def test_a_broker_and_its_files_give_the_same_table(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", "--prod") as broker:
        create(broker.bootstrap, "t", 3)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(3000):
                producer.produce("t", b"%d" % number, b"%d" % (number % 7), number % 3)
        wanted: list[tuple[Any, Any]] = [("start", None), (100, -100), ("-1h", "+5"), ("end", None)]
        for since, until in wanted:
            order = [("partition", "ascending"), ("offset", "ascending")]
            served = krust.scan("t", since, until, bootstrap=broker.bootstrap)
            files = krust.scan("t", since, until, data_dir=tmp_path / "data")
            assert served.ranges() == files.ranges()
            assert served.arrow().sort_by(order) == files.arrow().sort_by(order)
    assert files.ranges() == krust.scan("t", "end", data_dir=[tmp_path / "data"]).ranges()


def test_an_embedded_broker_scans_its_topics() -> None:
    with krust.Broker() as broker:
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.produce("orders", b"paid", key=b"u17")
        found = broker.scan("orders", since="-1h", columns=["key", "value"]).arrow()
        assert found.to_pylist() == [{"key": b"u17", "value": b"paid"}]
        assert broker.scan("orders", "end").arrow().num_rows == 0


def test_a_consumer_gives_batches_and_its_position_follows(bootstrap: str, filled: str) -> None:
    with krust.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(filled, 0)])
        first = consumer.poll_arrow(60_000, max_records=30)
        assert first is not None
        assert pa.record_batch(first).column("offset").to_pylist() == list(range(30))
        assert len(first) == 30
        assert pa.table(first).equals(pa.table(first))
        assert consumer.position(filled, 0) == 30
        [record] = consumer.poll(60_000, 1)
        assert record.offset == 30
        second = consumer.poll_arrow(60_000, max_records=10, columns=["offset", "key"])
        assert second is not None
        table = pa.table(second)
        assert table.column_names == ["offset", "key"]
        assert table["offset"].to_pylist() == list(range(31, 41))
        consumer.seek(filled, 0, 98)
        third = consumer.poll_arrow(60_000)
        assert third is not None
        assert pa.table(third)["offset"].to_pylist() == [98, 99]
        assert consumer.position(filled, 0) == 100
        assert consumer.poll_arrow(10) is None


def test_records_that_an_iterator_holds_back_come_in_the_next_batch(
    bootstrap: str, filled: str
) -> None:
    with krust.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(filled, 0), (filled, 1)])
        seen = [(one.partition, one.offset) for _, one in zip(range(50), consumer, strict=False)]
        while len(seen) < 200:
            batch = consumer.poll_arrow(5000, columns=["partition", "offset"])
            if batch is not None:
                seen += [tuple(row.values()) for row in pa.table(batch).to_pylist()]
    assert sorted(set(seen)) == sorted((p, at) for p in (0, 1) for at in range(100))
    assert len(seen) == 200


def test_members_of_a_group_commit_the_positions_of_batches(bootstrap: str, filled: str) -> None:
    settings: dict[str, Any] = {"group_id": f"{filled}-group", "auto_offset_reset": "earliest"}
    seen = 0
    for _ in range(2):
        with krust.Consumer(filled, bootstrap_servers=bootstrap, **settings) as consumer:
            end = seen + 100
            while seen < end:
                batch = consumer.poll_arrow(5000, max_records=end - seen)
                seen += 0 if batch is None else len(batch)
    with krust.Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        assert sum(consumer.committed([(filled, 0), (filled, 1)]).values()) == seen == 200


def test_a_scan_is_iterated_as_rows_from_a_broker_and_from_its_files(tmp_path: Path) -> None:
    with krust.Broker(tmp_path) as broker:
        broker.create_topic("orders")
        with krust.Producer(**broker.kwargs()) as producer:
            for number in range(3):
                producer.produce("orders", b"%d" % number, headers={"h": b"1"}, timestamp_ms=1000)
        rows = list(broker.scan("orders", columns=["offset", "value", "headers"]))
        assert rows == [
            {"offset": at, "value": b"%d" % at, "headers": [{"key": "h", "value": b"1"}]}
            for at in range(3)
        ]
        whole = broker.scan("orders")
        assert list(whole) == list(whole) == list(krust.scan("orders", data_dir=tmp_path))
        with pytest.raises(KafkaError):
            list(broker.scan("returns"))
