"""Kafka's own cases of replication (`replication_test.py`) against three krusts.

    {the leader of a partition, the controller}
    x {stopped in order, killed} x {once, and it stays away; five times, and it comes back}
    x {an idempotent producer, a plain one} x {records as they are, compressed}

Replication factor 3, min.insync.replicas 2, acks=all. A member of a group reads all the time. Every
acknowledged record is read at the offset that the producer got, no record is read that was not
sent, and no record of an idempotent producer is read twice. A plain producer may write a
record twice, when it repeats a request whose answer is lost.
KRUST_REPLICATION_CASES=1 runs every case; otherwise four are run.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.cluster.brokers import Cluster
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

BROKERS = [1, 2, 3]
PARTITIONS = 3
BOUNCES = 5
BURST = 20
MORE = 300
"""records that are acknowledged between two failures"""
SETTINGS: dict[str, Any] = {
    "zookeeper.session.timeout.ms": 1500,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
}


@dataclass(frozen=True)
class Case:
    """What happens to which broker, and who writes meanwhile."""

    broker: str
    failure: str
    times: int
    idempotent: bool
    compression: str

    def __str__(self) -> str:
        """The name of its topic, and of its test."""
        producer = "idempotent" if self.idempotent else "plain"
        how_often = f"bounced-{self.times}" if self.times > 1 else "away"
        return f"{self.broker}-{self.failure}-{how_often}-{producer}-{self.compression}"


FAILURES = [
    ("leader", "stopped", BOUNCES),
    ("leader", "killed", 1),
    ("controller", "stopped", 1),
    ("controller", "killed", BOUNCES),
    ("leader", "stopped", 1),
    ("leader", "killed", BOUNCES),
    ("controller", "stopped", BOUNCES),
    ("controller", "killed", 1),
]


def cases() -> list[Case]:
    """Every case; the first four are the first failures, with writers that differ."""
    writers = list(itertools.product((True, False), ("none", "zstd", "gzip")))
    return [
        Case(*failure, *writers[(shift + number) % len(writers)])
        for shift in range(len(writers))
        for number, failure in enumerate(FAILURES)
    ]


CASES = cases() if "KRUST_REPLICATION_CASES" in os.environ else cases()[:4]


@pytest.fixture(scope="module")
def cluster(shared: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers for all cases."""
    folder = tmp_path_factory.mktemp("cases")
    with Cluster(folder, f"{shared.connect}/cases", replicas=3, **SETTINGS) as three:
        yield three


class Traffic:
    """A producer and a member of a group, each on a thread of its own; neither restarts.

    acknowledged  (partition, offset) -> the value that was acknowledged there
    read          the same, of what the member read
    """

    def __init__(self, case: Case, bootstrap: str) -> None:
        self._case, self._bootstrap = case, bootstrap
        self.topic = str(case)
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.read: dict[tuple[int, int], str] = {}
        self.sent = 0
        self.errors: list[str] = []
        self._written, self._over = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._write, name=f"writer-{case}", daemon=True)
        self._reader = threading.Thread(target=self._consume, name=f"reader-{case}", daemon=True)
        self._writer.start()
        self._reader.start()

    def _write(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "acks": "all",
            "enable.idempotence": self._case.idempotent,
            "compression.type": self._case.compression,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        producer = Producer(settings)
        while not self._written.is_set():
            for _ in range(BURST):
                place = self.sent % PARTITIONS
                producer.produce(
                    self.topic, str(self.sent), partition=place, on_delivery=self._delivered
                )
                self.sent += 1
            producer.poll(0)
            self._written.wait(0.01)
        if left := producer.flush(WAIT_S):
            self.errors.append(f"{left} records are not delivered")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            place = message.partition(), message.offset()
            self.acknowledged[place] = message.value().decode()
        else:
            self.errors.append(str(error))

    def _consume(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self.topic,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.topic])
        while not self._over.is_set():
            for message in consumer.consume(1000, 0.1):
                value, partition, offset = message.value(), message.partition(), message.offset()
                if message.error() is None:
                    assert isinstance(value, bytes)
                    assert partition is not None
                    assert offset is not None
                    self.read[partition, offset] = value.decode()
        consumer.close()

    def goes_on(self) -> None:
        """Wait until MORE records are acknowledged, and as many are read."""
        acknowledged, read = len(self.acknowledged) + MORE, len(self.read) + MORE
        until(lambda: len(self.acknowledged) >= acknowledged)
        until(lambda: len(self.read) >= read)

    def check(self) -> None:
        """End the producer, then the member when it has read all; compare what they saw."""
        self._written.set()
        self._end(self._writer)
        until(lambda: self.read.keys() >= self.acknowledged.keys())
        self.stop()
        assert self.errors == []
        wrong = {
            place: (value, self.read[place])
            for place, value in self.acknowledged.items()
            if self.read[place] != value
        }
        assert wrong == {}
        values = set(self.read.values())
        assert values == {str(number) for number in range(self.sent)}
        if self._case.idempotent:
            assert len(values) == len(self.read) == len(self.acknowledged)

    def stop(self) -> None:
        """End both, whatever they have seen."""
        self._written.set()
        self._over.set()
        self._end(self._writer)
        self._end(self._reader)

    def _end(self, thread: threading.Thread) -> None:
        """Wait until a thread has ended; the producer may take WAIT_S to deliver."""
        thread.join(2 * WAIT_S)
        seen = f"{len(self.acknowledged)} acknowledged, {len(self.read)} read, {self.errors}"
        assert not thread.is_alive(), f"{thread.name} does not end: {seen}"


def fail(cluster: Cluster, case: Case, traffic: Traffic) -> None:
    """Let the broker of the case fail, as often as the case says, under traffic."""
    for _ in range(case.times):
        number = (
            cluster.controller
            if case.broker == "controller"
            else cluster.leaders(traffic.topic, next(iter(cluster.brokers)))[0]
        )
        if case.failure == "stopped":
            cluster.stop(number)
        else:
            cluster.kill(number)
            until(partial(is_gone, cluster, number))
        traffic.goes_on()
        if case.times > 1:
            cluster.start_again(number)
            until(lambda: all_in_sync(cluster, traffic.topic))


def is_gone(cluster: Cluster, number: int) -> bool:
    """Whether the session of a killed broker has ended."""
    return number not in cluster.ids()


def all_in_sync(cluster: Cluster, topic: str) -> bool:
    """Whether every broker names every replica in sync."""
    return all(cluster.in_sync(topic, each) == [BROKERS] * PARTITIONS for each in BROKERS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_acknowledged_record_is_read(cluster: Cluster, case: Case) -> None:
    cluster.repair()
    cluster.create(str(case), PARTITIONS, **{"min.insync.replicas": "2"})
    until(lambda: all_in_sync(cluster, str(case)))
    traffic = Traffic(case, cluster.bootstrap())
    try:
        traffic.goes_on()
        fail(cluster, case, traffic)
        traffic.check()
    finally:
        traffic.stop()
    print(f"{case}: {len(traffic.acknowledged)} acknowledged, {len(traffic.read)} read")
