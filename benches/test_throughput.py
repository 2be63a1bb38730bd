"""Throughput of Produce, Fetch and both, by record size, codec, acks and number of clients.

A round writes or reads MEGABYTES (at most RECORDS) in all, each client its part, producers each to
a topic of its own. Clients are threads of this process; the core works outside Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import krust
from krust import _krust
from krust.clients import load

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

MEGABYTES, RECORDS, ROUNDS = 100, 500_000, 5
Topics = Callable[[int], str]


class Case(NamedTuple):
    """What is varied; each case differs from the first in one thing."""

    size: int = 100
    codec: str = "none"
    acks: str = "all"
    clients: int = 1

    @property
    def count(self) -> int:
        """Records of each client in a round."""
        return min(RECORDS, MEGABYTES * 1_000_000 // self.size) // self.clients

    def __str__(self) -> str:
        return f"{self.size}B-{self.codec}-acks={self.acks}-clients={self.clients}"


FIRST = Case()
SIZES = [FIRST._replace(size=size) for size in (10, 1000, 10_000)]
CODECS = [Case(1000, codec) for codec in ("gzip", "snappy", "lz4", "zstd")]
ACKS = [FIRST._replace(acks=acks) for acks in ("0", "1")]
CROWD = [FIRST._replace(clients=4)]


def fill(bootstrap: str, topic: str, case: Case) -> None:
    """Write as many records as one client of the case reads."""
    writer = load.Writer(bootstrap, {"compression.type": case.codec}, topic)
    for _ in writer.write(load.value(case.size), case.count):
        pass
    writer.flush()


def tell(benchmark: BenchmarkFixture, case: Case, records: int) -> None:
    """Add the work of a round to the JSON."""
    benchmark.extra_info.update(case._asdict() | {"records": records, "bytes": records * case.size})


@pytest.mark.parametrize("case", [FIRST, *SIZES, *CODECS, *ACKS, *CROWD], ids=str)
def test_produce(
    case: Case, bootstrap: str, make_topic: Topics, benchmark: BenchmarkFixture
) -> None:
    data, properties = load.value(case.size), {"acks": case.acks, "compression.type": case.codec}
    writers = [
        load.Writer(bootstrap, dict[str, object](properties), make_topic(1))
        for _ in range(case.clients)
    ]
    for writer in writers:
        writer.warm(data)

    def write(writer: load.Writer) -> int:
        sent = sum(writer.write(data, case.count))
        writer.flush()
        return sent

    with ThreadPoolExecutor(case.clients) as pool:
        run = lambda: sum(pool.map(write, writers))  # noqa: E731
        done = benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    assert done == case.count * case.clients
    tell(benchmark, case, done)


@pytest.mark.parametrize("case", [FIRST, *SIZES, *CODECS, *CROWD], ids=str)
def test_fetch(
    case: Case,
    bootstrap: str,
    asked: _krust.Client,
    make_topic: Topics,
    benchmark: BenchmarkFixture,
) -> None:
    topic = make_topic(1)
    fill(bootstrap, topic, case)
    spans = load.spans(asked, topic, [0])
    readers = [load.Reader(bootstrap, {}, spans) for _ in range(case.clients)]

    def read(reader: load.Reader) -> int:
        return sum(records for records, _ in reader.read())

    with ThreadPoolExecutor(case.clients) as pool:
        run = lambda: sum(pool.map(read, readers))  # noqa: E731
        done = benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    assert done == case.count * case.clients
    tell(benchmark, case, done)


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize("size", [100, 10_000])
def test_end_to_end(
    size: int, acks: str, bootstrap: str, make_topic: Topics, benchmark: BenchmarkFixture
) -> None:
    """One record at a time, from the producer to a consumer that waits for it."""
    topic, data, trips = make_topic(1), load.value(size), 100
    producer = _krust.Producer(bootstrap, {"acks": acks, "linger.ms": 0})
    consumer = _krust.Consumer(bootstrap)
    consumer.assign([(topic, 0, 0, None)])

    def run() -> int:
        seen = 0
        for _ in range(trips):
            producer.repeat(topic, data, 1)
            producer.flush()
            found: list[Any] = []
            while not found:
                found, _ = consumer.poll(1000)
            seen += len(found)
        return seen

    done = benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    assert done == trips
    tell(benchmark, Case(size, acks=acks), done)


@pytest.mark.parametrize("case", [FIRST, Case(1000, "zstd")], ids=str)
def test_columns(
    case: Case, bootstrap: str, make_topic: Topics, benchmark: BenchmarkFixture
) -> None:
    """A topic as Arrow columns, without an object a record."""
    pa = pytest.importorskip("pyarrow")
    topic = make_topic(1)
    fill(bootstrap, topic, case)

    def run() -> int:
        return sum(
            batch.num_rows
            for batch in pa.RecordBatchReader.from_stream(krust.scan(topic, bootstrap=bootstrap))
        )

    done = benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    assert done == case.count
    tell(benchmark, case, done)


@pytest.mark.parametrize("version", [1, 2, 3], ids="fetch-v{}".format)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_conversion(
    version: int,
    codec: str,
    bootstrap: str,
    asked: _krust.Client,
    make_topic: Topics,
    benchmark: BenchmarkFixture,
) -> None:
    """A Fetch of before 0.11: batches become messages of magic 0 or 1 for it."""
    serves = {api: first for api, _, first, _ in asked.versions()}
    if serves[1] > version:
        pytest.skip(f"this broker serves no Fetch before version {serves[1]}")
    topic, case = make_topic(1), Case(1000, codec)
    fill(bootstrap, topic, case)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }

    def run() -> int:
        answer = asked.request("Fetch", body, version)
        [found] = answer["responses"][0]["partitions"]
        assert not found["error_code"]
        return len(found["records"])

    size = benchmark.pedantic(run, rounds=4 * ROUNDS, warmup_rounds=1)
    assert size > 0
    benchmark.extra_info.update({"version": version, "codec": codec, "bytes": size})
