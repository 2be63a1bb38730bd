"""_krust.scan from log directories: what Kafka and krust wrote, with and without a live broker."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import krust
from krust import _krust
from krust.errors import KafkaError
from tests.adopted import ExpectedRecord, description, records, unpack
from tests.clients.conftest import run_program
from tests.clients.test_scan import ALL, rows
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

CLEAN, OLD_8, OLD_10 = "kafka-3.9.1-clean", "kafka-0.8.2.2", "kafka-0.10.2.2"
LEVELS = ("read_uncommitted", "read_committed")
COMMITTED: dict[str, object] = {"isolation.level": "read_committed"}


def local(path: Path, ranges: list[tuple[str, int, int, int]], **more: Any) -> pa.Table:
    """The whole stream, from files."""
    return pa.table(_krust.scan(ranges, more.pop("columns", ALL), data_dirs=[path], **more))


@pytest.fixture(scope="module", params=[CLEAN, OLD_8, OLD_10])
def adopted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    return request.param, unpack(request.param, tmp_path_factory.mktemp("scan"))


def expected(
    name: str, topic: str, partition: int, seen: list[ExpectedRecord]
) -> list[dict[str, Any]]:
    """The rows of Spark's Kafka source; without a time: -1 ms."""
    types = {OLD_8: -1, OLD_10: 0, CLEAN: 0}
    listed = []
    for one in seen:
        kind = 1 if "append-time" in topic or "logappend" in topic else types[name]
        time = -1 if name == OLD_8 or one.timestamp is None else one.timestamp
        headers = [{"key": key, "value": value} for key, value in one.headers] or None
        row = [one.key, one.value, topic, partition, one.offset, time * 1000, kind, headers]
        listed.append(dict(zip(ALL, row, strict=True)))
    return listed


def wanted(name: str, level: str) -> Iterator[tuple[str, int, int, list[dict[str, Any]]]]:
    """Topic, partition, log start and the rows that a reader must see."""
    for topic, partitions in description(name)["topics"].items():
        for partition, described in partitions.items():
            listed = records(described.get("records", described.get(level)), old=name != CLEAN)
            found = expected(name, topic, int(partition), listed)
            yield topic, int(partition), described["low"], found


def without_kind(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "timestampType"} for row in listed]


@pytest.mark.parametrize("level", LEVELS)
def test_directories_that_kafka_wrote_are_read_as_they_are(
    adopted: tuple[str, Path], level: str
) -> None:
    name, path = adopted
    for topic, number, low, listed in wanted(name, level):
        committed = level == "read_committed"
        bounds = _krust.partitions([path], topic, read_committed=committed)
        [(start, end)] = [(start, end) for at, start, end in bounds if at == number]
        assert start == low, topic
        options: dict[str, object] = {"isolation.level": level}
        found = rows(local(path, [(topic, number, start, end)], options=options))
        assert without_kind(found) == without_kind(listed), (topic, number, level)
        if name == OLD_8:
            assert {row["timestampType"] for row in found} <= {-1}


@pytest.mark.parametrize("level", LEVELS)
def test_a_broker_on_the_directory_and_the_files_give_the_same(
    adopted: tuple[str, Path], tmp_path: Path, level: str
) -> None:
    name, path = adopted
    copy = shutil.copytree(path, tmp_path / "copy")
    options: dict[str, object] = {"isolation.level": level}
    with ServedBroker(copy) as broker:
        for topic, number, _, _ in wanted(name, level):
            client = _krust.Client(broker.bootstrap)
            committed = level == "read_committed"
            [(*_, start, _)] = client.list_offsets([(topic, number, -2)], read_committed=committed)
            [(*_, end, _)] = client.list_offsets([(topic, number, -1)], read_committed=committed)
            ranges = [(topic, number, start, end)]
            served = _krust.scan(ranges, ALL, bootstrap=broker.bootstrap, options=options)
            beside = local(path, ranges, options=options)
            assert pa.table(served).equals(beside), (topic, number)


def test_records_that_a_killed_kafka_acknowledged_are_read(tmp_path: Path) -> None:
    from tests.adopted import acknowledged

    path = unpack("kafka-3.9.1-killed", tmp_path)
    acked = acknowledged()
    seen: dict[tuple[int, int], bytes | None] = {}
    for number, start, end in _krust.partitions([path], "orders"):
        table = local(path, [("orders", number, start, end)], columns=["offset", "value"])
        seen |= {(number, row["offset"]): row["value"] for row in table.to_pylist()}
        assert table["offset"].to_pylist() == list(range(start, end))
    assert seen.items() >= acked.items()


def test_a_committed_read_ends_at_an_open_transaction(tmp_path: Path) -> None:
    path = unpack(CLEAN, tmp_path)
    [(_, start, stable)] = _krust.partitions([path], "open-txn", read_committed=True)
    [(_, _, end)] = _krust.partitions([path], "open-txn")
    assert start <= stable < end
    stream = _krust.scan([("open-txn", 0, start, end)], ALL, data_dirs=[path], options=COMMITTED)
    with pytest.raises(OSError, match=f"offset {stable} is of a transaction that is open"):
        pa.table(stream)
    assert stream.positions() == [("open-txn", 0, stable)] or stable == start


def copied(source: Path, target: Path) -> Path:
    """A copy of log directories that a broker is using: its temporary files come and go."""
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.tmp"))


def fill(broker: ServedBroker, topic: str, count: int, **settings: Any) -> None:
    with krust.Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        for at in range(count):
            producer.produce(topic, b"v%d" % at, b"k%d" % at, 0, None, 1_600_000_000_000 + at)


SMALL: dict[str, object] = {"log.segment.bytes": 20_000, "log.index.interval.bytes": 500}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "data", "--prod", options=SMALL) as broker:
        yield broker


def test_files_are_read_beside_the_broker_that_writes_them(
    served: ServedBroker, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    fill(served, "t", 5000, batch_size=600)
    assert len(list((path / "t-0").glob("*.log"))) > 3
    assert _krust.partitions([path], "t") == [(0, 0, 5000)]
    for start, end in [(0, 5000), (1, 4999), (2500, 2501), (4999, 5000), (777, 3333)]:
        found = local(path, [("t", 0, start, end)], columns=["offset", "value"])
        assert found["offset"].to_pylist() == list(range(start, end))
        assert found["value"].to_pylist() == [b"v%d" % at for at in range(start, end)]


def test_a_time_is_found_where_the_broker_finds_it(served: ServedBroker, tmp_path: Path) -> None:
    fill(served, "t", 3000, batch_size=600, compression_type="lz4")
    client = _krust.Client(served.bootstrap)
    for after_ms in (-5, 0, 1, 1500, 2998, 2999, 3000):
        at = 1_600_000_000_000 + after_ms
        [(*_, offset, _)] = client.list_offsets([("t", 0, at)])
        assert _krust.offset_at([tmp_path / "data"], "t", 0, at) == offset, after_ms


def test_indexes_are_only_hints(served: ServedBroker, tmp_path: Path) -> None:
    fill(served, "t", 5000, batch_size=600)
    copy = copied(tmp_path / "data", tmp_path / "copy")
    for number, index in enumerate(sorted((copy / "t-0").glob("*index"))):
        if number % 3 == 0:
            index.unlink()
        elif number % 3 == 1:
            index.write_bytes(struct.pack(">ii", 5, 77) * (index.stat().st_size // 8))
        else:
            index.write_bytes(struct.pack(">ii", 1, 77) + struct.pack(">ii", 9, 1333))
    for start in range(0, 5000, 611):
        found = local(copy, [("t", 0, start, 5000)], columns=["offset"])
        assert found["offset"].to_pylist() == list(range(start, 5000))
    assert _krust.partitions([copy], "t") == [(0, 0, 5000)]
    assert _krust.offset_at([copy], "t", 0, 1_600_000_002_345) == 2345


def test_a_scan_continues_while_segments_roll(served: ServedBroker, tmp_path: Path) -> None:
    path = tmp_path / "data"
    fill(served, "t", 100)
    ahead = threading.Semaphore(8)
    """how many more turns the writer may be ahead of the reader"""

    def write() -> None:
        for _ in range(40):
            assert ahead.acquire(timeout=WAIT_S)
            fill(served, "t", 250, batch_size=700)

    thread = threading.Thread(target=write)
    thread.start()
    at, rounds = 0, 0
    while at < 10_100:
        [(_, start, end)] = _krust.partitions([path], "t")
        assert start == 0
        assert end >= at
        found = local(path, [("t", 0, at, end)], columns=["offset"])
        assert found["offset"].to_pylist() == list(range(at, end))
        for _ in range((end - 100) // 250 - max(at - 100, 0) // 250):
            ahead.release()
        at, rounds = end, rounds + (end > at)
    thread.join()
    assert rounds > 3


def delete_records(broker: ServedBroker, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "offset": offset}]
    body = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 60_000}
    answer = _krust.Client(broker.bootstrap).request("DeleteRecords", body)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def cut_head(path: Path, keep_from: int) -> int:
    """Delete the segments that end before an offset, as retention does; the new start."""
    logs = sorted((path / "t-0").glob("*.log"))
    bases = [int(log.stem) for log in logs]
    first = max(base for base in bases if base <= keep_from)
    for log, base in zip(logs, bases, strict=True):
        if base < first:
            for file in log.parent.glob(f"{log.stem}.*"):
                file.unlink()
    return first


def test_segments_deleted_during_a_scan_are_skipped_or_reported(
    served: ServedBroker, tmp_path: Path
) -> None:
    fill(served, "t", 5000, batch_size=600)
    for lost in ("skip", "fail"):
        copy = copied(tmp_path / "data", tmp_path / lost)
        stream = _krust.scan(
            [("t", 0, 0, 5000)], ["offset"], data_dirs=[copy], batch_rows=10, lost=lost
        )
        reader = pa.RecordBatchReader.from_stream(stream)
        seen = reader.read_next_batch()["offset"].to_pylist()
        first = cut_head(copy, 3000)
        if lost == "fail":
            with pytest.raises(OSError, match=f"is gone; the log begins at {first}"):
                reader.read_all()
            failure = stream.failure()
            assert isinstance(failure, KafkaError)
            assert failure.code == 1
            continue
        for batch in reader:
            seen += batch["offset"].to_pylist()
        [(topic, partition, gone, to)] = stream.skipped()
        assert (topic, partition, to) == ("t", 0, first)
        assert seen == [*range(gone), *range(first, 5000)]
        assert stream.positions() == [("t", 0, 5000)]


def test_a_scan_of_a_compacted_log_has_gaps_and_no_duplicates(tmp_path: Path) -> None:
    options = SMALL | {"log.cleaner.backoff.ms": 50, "log.cleaner.min.cleanable.ratio": 0.01}
    with ServedBroker(tmp_path / "data", options=options) as broker:
        config = [{"name": "cleanup.policy", "value": "compact"}]
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": config}
        client = _krust.Client(broker.bootstrap)
        client.request("CreateTopics", {"topics": [topic], "timeout_ms": 60_000})
        path = tmp_path / "data"
        shortest = 1.0
        while shortest > 0.2:  # the cleaner comes by once a second
            with krust.Producer(bootstrap_servers=broker.bootstrap, batch_size=700) as producer:
                for at in range(400):
                    producer.produce("t", b"v", b"k%d" % (at % 50), 0)
            [(_, start, end)] = _krust.partitions([path], "t")
            table = local(path, [("t", 0, start, end)], columns=["key", "offset"])
            offsets = table["offset"].to_pylist()
            assert offsets == sorted(set(offsets))
            assert offsets[-1] == end - 1
            newest = dict(zip(table["key"].to_pylist(), offsets, strict=True))
            assert sorted(newest.values()) == list(range(end - 50, end))
            shortest = min(shortest, len(offsets) / end)


def test_offsets_outside_the_log_are_reported_as_lost(served: ServedBroker, tmp_path: Path) -> None:
    path = tmp_path / "data"
    fill(served, "t", 100)
    delete_records(served, "t", 40)
    ranges = [("t", 0, 90, 120), ("no", 0, 3, 9), ("t", 7, 0, 5)]
    stream = _krust.scan(ranges, ["offset"], data_dirs=[path], lost="skip")
    assert pa.table(stream)["offset"].to_pylist() == list(range(90, 100))
    assert stream.skipped() == [("t", 0, 100, 120), ("no", 0, 3, 9), ("t", 7, 0, 5)]
    for one, code in zip(ranges, (1, 3, 3), strict=True):
        stream = _krust.scan([one], ["offset"], data_dirs=[path])
        with pytest.raises(OSError, match=one[0]):
            pa.table(stream)
        failure = stream.failure()
        assert isinstance(failure, KafkaError)
        assert failure.code == code
    with pytest.raises(KafkaError) as error:
        _krust.partitions([path], "no")
    assert error.value.code == 3
    with pytest.raises(KafkaError) as error:
        _krust.offset_at([path], "t", 9, 0)
    assert error.value.code == 3
    with pytest.raises(KafkaError, match="nowhere"):
        _krust.partitions([tmp_path / "nowhere"], "t")


def test_bytes_that_are_no_batches_are_an_error_and_a_torn_tail_is_the_end(
    served: ServedBroker, tmp_path: Path
) -> None:
    fill(served, "t", 5000, batch_size=600)
    logs = sorted((tmp_path / "data/t-0").glob("*.log"))
    for place in (0, 1, 8, 16, 20, 30, 61, 300, 5000):
        copy = copied(tmp_path / "data", tmp_path / f"bad-{place}")
        with (copy / "t-0" / logs[1].name).open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 0x55]))
        stream = _krust.scan([("t", 0, 0, 5000)], ALL, data_dirs=[copy])
        with pytest.raises(OSError, match="t:0"):
            pa.table(stream)
        failure = stream.failure()
        assert isinstance(failure, KafkaError)
        assert failure.code in (1, 2), place
    for cut in (7, 30, 70, 500):
        copy = copied(tmp_path / "data", tmp_path / f"cut-{cut}")
        with (copy / "t-0" / logs[-1].name).open("r+b") as file:
            file.truncate(logs[-1].stat().st_size - cut)
        [(_, _, end)] = _krust.partitions([copy], "t")
        assert 4900 < end < 5000
        found = local(copy, [("t", 0, 0, end)], columns=["offset"])
        assert found["offset"].to_pylist() == list(range(end))
        with (copy / "t-0" / logs[-1].name).open("ab") as file:
            file.write(bytes(10_000))
        [(_, _, again)] = _krust.partitions([copy], "t")
        assert again == end


def test_any_bytes_in_any_file_are_rows_or_an_error(tmp_path: Path) -> None:
    chance = random.Random(20)
    for name in (CLEAN, OLD_10, OLD_8):
        whole = unpack(name, tmp_path)
        topics = list(description(name)["topics"])
        files = [path for path in whole.rglob("0*.*") if path.stat().st_size]
        for _ in range(40):
            damaged = chance.sample(files, max(1, len(files) // 3))
            before = {path: path.read_bytes() for path in damaged}
            for path in damaged:
                kept = bytearray(before[path])
                for _ in range(chance.randrange(1, 4)):
                    kept[chance.randrange(len(kept))] = chance.randrange(256)
                cut = chance.choice([len(kept), chance.randrange(len(kept))])
                path.write_bytes(kept[:cut])
            for topic in topics:
                for level in LEVELS:
                    try_to_read(whole, topic, level)
            for path, content in before.items():
                path.write_bytes(content)


def try_to_read(path: Path, topic: str, level: str) -> None:
    """Whatever is in the files, it is rows, or a refusal of krust's own."""
    options: dict[str, object] = {"isolation.level": level}
    committed = level == "read_committed"
    with contextlib.suppress(KafkaError):
        _krust.offset_at([path], topic, 0, 1_500_000_000_000)
    try:
        bounds = _krust.partitions([path], topic, read_committed=committed)
    except KafkaError:
        bounds = []
    for number, start, _ in bounds:
        ranges = [(topic, number, start, start + 10_000)]
        stream = _krust.scan(ranges, ALL, data_dirs=[path], options=options)
        with contextlib.suppress(OSError):
            pa.table(stream).validate(full=True)
        assert isinstance(stream.failure(), KafkaError | None)


READS = """
import os, signal, sys, threading, time
import pyarrow as pa
from krust import _krust
def interrupted():
    stream = _krust.scan([("t", 0, 0, 200_000)], ["offset"], data_dirs=sys.argv[1:], batch_rows=1)
    reader = pa.RecordBatchReader.from_stream(stream)
    def stop():
        while stream.positions()[0][2] < 1000:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    stopping = threading.Thread(target=stop)
    try:
        stopping.start()
        reader.read_all()
        stopping.join()
    except KeyboardInterrupt:
        return False
    except OSError:
        assert isinstance(stream.failure(), KeyboardInterrupt)
        return stream.positions()[0][2] < 200_000
    return False
while not interrupted():
    pass  # all was read before the signal came
print("interrupted")
"""


def test_ctrl_c_ends_a_scan_of_files(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as served:
        fill(served, "t", 200_000)
    assert run_program(READS, str(tmp_path / "data")) == "interrupted"


def test_a_scan_of_any_log_takes_bounded_memory(tmp_path: Path) -> None:
    with (
        ServedBroker(tmp_path / "data") as served,
        krust.Producer(bootstrap_servers=served.bootstrap) as producer,
    ):
        for _ in range(20_000):
            producer.produce("t", b"x" * 2000, partition=0)
    before = pa.total_allocated_bytes()
    [(_, start, end)] = _krust.partitions([tmp_path / "data"], "t")
    stream = _krust.scan([("t", 0, start, end)], ALL, data_dirs=[tmp_path / "data"])
    peak, count = 0, 0
    for batch in pa.RecordBatchReader.from_stream(stream):
        peak, count = max(peak, batch.nbytes), count + batch.num_rows
    assert count == 20_000
    assert peak < (8 << 20) + (1 << 20)
    assert pa.total_allocated_bytes() <= before
