"""krust and Kafka 3.9.1 are brokers of one cluster, whichever of them is the controller.

KRUST_KAFKA_CLUSTER=1 starts the Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from krust._krust import Client
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.zookeeper import LONG_MS
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(300),
    pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1"),
]

SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": LONG_MS,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
}
KAFKA, KRUST = 1, 2
COUNT = 400


@contextmanager
def kafkas(folder: Path, connect: str) -> Iterator[str]:
    settings = {**SETTINGS, "broker.id": KAFKA}
    with kafka.running("3.9.1", folder, settings, zookeeper=connect) as bootstrap:
        yield bootstrap


def krusts(folder: Path, connect: str) -> ServedBroker:
    flags = ("--zookeeper", connect, "--node-id", str(KRUST))
    return ServedBroker(folder, *flags, options=dict(SETTINGS))


def leaders(place: str, topic: str) -> list[int]:
    """The leaders as one broker names them."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    described = Client(place).request("Metadata", asked)["topics"][0]
    partitions = sorted(described["partitions"], key=lambda each: each["partition_index"])
    return [each["leader_id"] for each in partitions]


def is_one_cluster(places: tuple[str, str], controller: int, topic: str) -> None:
    """Topics, records and groups work on both brokers, whichever one a client knows."""
    for place in places:
        until(partial(_knows, place, controller))
    one, other = (AdminClient({"bootstrap.servers": place}) for place in places)
    made = NewTopic(topic, 3, 1, config={"retention.ms": "123456789"})
    one.create_topics([made])[topic].result(WAIT_S)
    for place in places:
        limited(place, places)
    other.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
    for place in places:
        until(partial(_has, place, topic, [KAFKA, KAFKA, KRUST, KRUST]))
    for number, place in enumerate(places):
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": place, "enable.idempotence": True})
        for value in range(COUNT):
            producer.produce(
                topic,
                str(value),
                partition=value % 4,
                on_delivery=lambda error, _, errors=errors: errors.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * COUNT
        settings = {"bootstrap.servers": place, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "group.id": f"{topic}-{number}"})
        consumer.subscribe([topic])
        found: list[int] = []
        while len(found) < COUNT * (number + 1):
            message = until(partial(consumer.poll, 0.5))
            assert message.error() is None
            found.append(int(message.value()))
        assert sorted(found) == sorted([*range(COUNT)] * (number + 1))
        consumer.commit(asynchronous=False)
        consumer.close()
    groups = {"key_type": 0, "coordinator_keys": [f"g{n}" for n in range(20)]}
    for place in places:
        asked = Client(place).request("FindCoordinator", groups)["coordinators"]
        assert {each["node_id"] for each in asked} == {KAFKA, KRUST}
    other.delete_topics([topic])[topic].result(WAIT_S)
    for place in places:
        until(partial(_has, place, topic, []))


def limited(place: str, places: tuple[str, str]) -> None:
    """A quota set or removed through one broker holds on all."""
    entity = [{"entity_type": "user", "entity_name": f"of {place}"}]
    component = {"entity_type": "user", "match_type": 0, "match": f"of {place}"}
    asked = {"components": [component], "strict": True}
    for remove, found in ((False, 1), (True, 0)):
        op = {"key": "producer_byte_rate", "value": 7e6, "remove": remove}
        entries = {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False}
        [done] = Client(place).request("AlterClientQuotas", entries)["entries"]
        assert done["error_code"] == 0, done
        answers = [
            Client(each).request("DescribeClientQuotas", asked)["entries"] for each in places
        ]
        assert [len(each) for each in answers] == [found] * len(places)


def _has(place: str, topic: str, expected: list[int]) -> bool:
    return sorted(leaders(place, topic)) == expected


def _knows(place: str, controller: int) -> bool:
    view = Client(place).request("Metadata", {"topics": []})
    known = {each["node_id"] for each in view["brokers"]}
    return known == {KAFKA, KRUST} and view["controller_id"] == controller


def test_krust_works_under_a_kafka_controller(shared: Cluster, tmp_path: Path) -> None:
    connect = f"{shared.connect}/under-kafka"
    with kafkas(tmp_path / "kafka", connect) as theirs:
        krust = krusts(tmp_path / "krust", connect)
        is_one_cluster((theirs, krust.bootstrap), KAFKA, "first")
        assert krust.stop() == 0
        krust = krusts(tmp_path / "krust", connect)
        is_one_cluster((krust.bootstrap, theirs), KAFKA, "second")
        assert "Traceback" not in krust.stderr()
        assert krust.stop() == 0


def test_kafka_works_under_a_krust_controller(shared: Cluster, tmp_path: Path) -> None:
    connect = f"{shared.connect}/over-kafka"
    with krusts(tmp_path / "krust", connect) as krust:
        for topic in ("first", "second"):  # in between it stops cleanly, and comes back
            with kafkas(tmp_path / "kafka", connect) as theirs:
                is_one_cluster((theirs, krust.bootstrap), KRUST, topic)
        assert "Traceback" not in krust.stderr()


def test_the_controllership_moves_from_kafka_to_krust_and_back(
    shared: Cluster, tmp_path: Path
) -> None:
    connect = f"{shared.connect}/with-kafka"
    with kafkas(tmp_path / "kafka", connect):
        krust = krusts(tmp_path / "krust", connect)
    with kafkas(tmp_path / "kafka", connect) as theirs:
        is_one_cluster((theirs, krust.bootstrap), KRUST, "of-krust")
        assert krust.stop() == 0
        krust = krusts(tmp_path / "krust", connect)
        is_one_cluster((krust.bootstrap, theirs), KAFKA, "of-kafka")
        assert krust.stop() == 0


def batches(folder: Path, topic: str, partition: int) -> bytes:
    """The log of a partition in a broker's directory, segment after segment."""
    segments = sorted(folder.glob(f"**/{topic}-{partition}/*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def in_sync(place: str, topic: str) -> list[set[int]]:
    """The in-sync replicas as one broker names them."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    described = Client(place).request("Metadata", asked)["topics"][0]
    return [set(each["isr_nodes"]) for each in described["partitions"]]


def write(places: tuple[str, str], topic: str, values: range) -> None:
    errors: list[object] = []
    settings = {"bootstrap.servers": ",".join(places), "acks": "all", "enable.idempotence": True}
    producer = Producer(settings)
    for value in values:
        producer.produce(
            topic, str(value), partition=value % 2, on_delivery=lambda e, _: errors.append(e)
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


def test_krust_follows_kafka_and_kafka_follows_krust(shared: Cluster, tmp_path: Path) -> None:
    connect = f"{shared.connect}/replicas-beside-kafka"
    theirs, ours = tmp_path / "kafka", tmp_path / "krust"
    with kafkas(theirs, connect) as kafka_place, krusts(ours, connect) as krust:
        places = (kafka_place, krust.bootstrap)
        for place in places:
            until(partial(_knows, place, KAFKA))
        made = NewTopic("t", 2, replica_assignment=[[KAFKA, KRUST], [KRUST, KAFKA]])
        admin = AdminClient({"bootstrap.servers": kafka_place})
        admin.create_topics([made])["t"].result(WAIT_S)
        until(lambda: in_sync(krust.bootstrap, "t") == [{KAFKA, KRUST}] * 2)
        write(places, "t", range(COUNT))
        for partition in (0, 1):
            until(partial(_is_same, (theirs, ours), partition))
        assert krust.stop() == 0
        until(lambda: leaders(kafka_place, "t") == [KAFKA, KAFKA])
        write(places, "t", range(COUNT, 2 * COUNT))
        krust = krusts(ours, connect)
        until(lambda: in_sync(kafka_place, "t") == [{KAFKA, KRUST}] * 2)
        write((kafka_place, krust.bootstrap), "t", range(2 * COUNT, 3 * COUNT))
        for partition in (0, 1):
            until(partial(_is_same, (theirs, ours), partition))
        assert "Traceback" not in krust.stderr()
        assert krust.stop() == 0


def _is_same(folders: tuple[Path, Path], partition: int) -> bool:
    one, other = (batches(folder, "t", partition) for folder in folders)
    return bool(one) and one == other
