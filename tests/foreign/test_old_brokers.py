"""Apache's brokers 0.8.2.2 and 0.10.2.2: krust answers old requests as they do, byte for byte, and
takes over what they leave in their ZooKeeper and on disk.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient

from tests.foreign import old_requests as old
from tests.foreign.clients import Confluent, KafkaPython
from tests.peers import old_kafka
from tests.peers import zookeeper as peer
from tests.serving import ServedBroker
from tests.three_brokers import Command, leader_count
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

LATEST, EARLIEST = -1, -2
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "delete.topic.enable": "true",
}
CORRUPT = bytearray(old.message(0, b"corrupt", 0))
CORRUPT[12] ^= 1


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for missing in (peer.missing(), old_kafka.missing()):
        if missing:
            pytest.skip(missing)
    with peer.running(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble.connect


def of_2013() -> Iterator[old.OldRequest]:
    """The requests of a client of 0.8.2."""
    two = old.message(0, b"one", 0) + old.message(1, b"two", 0)
    yield old.metadata(0, "later", "nowhere")
    yield old.produce(0, "orders", 0, two)
    yield old.produce(0, "orders", 0, two)
    yield old.produce(0, "orders", 0, bytes(CORRUPT))
    yield old.produce(0, "orders", 7, two)
    yield old.produce(0, "nowhere", 0, two)
    for offset in (0, 3, 4, 5, -1):
        yield old.fetch(0, "orders", 0, offset)
    yield old.fetch(0, "orders", 7, 0)
    yield old.fetch(0, "nowhere", 0, 0)
    for when in (LATEST, EARLIEST, 0, 2**62):
        yield old.list_offsets(0, "orders", 0, when)
    yield old.list_offsets(0, "orders", 7, LATEST)
    yield old.commit(0, "g", "orders", 0, 3)
    yield old.commit(0, "g", "nowhere", 0, 3)
    yield old.committed(0, "g", "orders", 0, 1)
    yield old.committed(0, "g", "nowhere", 0)
    yield old.commit(1, "g", "orders", 1, 4)
    yield old.committed(1, "g", "orders", 0, 1)


def of_2017() -> Iterator[old.OldRequest]:
    """Further requests of a client of 0.10.2."""
    one = old.message(0, b"one", 1)
    for version in (1, 2):
        yield old.produce(version, "later", 0, one)
    yield old.produce(2, "orders", 0, one)
    for version in (1, 2, 3):
        yield old.fetch(version, "later", 0, 0)
        yield old.fetch(version, "later", 0, 9)
    for when in (LATEST, EARLIEST, 0, old.WRITTEN_MS, old.WRITTEN_MS + 1):
        yield old.list_offsets(1, "later", 0, when)
    yield old.list_offsets(1, "nowhere", 0, LATEST)
    for version in (1, 2):
        yield old.metadata(version, "later", "nowhere")
    yield old.commit(2, "g2", "orders", 0, 1)
    yield old.committed(2, "g2", "orders", 0, 1)
    yield old.heartbeat("nobodys")
    yield old.leave("nobodys")
    yield old.describe("nobodys")
    yield old.create(0, "made", 2)
    yield old.create(1, "made", 2)
    yield old.create(0, "a/b", 1)
    yield old.create(0, "wide", 1, 3)
    yield old.create(0, "none", 0)
    yield old.delete("made")
    yield old.delete("made")


def of_what_lasts() -> Iterator[old.OldRequest]:
    """Requests whose answers depend only on the directory and the tree."""
    for topic in ("orders", "later"):
        yield old.fetch(0, topic, 0, 0)
        yield old.list_offsets(0, topic, 0, LATEST)
        yield old.list_offsets(0, topic, 0, EARLIEST)
    yield old.committed(0, "g", "orders", 0, 1)
    yield old.committed(1, "g", "orders", 0, 1)
    yield old.metadata(0, "later")


def comparable(line: old.Old, cluster: str, asked: old.OldRequest) -> bytes:
    """An answer without the port and the cluster's id."""
    answer = line.ask(asked).replace(struct.pack(">i", line.address[1]), b"PORT")
    return answer.replace(cluster.encode(), b"CLUSTER") if cluster else answer


def cluster_id(zookeeper: str) -> str:
    tree = KazooClient(zookeeper)
    tree.start()
    try:
        found = tree.exists("/cluster/id") and tree.get("/cluster/id")[0].decode()
        return found.split('"')[-2] if found else ""
    finally:
        tree.stop()
        tree.close()


def settled(line: old.Old, *names: str) -> None:
    """Return when its topics have leaders, and groups a coordinator that has loaded them."""
    waiting = [(old.coordinator("g"), 0)]  # who asks first has its topic made
    waiting += [(old.list_offsets(0, name, 0, LATEST), 14 + len(name)) for name in names]
    waiting.append((old.commit(1, "waiting", names[0], 0, 0), 14 + len(names[0])))
    deadline = time.monotonic() + WAIT_S
    for each, place in waiting:
        while line.ask(each)[place : place + 2] != b"\0\0":
            assert time.monotonic() < deadline, each.about
            time.sleep(0.05)


class Left(NamedTuple):
    """The answers of an old broker and of krust, and the old one's directory and tree."""

    answers: list[tuple[old.OldRequest, bytes, bytes]]
    data: Path
    connect: str
    cluster_id: str


@pytest.fixture(scope="module", params=old_kafka.VERSIONS)
def left(
    request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Left:
    version, folder = request.param, tmp_path_factory.mktemp("old")
    theirs, ours = f"{zookeeper}/their-{version}", f"{zookeeper}/our-{version}"
    flags = ("--zookeeper", ours, "--node-id", "0")
    made = {"orders": 2, "later": 1}
    with (
        old_kafka.running(version, folder / "old", theirs, SETTINGS) as place,
        ServedBroker(folder / "krust", *flags, options=dict(SETTINGS)) as krust,
    ):
        admin = AdminClient({"bootstrap.servers": krust.bootstrap})
        for name, partitions in made.items():
            old_kafka.create(version, theirs, name, partitions, retention_ms="123456789012")
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
        lines = [old.Old(place), old.Old(("127.0.0.1", krust.address[1]))]
        clusters = [cluster_id(each) for each in (theirs, ours)]
        for line in lines:
            settled(line, *made)
        asked = [*of_2013(), *(of_2017() if version != "0.8.2.2" else ()), *of_what_lasts()]
        answers = [
            (each, *(comparable(*one, each) for one in zip(lines, clusters, strict=True)))
            for each in asked
        ]
        for line in lines:
            line.close()
    return Left(answers, folder / "old/data", theirs, clusters[0])


def test_krust_answers_old_requests_as_an_old_broker(left: Left) -> None:
    assert len(left.answers) > 20
    for asked, kafkas, krusts in left.answers:
        assert krusts == kafkas, asked


def test_krust_takes_over_what_an_old_broker_left(left: Left) -> None:
    flags = ("--zookeeper", left.connect, "--node-id", "0")
    with ServedBroker(left.data, *flags, options=dict(SETTINGS)) as broker:
        assert left.cluster_id in ("", broker.ready["cluster_id"])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = admin.list_topics(timeout=WAIT_S).topics
        assert {name: len(topics[name].partitions) for name in ("orders", "later")} == {
            "orders": 2,
            "later": 1,
        }
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        settings = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert settings["retention.ms"].value == "123456789012"
        line = old.Old(("127.0.0.1", broker.address[1]))
        settled(line, "orders", "later")
        for asked, kafkas, _ in left.answers[-len(list(of_what_lasts())) :]:
            assert comparable(line, left.cluster_id, asked) == kafkas, asked
        line.close()
        found = KafkaPython((0, 8, 2)).read(broker.bootstrap, "orders", 4)
        assert [value for _, value in found] == [b"one", b"two", b"one", b"two"]
        Confluent().write(broker.bootstrap, "orders", "none", [(b"k", b"after")])


@pytest.mark.parametrize("version", old_kafka.VERSIONS)
def test_krusts_client_works_with_an_old_broker(
    version: str, zookeeper: str, tmp_path: Path
) -> None:
    connect = f"{zookeeper}/client-{version}"
    with old_kafka.running(version, tmp_path / "old", connect, SETTINGS) as (_, port):
        old_kafka.create(version, connect, "orders", 1)
        client = Command(f"127.0.0.1:{port}")
        until(lambda: leader_count(client.bootstrap, "orders") == 1)
        client.ok("produce", "orders", given=b"a\nb\n")
        assert client.ok("consume", "orders", "-e").out == b"a\nb\n"
        newest = {
            row["api"]: row["last"] for row in client.ok("cluster", "versions", "--json").json()
        }
        assert newest["Fetch"] == (0 if version == "0.8.2.2" else 3)
