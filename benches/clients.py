"""The Python clients beside confluent-kafka's: CPU a record and records a second, at 100 B.

    python benches/clients.py [--count 300000] [--rounds 5] [--bootstrap HOST:PORT]

One broker (`krust serve`, a process of its own, unless another is named), one partition, keys of 10
bytes and values of 90, no codec, idempotence on both sides. The contenders take turns; the medians
count. Consumers touch key and value of every record. CPU is this process's, all threads.
It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka

import krust
from krust import _krust
from tests.serving import ServedBroker

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE = b"x" * 90
KEYS = [b"key-%06d" % number for number in range(1000)]
TARGETS = {
    "krust produce": ("confluent produce", 1.0),
    "krust poll": ("confluent consume", 0.67),
    "krust count": ("confluent consume", 0.33),
}
"""The most CPU, as a ratio; `krust count` makes no objects and is the lower bound of batches."""


def confluent_produce(bootstrap: str, topic: str, count: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
    producer = confluent_kafka.Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        producer.produce(topic, VALUE, KEYS[number % 1000])
        if not number % 10_000:
            producer.poll(0)
    producer.flush()


def krust_produce(bootstrap: str, topic: str, count: int) -> None:
    with krust.Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for number in range(count):
            producer.produce(topic, VALUE, KEYS[number % 1000])


def confluent_consume(bootstrap: str, topic: str, count: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    while count > 0:
        for message in consumer.consume(1000, 1.0):
            message.key()
            message.value()
            count -= 1
    consumer.close()


def krust_poll(bootstrap: str, topic: str, count: int) -> None:
    with krust.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0, 0)])
        while count > 0:
            for record in consumer.poll(1000, 1000):
                _ = record.key
                _ = record.value
                count -= 1


def krust_count(bootstrap: str, topic: str, count: int) -> None:
    consumer = _krust.Consumer(bootstrap)
    consumer.assign([(topic, 0, 0, None)])
    while count > 0:
        count -= consumer.count(1000)[0]


CONTENDERS: dict[str, Callable[[str, str, int], None]] = {
    "confluent produce": confluent_produce,
    "krust produce": krust_produce,
    "confluent consume": confluent_consume,
    "krust poll": krust_poll,
    "krust count": krust_count,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bootstrap")
    given = parser.parse_args()
    with ExitStack() as stack:
        bootstrap = given.bootstrap
        if bootstrap is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            bootstrap = stack.enter_context(ServedBroker(folder / "data")).bootstrap
        topic = f"bench-{uuid.uuid4().hex}"
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
        for _ in range(given.rounds):
            for name, run in CONTENDERS.items():
                cpu_s, begin_s = time.process_time(), time.perf_counter()
                run(bootstrap, topic, given.count)
                took = (time.process_time() - cpu_s, time.perf_counter() - begin_s)
                seen[name].append(took)
    middle = {
        name: tuple(statistics.median(one) for one in zip(*runs, strict=True))
        for name, runs in seen.items()
    }
    for name, (cpu_s, time_s) in middle.items():
        line = (
            f"{name:18} {cpu_s / given.count * 1e6:6.3f} us CPU   {given.count / time_s:10,.0f}/s"
        )
        if name in TARGETS:
            other, most = TARGETS[name]
            ratio = cpu_s / middle[other][0]
            line += f"   {ratio:.2f} x {other} (wanted: {most})"
        print(line)


if __name__ == "__main__":
    main()
