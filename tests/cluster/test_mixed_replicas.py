"""Kafka 3.9.1 and krust copy each other's partitions, and krust replaces Kafka under load.

A writer (acks=all, idempotent) and a member of a group work through all of it and never restart.
Each kind is the controller of a cluster of both while a broker of it is killed.
KRUST_MIXED_RECORDS: how many records are written at least (100,000); every 200,000 of them add
another replacement of all brokers and back.
KRUST_KAFKA_CLUSTER=1 also runs the test that kills brokers of either kind under either controller.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.mixed import BROKERS, KAFKA, KRUST, MixedCluster
from tests.cluster.replicated import ConfluentWriter, Ledger
from tests.peers import kafka
from tests.peers import zookeeper as peer
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

RECORDS = int(os.environ.get("KRUST_MIXED_RECORDS", "100000"))
REPLACEMENTS = max(1, RECORDS // 200_000)
"""from Kafka to krust and back"""
PARTITIONS = 6
BURST = 40
TOPIC = "orders"
OLD_LOGS = Path(__file__).parent.parent / "data" / "kafka-dirs"
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 4000,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 5000,
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": 200,
}


class PatientWriter(ConfluentWriter):
    """librdkafka with its default: a Kafka that has just started denies every topic at first."""

    propagation_ms = 30_000


class Reader:
    """A member of a group that reads the topic and never restarts."""

    def __init__(self, bootstrap: str) -> None:
        self.values: set[str] = set()
        self.fatal: list[str] = []
        """errors that the client library does not retry by itself"""
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        self._consumer = Consumer(settings)
        self._consumer.subscribe([TOPIC])
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        while not self._stops.is_set():
            for message in self._consumer.consume(1000, 0.2):
                error, value = message.error(), message.value()
                if error is None and isinstance(value, bytes):
                    self.values.add(value.decode())
                elif error is not None and self._is_fatal(error):
                    self.fatal.append(str(error))
        self._consumer.close()

    @staticmethod
    def _is_fatal(error: KafkaError) -> bool:
        unreachable = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE}
        return error.fatal() or not (error.retriable() or error.code() in unreachable)

    def stop(self) -> None:
        """Leave the group."""
        self._stops.set()
        self._thread.join()


@contextmanager
def cluster(folder: Path) -> Iterator[MixedCluster]:
    """Three brokers that do not run yet."""
    if reason := peer.missing() or kafka.missing():
        pytest.skip(reason)
    (folder / "zk").mkdir()
    with (
        peer.running(folder / "zk") as ensemble,
        MixedCluster(folder, f"{ensemble.connect}/mixed", SETTINGS) as brokers,
    ):
        yield brokers


@contextmanager
def traffic(brokers: MixedCluster) -> Iterator[Ledger]:
    """A writer and a reader; at the end no acknowledged record is missing, doubled or unread."""
    ledger = Ledger(TOPIC, PARTITIONS)
    writer = PatientWriter("confluent", brokers.bootstrap, ledger, BURST)
    reader = Reader(brokers.bootstrap)
    try:
        until(lambda: len(ledger) > 0)
        until(lambda: reader.values)
        yield ledger
        writer.stop()
        promised = set(ledger.values())
        until(lambda: reader.values >= promised)
    finally:
        writer.stop()
        reader.stop()
    print(f"acknowledged {len(ledger)}, kinds {brokers.kinds}")
    assert ledger.failed == []
    assert reader.fatal == []
    assert ledger.check(brokers.bootstrap) == []


def batches(brokers: MixedCluster, number: int, partition: str) -> bytes:
    """The bytes of a replica, whose broker does not run any more."""
    logs = sorted((brokers.log_dir(number) / partition).glob("*.log"))
    return b"".join(each.read_bytes() for each in logs)


def same_batches(brokers: MixedCluster) -> None:
    """The replicas of each partition have the same bytes; no broker runs any more."""
    for partition in range(PARTITIONS):
        copies = {batches(brokers, number, f"{TOPIC}-{partition}") for number in BROKERS}
        assert len(copies) == 1, partition


def leave_old_logs(folder: Path, version: str) -> dict[str, bytes]:
    """Put topics that an old Kafka wrote into a log directory. Returns the bytes of each."""
    left = {}
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(OLD_LOGS / f"kafka-{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    for found in (folder / f"kafka-{version}").glob("*-0"):
        topic = f"{version}-{found.name.removesuffix('-0')}"
        found.rename(folder / f"{topic}-0")
        logs = sorted((folder / f"{topic}-0").glob("*.log"))
        left[topic] = b"".join(each.read_bytes() for each in logs)
    shutil.rmtree(folder / f"kafka-{version}")
    return left


def is_served_by(brokers: MixedCluster, kind: str) -> None:
    """End terms of controllers until one of this kind is elected."""

    def elected() -> bool:
        if brokers.kinds.get(brokers.controller) == kind:
            return True
        brokers.move_controller()
        return False

    until(elected)


def goes_on(ledger: Ledger, records: int) -> None:
    """Wait until so many more records are acknowledged."""
    goal = len(ledger) + records
    until(lambda: len(ledger) >= goal)


@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
def test_kafka_and_krust_follow_each_other_and_any_of_them_may_die(tmp_path: Path) -> None:
    with cluster(tmp_path) as brokers:
        for number, kind in zip(BROKERS, (KAFKA, KRUST, KRUST), strict=True):
            brokers.start(number, kind)
        brokers.create(TOPIC, PARTITIONS)
        brokers.wait_in_sync(TOPIC, PARTITIONS)
        assert {brokers.kinds[each] for each in brokers.leaders(TOPIC)} == {KAFKA, KRUST}
        with traffic(brokers) as ledger:
            for kind in (KAFKA, KRUST):
                is_served_by(brokers, kind)
                for number in (1, 2):
                    brokers.kill(number)
                    goes_on(ledger, 500)
                    brokers.start(number, KAFKA if number == 1 else KRUST)
                    brokers.wait_in_sync(TOPIC, PARTITIONS)
        for number in BROKERS:
            brokers.stop(number)
        same_batches(brokers)


@pytest.mark.timeout(600 * REPLACEMENTS)
def test_krust_replaces_three_kafkas_on_their_directories_and_is_replaced_again(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as brokers:
        for number in BROKERS:
            brokers.start(number, KAFKA)
        brokers.create(TOPIC, PARTITIONS)
        brokers.wait_in_sync(TOPIC, PARTITIONS)
        with traffic(brokers) as ledger:
            for kind in (KRUST, KAFKA) * REPLACEMENTS:
                for number in BROKERS:
                    brokers.stop(number)
                    brokers.start(number, kind)
                    brokers.wait_in_sync(TOPIC, PARTITIONS)
                    if number == 2:
                        is_served_by(brokers, kind)
                        brokers.kill(number)
                        goes_on(ledger, 500)
                        brokers.start(number, kind)
                        brokers.wait_in_sync(TOPIC, PARTITIONS)
                goes_on(ledger, 500)
            while len(ledger) < RECORDS:
                goes_on(ledger, 1)
        for number in BROKERS:
            brokers.stop(number)
        same_batches(brokers)


def test_krust_follows_a_kafka_whose_logs_have_the_old_message_formats(tmp_path: Path) -> None:
    with cluster(tmp_path) as brokers:
        left = {
            topic: log
            for version in ("0.8.2.2", "0.10.2.2")
            for topic, log in leave_old_logs(brokers.log_dir(1), version).items()
        }
        brokers.start(1, KAFKA)
        brokers.start(2, KRUST)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        topics = [NewTopic(topic, num_partitions=1, replica_assignment=[[1, 2]]) for topic in left]
        for made in admin.create_topics(topics).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
        for topic in left:
            brokers.wait_in_sync(topic, 1)
            producer.produce(topic, b"of today")
        assert producer.flush(60) == 0
        assert [brokers.leaders(topic) for topic in left] == [[1]] * len(left)
        for number in (2, 1):
            brokers.stop(number)
        for topic, log in left.items():
            copy = batches(brokers, 2, f"{topic}-0")
            assert copy == batches(brokers, 1, f"{topic}-0"), topic
            assert log
            assert copy.startswith(log), topic
