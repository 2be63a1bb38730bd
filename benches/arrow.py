"""Columns beside confluent-kafka's messages: rows a second and CPU a row, at 100 B.

    python benches/arrow.py [--count 1000000] [--rounds 5] [--codec none]

One broker (`krust serve`, a process of its own), one partition, keys of 10 bytes and values of 90,
all different. The contenders take turns; the medians count. `scan files` reads the segments beside
that broker. confluent-kafka's consumer touches key and value of every message. CPU is this
process's, all threads; rows a core are rows a second of that. The table of `.arrow()` is kept as a
whole, `batches` are dropped one by one. It is no test: it reports a missed target and does not
fail.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
import pyarrow as pa

import krust
from krust.frames import COLUMNS
from tests.serving import ServedBroker

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "bench"
CONFLUENT = "confluent consume"


@dataclass(frozen=True)
class TopicToRead:
    bootstrap: str
    data_dir: Path
    count: int


def confluent_consume(target: TopicToRead) -> int:
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    seen = 0
    while seen < target.count:
        for message in consumer.consume(1000, 1.0):
            message.key()
            message.value()
            seen += 1
    consumer.close()
    return seen


def files(columns: tuple[str, ...], *, whole: bool) -> Callable[[TopicToRead], int]:
    def run(target: TopicToRead) -> int:
        scan = krust.scan(TOPIC, columns=columns, data_dir=target.data_dir)
        return read(scan, whole=whole)

    return run


def broker(columns: tuple[str, ...], *, whole: bool) -> Callable[[TopicToRead], int]:
    def run(target: TopicToRead) -> int:
        scan = krust.scan(TOPIC, columns=columns, bootstrap=target.bootstrap)
        return read(scan, whole=whole)

    return run


def read(scan: krust.Scan, *, whole: bool) -> int:
    if whole:
        return int(scan.arrow().num_rows)
    return sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(scan))


def poll_arrow(target: TopicToRead) -> int:
    seen = 0
    with krust.Consumer(bootstrap_servers=target.bootstrap) as consumer:
        consumer.assign([(TOPIC, 0, 0)])
        while seen < target.count:
            batch = consumer.poll_arrow(1000)
            seen += 0 if batch is None else pa.record_batch(batch).num_rows
    return seen


def append(target: TopicToRead) -> int:
    return krust.append("copy", TABLE[0], key="key", bootstrap=target.bootstrap)


TABLE: list[pa.Table] = []
NARROW = ("offset", "timestamp")
CONTENDERS: dict[str, Callable[[TopicToRead], int]] = {
    CONFLUENT: confluent_consume,
    "scan files .arrow()": files(COLUMNS, whole=True),
    "scan files batches": files(COLUMNS, whole=False),
    "scan files key, value": files(("key", "value"), whole=False),
    "scan files offset, time": files(NARROW, whole=False),
    "scan broker .arrow()": broker(COLUMNS, whole=True),
    "scan broker batches": broker(COLUMNS, whole=False),
    "scan broker offset, time": broker(NARROW, whole=False),
    "poll_arrow": poll_arrow,
    "append": append,
}
MOST = {"scan files .arrow()": 0.33, "scan broker batches": 0.33, "poll_arrow": 0.33}
"""At most so much of confluent-kafka's CPU a row."""
ROWS_A_CORE = {"scan files .arrow()": 8e6}


def fill(target: TopicToRead, codec: str) -> None:
    """Values differ, and compress to about a half."""
    with krust.Producer(bootstrap_servers=target.bootstrap, compression_type=codec) as producer:
        for number in range(target.count):
            value = b'{"id": %d, "user": "user-%d", "amount": %d.50, "currency": "EUR", "ok": true}'
            text = value % (number, number * 7919 % 100_003, number * 31 % 977)
            producer.produce(TOPIC, text.ljust(90), b"key-%06d" % (number % 1_000_000), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", default="none")
    given = parser.parse_args()
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        with ServedBroker(data_dir) as served:
            target = TopicToRead(served.bootstrap, data_dir, given.count)
            fill(target, given.codec)
            TABLE.append(krust.scan(TOPIC, data_dir=data_dir, columns=("key", "value")).arrow())
            for _ in range(given.rounds):
                for name, run in CONTENDERS.items():
                    cpu_s, begin_s = time.process_time(), time.perf_counter()
                    rows = run(target)
                    took = (time.process_time() - cpu_s, time.perf_counter() - begin_s)
                    assert rows == given.count, (name, rows)
                    seen[name].append(took)
    tell(seen, given.count)


def tell(seen: dict[str, list[tuple[float, float]]], count: int) -> None:
    middle = {name: statistics.median(cpu for cpu, _ in runs) for name, runs in seen.items()}
    for name, runs in seen.items():
        cpu_s = middle[name]
        time_s = statistics.median(one for _, one in runs)
        best_s = min(cpu for cpu, _ in runs)
        line = (
            f"{name:25} {cpu_s / count * 1e6:6.3f} us CPU a row   {count / time_s / 1e6:6.2f} M/s"
        )
        line += f"   {count / cpu_s / 1e6:6.2f} M/s a core (best {count / best_s / 1e6:.2f})"
        if name in ROWS_A_CORE:
            line += f" (wanted: {ROWS_A_CORE[name] / 1e6:.0f})"
        if name in MOST:
            line += f"   {cpu_s / middle[CONFLUENT]:.2f} x {CONFLUENT} (wanted: {MOST[name]})"
        print(line)


if __name__ == "__main__":
    main()
