"""Three brokers on one ZooKeeper are one cluster, to every client and to Kafka's own tools."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

import krust
from krust._krust import Client
from krust.errors import Code, KrustError
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.java


def test_every_broker_gives_the_same_metadata(three: Cluster) -> None:
    three.create("same", 6)
    leaders = three.agree("same", lambda all_of: -1 not in all_of)
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    for number in three.brokers:
        view = three.view(number)
        assert view["controller_id"] == three.controller
        ports = {each["node_id"]: each["port"] for each in view["brokers"]}
        assert ports == {n: each.address[1] for n, each in three.brokers.items()}


@pytest.mark.parametrize("through", [1, 2, 3])
def test_a_client_that_knows_one_broker_reaches_all(three: Cluster, through: int) -> None:
    topic = f"reached-{through}"
    three.create(topic, 6)
    bootstrap = three.bootstrap(through)
    values = [str(number) for number in range(300)]
    more: dict[str, Any] = {"bootstrap.servers": bootstrap}
    three.produce(topic, values, **{**more, "enable.idempotence": True})
    read = three.consume(topic, 300, f"group-{through}", **more)
    assert sorted(read, key=int) == values


def test_kafka_python_produces_and_is_a_member(three: Cluster) -> None:
    three.create("python", 6)
    producer = KafkaProducer(bootstrap_servers=three.bootstrap(3))
    sent = [producer.send("python", str(n).encode(), partition=n % 6) for n in range(60)]
    assert {each.get(WAIT_S).partition for each in sent} == set(range(6))
    producer.close()
    consumer = KafkaConsumer(
        "python",
        bootstrap_servers=three.bootstrap(2),
        group_id="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    read = [next(consumer).value for _ in range(60)]
    assert sorted(map(int, read)) == list(range(60))
    consumer.close()


def test_any_broker_creates_topics_on_first_use(three: Cluster) -> None:
    for number in three.brokers:
        topic = f"itself-{number}"
        more: dict[str, Any] = {"bootstrap.servers": three.bootstrap(number)}
        three.produce(topic, ["x"], **more)
        assert len(three.agree(topic, lambda leaders: -1 not in leaders)) == 1


def test_producer_ids_differ_from_broker_to_broker(three: Cluster) -> None:
    asked = {"transactional_id": None, "transaction_timeout_ms": 1}
    given = set()
    for each in three.brokers.values():
        client = Client(each.bootstrap)
        answers = [client.request("InitProducerId", asked) for _ in range(3)]
        assert [answer["error_code"] for answer in answers] == [0, 0, 0]
        given |= {answer["producer_id"] for answer in answers}
    assert len(given) == 9


def _agreed_coordinators(three: Cluster, groups: list[str]) -> list[dict[str, int]] | None:
    """The coordinator of each group as each broker names it, when all of them know it."""
    asked = {"key_type": 0, "coordinator_keys": groups}
    answers = [
        Client(three.bootstrap(number)).request("FindCoordinator", asked)["coordinators"]
        for number in three.brokers
    ]
    if any(each["error_code"] for answer in answers for each in answer):
        return None  # the topic of offsets is new to one of them
    return [{each["key"]: each["node_id"] for each in answer} for answer in answers]


def test_groups_have_their_coordinators_on_all_brokers(three: Cluster) -> None:
    three.create("grouped", 3)
    three.produce("grouped", ["x"])
    groups = [f"g{number}" for number in range(12)]
    for group in groups[:4]:
        assert three.consume("grouped", 1, group) == ["x"]
    [found, *others] = until(lambda: _agreed_coordinators(three, groups))
    assert others == [found, found]
    assert set(found.values()) == {1, 2, 3}
    elsewhere = next(number for number in three.brokers if number != found["g0"])
    client = Client(three.bootstrap(elsewhere))
    beat = {"group_id": "g0", "generation_id": 1, "member_id": "m"}
    assert client.request("Heartbeat", beat)["error_code"] == Code.NOT_COORDINATOR


def test_a_consumer_group_of_the_newer_protocol_lives_in_the_cluster(three: Cluster) -> None:
    three.create("newer", 6)
    three.produce("newer", [str(number) for number in range(60)])
    read = three.consume("newer", 60, "newer", **{"group.protocol": "consumer"})
    assert sorted(read, key=int) == [str(number) for number in range(60)]


def test_only_the_controller_decides_on_topics_and_only_leaders_take_records(
    three: Cluster,
) -> None:
    three.create("decided", 3)
    leaders = three.agree("decided", lambda all_of: -1 not in all_of)
    topic = {"name": "refused", "num_partitions": 1, "replication_factor": 1}
    other = next(number for number in three.brokers if number != three.controller)
    follower = Client(three.bootstrap(other))
    # Named, the broker is asked itself; otherwise the client would go on to the controller.
    answer = follower.request("CreateTopics", {"topics": [topic], "timeout_ms": 1000}, broker=other)
    assert answer["topics"][0]["error_code"] == Code.NOT_CONTROLLER
    asked = {"partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}
    wrong = next(number for number in three.brokers if number != leaders[0])
    fetch = {"topics": [{"topic": "decided", **asked}], "max_wait_ms": 0, "session_epoch": -1}
    client = Client(three.bootstrap(wrong))
    found = client.request("Fetch", fetch, version=11)
    not_leader = 6
    assert found["responses"][0]["partitions"][0]["error_code"] == not_leader


def _is_gone(three: Cluster, number: int) -> bool:
    return three.leaders("gone", number) == [] and not [*three.folder(number).glob("gone-*")]


def test_a_deleted_topic_is_gone_from_every_broker_and_disk(three: Cluster) -> None:
    three.create("gone", 6)
    three.produce("gone", ["x"] * 60)
    admin = AdminClient({"bootstrap.servers": three.bootstrap(3)})
    admin.delete_topics(["gone"])["gone"].result(WAIT_S)
    for number in three.brokers:
        until(partial(_is_gone, three, number))
    three.create("gone", 3)
    three.produce("gone", ["anew"])
    assert three.consume("gone", 1, "anew") == ["anew"]


def test_control_requests_from_a_non_controller_are_refused(three: Cluster) -> None:
    client = Client(three.bootstrap(2))
    stale = {"controller_id": 9, "controller_epoch": 0, "topic_states": [], "live_brokers": []}
    answer = client.request("UpdateMetadata", stale)
    assert answer["error_code"] == Code.STALE_CONTROLLER_EPOCH
    assert len(three.view(2)["brokers"]) == 3


def test_kafkas_own_tool_describes_the_cluster(three: Cluster) -> None:
    try:
        jars = kafka.jars("3.9.1")
    except AbsentError as error:
        pytest.skip(str(error))
    three.create("tools", 3)
    three.agree("tools", lambda leaders: -1 not in leaders)

    asked = ["--bootstrap-server", three.bootstrap(2), "--describe", "--topic", "tools"]
    command = ["java", "-cp", f"{jars}/*", "org.apache.kafka.tools.TopicCommand", *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    rows = [line for line in done.stdout.splitlines() if "Partition: " in line]
    leaders = {row.split("Leader: ")[1].split()[0] for row in rows}
    assert leaders == {"1", "2", "3"}, done.stdout + done.stderr


def test_brokers_can_have_a_listener_of_their_own(three: Cluster, tmp_path: Path) -> None:
    settings = {
        "zookeeper.connect": f"{three.connect}/inner",
        "listeners": "OUTER://localhost:0,INNER://localhost:0",
        "listener.security.protocol.map": "OUTER:PLAINTEXT,INNER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
    }
    with (
        krust.Broker(tmp_path / "1", config={**settings, "broker.id": 1}) as one,
        krust.Broker(tmp_path / "2", config={**settings, "broker.id": 2}) as two,
    ):
        one.create_topic("spread", 4)
        outer = Client(two.bootstrap)
        until(lambda: len(outer.request("Metadata", {"topics": [{"name": "spread"}]})["topics"]))
        assert not {4, 5, 6, 7, 27, 56, 67} & {key for key, *_ in outer.versions()}
        with pytest.raises(KrustError):
            outer.request("ControlledShutdown", {"broker_id": 1})
        (place,) = (
            each
            for each in json.loads(three.tree.get("/inner/brokers/ids/2")[0])["endpoints"]
            if each.startswith("INNER://")
        )
        inner = Client(place.removeprefix("INNER://"))
        assert {4, 5, 6, 7, 27, 56, 67} <= {key for key, *_ in inner.versions()}
        brokers = inner.request("Metadata", {"topics": []})["brokers"]
        assert {each["port"] for each in brokers} != {
            each["port"] for each in outer.request("Metadata", {"topics": []})["brokers"]
        }
