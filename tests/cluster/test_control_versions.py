"""Each version of the requests between controllers and brokers is answered and takes effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from krust._krust import Client
from krust.controller import ids
from tests.cluster.brokers import Cluster
from tests.faults import malformed

pytestmark = pytest.mark.java

KEYS = {"LeaderAndIsr": 4, "StopReplica": 5, "UpdateMetadata": 6, "ControlledShutdown": 7}
KEYS |= {"AlterPartition": 56, "AllocateProducerIds": 67}
KNOWN = malformed.apis(set(KEYS.values()))
BOSS, BOSS_EPOCH = 9, 100


@pytest.fixture(scope="module")
def two(shared: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker 1 is the controller; the tests speak to broker 2 as another one."""
    folder = tmp_path_factory.mktemp("versions")
    with Cluster(folder, f"{shared.connect}/versions", 2) as cluster:
        cluster.create("orders", 2)
        cluster.agree("orders", lambda leaders: sorted(leaders) == [1, 2])
        yield cluster
        cluster.kill(2)


def versions(api: str) -> list[int]:
    """The versions that Kafka 3.9 has."""
    return sorted(map(int, KNOWN[KEYS[api]]["request"]))


def fitted(kind: Any, value: Any) -> Any:
    """The part of a value that a version has: fields by name, in arrays and structs."""
    if isinstance(kind, dict):
        inner = kind.get("array") or kind.get("compact_array")
        return [fitted(inner, each) for each in value] if inner else value
    if isinstance(kind, list):
        return {name: fitted(inner, value[name]) for name, inner in kind if name in value}
    return value


def ask(client: Client, api: str, version: int, **message: Any) -> dict[str, Any]:
    """The answer to a message, cut to the fields of this version."""
    layout = KNOWN[KEYS[api]]["request"][str(version)]
    return client.request(api, fitted(layout, message), version)


def of_partition(topic: str, leader: int, epoch: int) -> dict[str, Any]:
    """A controller's description of partition 0 of a topic, with the fields of every version."""
    return {
        "topic_name": topic,
        "partition_index": 0,
        "controller_epoch": BOSS_EPOCH,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": [leader],
        "partition_epoch": epoch,
        "zk_version": epoch,
        "replicas": [leader],
    }


def topic_id(name: str) -> str:
    return ids.from_random(name.encode().ljust(16, b"\1"))


def answer_to(
    client: Client, api: str, version: int, states: list[Any], **more: Any
) -> dict[str, Any]:
    """The answer to a controller's request, grouped by topics as the version needs it."""
    topics = [
        {**each, "topic_id": topic_id(each["topic_name"]), "partition_states": [each]}
        for each in states
    ]
    head = {"controller_id": BOSS, "controller_epoch": BOSS_EPOCH, "broker_epoch": -1}
    both = {"ungrouped_partition_states": states, "topic_states": topics}
    return ask(client, api, version, **head, **both, **more)


def leads(client: Client, topic: str) -> bool:
    """Whether broker 2 answers as the leader of partition 0."""
    place = {"partition_index": 0, "timestamp": -1}
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [place]}]}
    answer = client.request("ListOffsets", asked, 3, broker=2)
    return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)


def test_control_requests_of_every_version_take_effect(two: Cluster) -> None:
    client = Client(two.bootstrap(2))
    place = {"port": 9, "host": "there", "listener": "PLAINTEXT", "security_protocol": 0}
    epoch = 0
    for version in versions("UpdateMetadata"):
        epoch += 1
        state = of_partition("news", 2, epoch)
        live = {"id": BOSS, "v0_host": "there", "v0_port": 9, "endpoints": [place], "rack": None}
        own = {**live, "id": 2}
        answer = answer_to(client, "UpdateMetadata", version, [state], live_brokers=[live, own])
        assert answer["error_code"] == 0, version
        assert {each["node_id"] for each in two.view(2)["brokers"]} == {2, BOSS}, version
        assert two.view(2)["controller_id"] == BOSS
    for version in versions("LeaderAndIsr"):
        epoch += 1
        state = of_partition("news", 2, epoch)
        leader = {"broker_id": 2, "host_name": "here", "port": 9}
        answer = answer_to(client, "LeaderAndIsr", version, [state], live_leaders=[leader])
        assert answer["error_code"] == 0, version
        listed = answer.get("partition_errors") or answer["topics"][0]["partition_errors"]
        assert [each["error_code"] for each in listed] == [0], version
        (topic,) = (each for each in two.view(2)["topics"] if each["name"] == "news")
        assert topic["partitions"][0]["leader_epoch"] == epoch, version
    for version in versions("StopReplica"):
        topic = f"stopped-{version}"
        answer_to(client, "LeaderAndIsr", 7, [of_partition(topic, 2, 0)], live_leaders=[])
        assert leads(client, topic)
        answer = answer_to(
            client,
            "StopReplica",
            version,
            [{**of_partition(topic, 2, -2), "delete_partition": True}],
            delete_partitions=True,
            ungrouped_partitions=[{"topic_name": topic, "partition_index": 0}],
            topics=[{"name": topic, "partition_indexes": [0]}],
        )
        assert answer["error_code"] == 0, version
        assert [each["error_code"] for each in answer["partition_errors"]] == [0], version
        assert not leads(client, topic), version


def test_brokers_of_every_version_are_answered_by_the_controller(two: Cluster) -> None:
    client = Client(two.bootstrap(1))
    epochs = {each: two.tree.exists(f"/brokers/ids/{each}").czxid for each in (1, 2)}
    assignment = json.loads(two.tree.get("/brokers/topics/orders")[0])
    led = next(int(part) for part, of in assignment["partitions"].items() if of == [1])
    data, stat = two.tree.get(f"/brokers/topics/orders/partitions/{led}/state")
    for version in versions("AlterPartition"):
        partition = {
            "partition_index": led,
            "leader_epoch": json.loads(data)["leader_epoch"],
            "new_isr": [1],
            "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": epochs[1]}],
            "partition_epoch": stat.version,
        }
        named = {
            "topic_name": "orders",
            "topic_id": assignment["topic_id"],
            "partitions": [partition],
        }
        answer = ask(
            client,
            "AlterPartition",
            version,
            broker_id=1,
            broker_epoch=epochs[1],
            topics=[named],
        )
        assert answer["error_code"] == 0, version
        assert [each["error_code"] for each in answer["topics"][0]["partitions"]] == [0], version
    own = {"broker_id": 2, "broker_epoch": epochs[2]}
    block = ask(client, "AllocateProducerIds", 0, **own)
    assert (block["error_code"], block["producer_id_len"]) == (0, 1000)
    for version in versions("ControlledShutdown"):
        answer = ask(client, "ControlledShutdown", version, **own)
        assert (answer["error_code"], answer["remaining_partitions"]) == (0, []), version
    two.create("later", 2, through=two.bootstrap(1))
    assert two.leaders("later", 1) == [1, 1], "the other is about to go"
