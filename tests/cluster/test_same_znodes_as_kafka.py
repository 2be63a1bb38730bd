"""Three krusts and three Kafkas 3.9.1 leave the same znodes after the same operations.

tests/data/znodes-3.9.1-three.json has the znodes of Kafka. With KRUST_KAFKA_CLUSTER=1 three Kafkas
repeat the operations and have to leave the same. The test compares whole values, except for what
differs between any two clusters: ids, timestamps, ports, and the place of Kafka's own topics. It
leaves out Kafka's ACLs, and the one key that krust adds to the registration of a broker.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient

from krust._krust import Client
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.zookeeper import LONG_MS
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

RECORDED = Path(__file__).parents[1] / "data/znodes-3.9.1-three.json"
SETTINGS: dict[str, Any] = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
}
ANY = ("timestamp", "topic_id", "host", "port", "endpoints", "id", "block_start", "block_end")
QUOTAS: list[tuple[dict[str, str | None], str, tuple[float | None, ...]]] = [
    ({"user": "ann~ b", "client-id": None}, "producer_byte_rate", (1024.0, 2048.0)),
    ({"user": None}, "request_percentage", (50.5,)),
    ({"client-id": "app"}, "controller_mutation_rate", (1e7,)),
    ({"ip": "10.0.0.1"}, "connection_creation_rate", (5.0,)),
    ({"user": "ann~ b"}, "producer_byte_rate", (5.0, None)),
    ({"user": "gone", "client-id": "app"}, "consumer_byte_rate", (5.0, None)),
    ({"client-id": "gone"}, "consumer_byte_rate", (5.0, None)),
]
"""Whose, which, and its values one after the other."""
Tree = dict[str, Any]


def operate(bootstrap: str) -> None:
    """Create, configure, limit, add partitions, delete; a group, and a producer with an id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    until(lambda: len(admin.list_topics(timeout=WAIT_S).brokers) == 3)
    orders = NewTopic(
        "orders",
        3,
        replica_assignment=[[1], [2], [3]],
        config={"max.message.bytes": "2000000", "retention.ms": "1"},
    )
    gone = NewTopic("gone", 1, replica_assignment=[[2]])
    for topic in (orders, gone):
        admin.create_topics([topic])[topic.topic].result(WAIT_S)
    until(lambda: all_know(bootstrap, "orders", 3) and all_know(bootstrap, "gone", 1))
    configure(admin, ResourceType.TOPIC, "orders", "retention.ms", "123456")
    configure(admin, ResourceType.TOPIC, "orders", "max.message.bytes", None)
    configure(admin, ResourceType.BROKER, "2", "message.max.bytes", "3000000")
    for entity, key, values in QUOTAS:
        for value in values:
            quota(bootstrap, entity, key, value)
    more = NewPartitions("orders", 5, [[3], [1]])
    admin.create_partitions([more])["orders"].result(WAIT_S)
    until(lambda: all_know(bootstrap, "orders", 5))
    admin.delete_topics(["gone"])["gone"].result(WAIT_S)
    until(lambda: "gone" not in admin.list_topics(timeout=WAIT_S).topics)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("orders", "x", partition=4)
    assert producer.flush(WAIT_S) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    assert until(lambda: consumer.poll(0.1)).error() is None
    consumer.close()


def all_know(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether every broker knows the leaders of this many partitions."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    for place in bootstrap.split(","):
        [found] = Client(place).request("Metadata", asked)["topics"]
        led = [each for each in found["partitions"] if each["leader_id"] >= 0]
        if len(led) != partitions:
            return False
    return True


def quota(bootstrap: str, entity: dict[str, str | None], key: str, value: float | None) -> None:
    """Set a quota; None: remove it."""
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    op = {"key": key, "value": value or 0.0, "remove": value is None}
    entries = {"entries": [{"entity": named, "ops": [op]}], "validate_only": False}
    [answer] = Client(bootstrap).request("AlterClientQuotas", entries)["entries"]
    assert answer["error_code"] == 0, answer


def configure(
    admin: AdminClient, kind: ResourceType, name: str, key: str, value: str | None
) -> None:
    what = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    resource = ConfigResource(kind, name)
    resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=what))
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def left(tree: KazooClient, path: str = "/") -> Tree:
    """The tree: the data of each path, and whether it is ephemeral."""
    data, stat = tree.get(path)
    found = {path: {"data": (data or b"").decode(), "ephemeral": stat.ephemeralOwner != 0}}
    for name in tree.get_children(path):
        found |= left(tree, f"{path.rstrip('/')}/{name}")
    return found


def settled(tree: KazooClient) -> Tree:
    """The same, once deleted topics are gone from it."""
    until(lambda: not tree.exists("/brokers/topics/gone"))
    until(lambda: not tree.get_children("/admin/delete_topics"))
    return left(tree)


def comparable(tree: Tree) -> Tree:
    """The part that two clusters have in common; values are JSON with sorted keys."""
    found = {}
    for path, node in sorted(tree.items()):
        if path.startswith("/kafka-acl"):
            continue
        data = node["data"]
        if data.startswith("{"):
            data = json.dumps(_masked(path, json.loads(data)))
        found[path] = (data, node["ephemeral"])
    return found


def _masked(path: str, value: dict[str, Any]) -> dict[str, Any]:
    masked = {key: "any" if key in ANY else each for key, each in value.items()}
    if path == "/latest_producer_id_block":
        masked["broker"] = "any"
    if path.startswith("/brokers/ids/"):
        masked.pop("krust", None)
    if "__consumer_offsets" in path:
        masked |= {key: "any" for key in ("leader", "isr") if key in masked}
        masked |= {"partitions": sorted(masked["partitions"])} if "partitions" in masked else {}
    return masked


def test_krust_leaves_the_same_znodes_as_kafka(three: Cluster, tmp_path: Path) -> None:
    with Cluster(tmp_path, f"{three.connect}/compared", **SETTINGS) as ours:
        operate(ours.bootstrap())
        assert comparable(settled(ours.tree)) == comparable(json.loads(RECORDED.read_text()))


@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
def test_three_kafkas_leave_the_recorded_znodes(three: Cluster, tmp_path: Path) -> None:
    if reason := kafka.missing():
        pytest.skip(reason)
    connect = f"{three.connect}/of-kafka"
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": LONG_MS}
    tree = KazooClient(connect)
    tree.start_async().wait(WAIT_S)
    try:
        with kafka.several("3.9.1", tmp_path, 3, connect, settings) as places:
            operate(",".join(places))
            found = settled(tree)
    finally:
        tree.stop()
        tree.close()
    (tmp_path / "znodes.json").write_text(json.dumps(found, indent=1, sort_keys=True))
    assert comparable(found) == comparable(json.loads(RECORDED.read_text()))
