"""krust and Apache Kafka 3.9 take turns on one directory, both clean its compacted topics; the
metadata moves with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.foreign.conftest import jars
from tests.foreign.tables import CLEANER, Table, dumping
from tests.peers import kafka
from tests.peers import zookeeper as peer
from tests.serving import ServedBroker, environment
from tests.waiting import WAIT_S, until, until_is

TURNS = int(os.environ.get("KRUST_TURNS", "1"))
pytestmark = [pytest.mark.java, pytest.mark.timeout(300 + 150 * TURNS)]
PARTITIONS = 3
SESSION_MS = 10_000
EACH = 200


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    for missing in (peer.missing(), kafka.missing()):
        if missing:
            pytest.skip(missing)
    with peer.running(tmp_path / "zookeeper") as ensemble:
        yield f"{ensemble.connect}/moved"


def move(way: str, connect: str, data: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "krust", "cluster", way, "--zookeeper", connect]
    return subprocess.run(
        [*command, "--data-dir", str(data), *more],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )


def moved(way: str, connect: str, data: Path) -> None:
    """Move the metadata, as soon as ZooKeeper has ended the session of a killed broker."""

    def has_moved() -> bool:
        run = move(way, connect, data)
        assert not run.returncode or "is in use" in run.stderr, run.stderr
        return not run.returncode

    until(has_moved)


@contextmanager
def running(data: Path, *, ends: int) -> Iterator[str]:
    """krust, alone."""
    with ServedBroker(data, "--prod", options=CLEANER) as broker:
        yield broker.bootstrap
        if ends == signal.SIGKILL:
            broker.kill()


@contextmanager
def kafkas(folder: Path, data: Path, connect: str, *, ends: int) -> Iterator[str]:
    """Kafka, on the same directory."""
    settings = {**CLEANER, "log.dirs": data, "zookeeper.session.timeout.ms": SESSION_MS}
    with kafka.running("3.9.1", folder, settings, zookeeper=connect) as bootstrap:
        yield bootstrap
        if ends == signal.SIGKILL:
            os.kill(kafka.pid(folder), ends)


class History:
    """What was acknowledged, and what the topics are."""

    def __init__(self) -> None:
        self.values: dict[str, list[bytes]] = {}
        self.ids: dict[str, str] = {}

    def goes_on(self, bootstrap: str, name: str) -> None:
        """Check that all of it is there; add a topic, and records to each."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        self.wait(admin)
        for topic, values in self.values.items():
            assert sorted(self.read(bootstrap, topic)) == sorted(values), topic
            resource = ConfigResource(ResourceType.TOPIC, topic)
            settings = admin.describe_configs([resource])[resource].result(WAIT_S)
            assert settings["retention.ms"].value == "123456789012"
        new = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "123456789012"})
        admin.create_topics([new])[name].result(WAIT_S)
        self.values[name] = []
        for topic, values in self.values.items():
            values += self.write(bootstrap, topic)

    def wait(self, admin: AdminClient) -> None:
        """Until every topic has its leaders."""

        def without_leaders() -> set[str]:
            seen = admin.list_topics(timeout=WAIT_S).topics
            led = {
                name
                for name, topic in seen.items()
                if [each.leader for each in topic.partitions.values()] == [0] * PARTITIONS
            }
            return self.values.keys() - led

        until_is(set(), without_leaders)

    def write(self, bootstrap: str, topic: str) -> list[bytes]:
        errors: list[object] = []
        values = [f"{topic} {bootstrap} {number}".encode() for number in range(EACH)]
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * EACH
        return values

    def read(self, bootstrap: str, topic: str) -> list[bytes]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "turns"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        ends = sum(consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places)
        consumer.assign(places)
        found: list[bytes] = []
        while len(found) < ends:
            for message in consumer.consume(ends - len(found), WAIT_S):
                assert not message.error()
                found.append(message.value() or b"")
        consumer.close()
        return found


def test_metadata_is_not_moved_under_a_running_broker_or_by_a_dry_run(
    tmp_path: Path, connect: str
) -> None:
    data = tmp_path / "data"
    with ServedBroker(data):
        refused = move("export", connect, data)
        assert refused.returncode
        assert "a broker runs on it" in refused.stderr
    assert "created" in move("export", connect, data, "--dry-run").stdout
    refused = move("import", connect, data)
    assert "there is no cluster in" in refused.stderr
    assert move("export", connect, data).returncode == 0
    with ServedBroker(data, "--zookeeper", connect), ServedBroker(tmp_path / "other") as other:
        other.kill()
        refused = move("import", connect, tmp_path / "other")
        assert "is in use: /controller, /brokers/ids/0" in refused.stderr
    refused = move("import", connect, tmp_path / "other")
    assert "has cluster" in refused.stderr
    assert move("export", connect, data).returncode
    assert move("import", connect, data).returncode == 0


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL], ids=["clean", "killed"])
def test_one_history_continues_under_krust_and_kafka_in_turns(
    tmp_path: Path, connect: str, ends: int
) -> None:
    data, history = tmp_path / "data", History()
    table = Table(data)
    with dumping(jars("3.9.1")) as dumps:
        for turn in range(TURNS):
            with running(data, ends=ends) as bootstrap:
                history.goes_on(bootstrap, f"krust-{turn}")
                table.goes_on(bootstrap)
            table.is_sound(dumps, killed=ends == signal.SIGKILL)
            moved("export", connect, data)
            with kafkas(tmp_path / "kafka", data, connect, ends=ends) as bootstrap:
                history.goes_on(bootstrap, f"kafka-{turn}")
                table.goes_on(bootstrap)
            table.is_sound(dumps, killed=ends == signal.SIGKILL)
            moved("import", connect, data)
        with running(data, ends=ends) as bootstrap:
            history.goes_on(bootstrap, "last")
            table.goes_on(bootstrap)
        table.is_sound(dumps, killed=ends == signal.SIGKILL)
