"""From subscribe to the first record, with real clients, beside other brokers.

    python benches/groups.py [--rounds 20]

A fresh group and a fresh consumer each round, a topic of 3 partitions that holds records; the
contenders take turns. krust runs in dev mode, Apache Kafka with group.initial.rebalance.delay.ms=0.
Prints the medians in milliseconds. It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers import Running, kafka, noida

import krust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC, PARTITIONS = "groups-bench", 3
PATIENCE_S = 20
TARGETS_MS = {
    "confluent-kafka": 165,
    "confluent-kafka, protocol consumer": 110,
    "kafka-python": 110,
    "aiokafka": 12,
}


@contextlib.contextmanager
def embedded(_: Path) -> Iterator[Running]:
    """A broker in this process, as a test has it."""
    with krust.Broker() as broker:
        yield Running(broker.bootstrap, 0)


PEERS = {
    "krust": embedded,
    "kafka 3.9.1": kafka,
    "kafka 4.3.0": functools.partial(kafka, version="4.3.0"),
    "noida-db": noida,
}


def confluent_consumer(bootstrap: str) -> tuple[float, float]:
    """The same over KIP-848."""
    return confluent(bootstrap, "consumer")


def confluent(bootstrap: str, protocol: str = "classic") -> tuple[float, float]:
    """Seconds to the first record, and of close()."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    begin = time.perf_counter()
    consumer.subscribe([TOPIC])
    message = consumer.poll(PATIENCE_S)
    first = time.perf_counter()
    assert message is not None, "no record"
    assert not message.error(), message.error()
    consumer.close()
    return first - begin, time.perf_counter() - first


def kafka_python(bootstrap: str) -> tuple[float, float]:
    """Seconds to the first record, and of close()."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    begin = time.perf_counter()
    consumer.subscribe([TOPIC])
    end = begin + PATIENCE_S
    while not consumer.poll(timeout_ms=1000):
        assert time.perf_counter() < end, "no record"
    first = time.perf_counter()
    consumer.close(autocommit=False)
    return first - begin, time.perf_counter() - first


def aiokafka(bootstrap: str) -> tuple[float, float]:
    """Seconds to the first record, and of stop()."""
    return asyncio.run(_aiokafka(bootstrap))


async def _aiokafka(bootstrap: str) -> tuple[float, float]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    begin = time.perf_counter()
    consumer.subscribe([TOPIC])
    await consumer.start()
    await asyncio.wait_for(consumer.getone(), PATIENCE_S)
    first = time.perf_counter()
    await consumer.stop()
    return first - begin, time.perf_counter() - first


CLIENTS: dict[str, Callable[[str], tuple[float, float]]] = {
    "confluent-kafka": confluent,
    "confluent-kafka, protocol consumer": confluent_consumer,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def fill(bootstrap: str) -> None:
    """The topic, with records in each partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10 * PARTITIONS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def main() -> None:
    """Run the rounds, print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers: dict[str, str] = {}
        for name, start in PEERS.items():
            home = Path(folder) / name.replace(" ", "-")
            home.mkdir()
            try:
                servers[name] = stack.enter_context(start(home)).bootstrap
                fill(servers[name])
            except Exception as error:
                print(f"{name}: left out, {error}")
                servers.pop(name, None)
        for client, run in CLIENTS.items():
            _show(client, _measure(run, servers, rounds))


def _measure(
    run: Callable[[str], tuple[float, float]], servers: dict[str, str], rounds: int
) -> dict[str, Any]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    failed: dict[str, str] = {}
    for turn in range(rounds + 1):
        for name, bootstrap in servers.items():
            if name in failed:
                continue
            try:
                sample = run(bootstrap)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
                continue
            if turn:  # the first round loads modules and makes the offsets topic
                taken[name].append(sample)
    medians = {
        name: tuple(statistics.median(each) * 1000 for each in zip(*samples, strict=True))
        for name, samples in taken.items()
        if name not in failed
    }
    return {**medians, **failed}


def _show(client: str, figures: dict[str, Any]) -> None:
    print(f"{client}: subscribe to first record (wanted of krust: {TARGETS_MS[client]} ms)")
    for name, figure in figures.items():
        if isinstance(figure, str):
            print(f"    {name:<12} n/a: {figure}")
        else:
            print(f"    {name:<12} {figure[0]:8.1f} ms   close {figure[1]:6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
