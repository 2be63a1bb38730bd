"""Brokers that log in at each other: krust's own, and krust's beside Kafka's on one ZooKeeper."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import krust
from krust import Admin, jaas
from krust._krust import Client
from krust.cli import main
from krust.errors import Code, KafkaError
from tests.certificates import Authority
from tests.cluster.brokers import Cluster
from tests.peers import kafka, tools
from tests.peers.zookeeper import LONG_MS
from tests.ports import free_ports
from tests.serving import ServedBroker, environment
from tests.waiting import until

WAIT_MS = 60_000
KAFKA, KRUST = 1, 2
ADMIN = f'{jaas.PLAIN} required username="admin" password="a-secret" user_admin="a-secret" '
ADMIN += 'user_alice="alice-secret";'
BROKER = f'{jaas.SCRAM} required username="broker" password="broker-secret";'


def client(bootstrap: str, user: str, mechanism: str = "PLAIN") -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def test_replicas_and_markers_pass_between_brokers_that_log_in(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": ADMIN,
        "listener.name.brokers.plain.sasl.jaas.config": ADMIN,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.certify("broker", "IP:127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }
    with krust.Cluster(3, config=settings) as cluster:
        of_alice = client(cluster.bootstrap, "alice")
        Admin(of_alice).create_topic("replicated", partitions=3, replication_factor=3)
        with krust.Producer(of_alice, transactional_id="t") as producer:
            with producer.transaction():
                for partition in range(3):
                    producer.send("replicated", b"x", partition=partition)
            cluster.kill(0)
            cluster.start(0)
        with krust.Producer(of_alice) as producer:
            sent = [producer.send("replicated", b"y", partition=number) for number in range(3)]
            assert all(each.result(WAIT_MS).offset > 0 for each in sent)
        with krust.Consumer(of_alice, isolation_level="read_committed") as consumer:
            consumer.assign([("replicated", number, 0) for number in range(3)])
            found: list[bytes] = []
            while len(found) < 6:
                found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
        assert sorted(found) == [b"x"] * 3 + [b"y"] * 3


def secured(node: int, connect: str) -> dict[str, object]:
    """The settings of a broker whose inter-broker listener has logins by SCRAM."""
    [port] = free_ports(1)
    return {
        "broker.id": node,
        "listeners": f"PLAINTEXT://{{bootstrap}},BROKERS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.brokers.scram-sha-512.sasl.jaas.config": BROKER,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": LONG_MS,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
    }


def add_user(tmp_path: Path, name: str, connect: str) -> None:
    """Make a user where brokers will read it, before any of them runs."""
    file = tmp_path / name
    file.write_text(f"{name}-secret")
    add = ["user", "add", name, "--password-file", str(file), "--zookeeper", connect]
    command = [sys.executable, "-m", "krust", *add]
    subprocess.run(command, check=True, capture_output=True, timeout=60, env=environment())


def served(folder: Path, settings: dict[str, object]) -> ServedBroker:
    names = str(settings["listeners"]).replace("{bootstrap}", "127.0.0.1:0")
    return ServedBroker(folder, port=None, options={**settings, "listeners": names})


def is_replicated(place: str, brokers: list[int]) -> None:
    """A record that acks=all confirms reaches the other broker, whoever leads."""
    asked = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    until(lambda: len(Client(place).request("Metadata", asked)["brokers"]) == len(brokers))
    rows = [
        {"partition_index": n, "broker_ids": ids} for n, ids in enumerate((brokers, brokers[::-1]))
    ]
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "configs": []}
    body = {"topics": [{**topic, "assignments": rows}], "timeout_ms": 9000, "validate_only": False}
    [made] = Client(place).request("CreateTopics", body)["topics"]
    assert made["error_code"] == 0
    with krust.Producer(bootstrap_servers=place, acks="all") as producer:
        sent = [producer.send("t", b"x", partition=number % 2) for number in range(100)]
        assert max(each.result(WAIT_MS).offset for each in sent) == 49
    partitions = Client(place).request("Metadata", asked)["topics"][0]["partitions"]
    assert {tuple(sorted(each["isr_nodes"])) for each in partitions} == {tuple(sorted(brokers))}


def logs_in(at: str, user: str) -> bool:
    try:
        Admin(client(at, user, "SCRAM-SHA-512")).topics()
    except KafkaError as refused:
        if refused.code != Code.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def is_refused(at: str, user: str) -> bool:
    return not logs_in(at, user)


def listener(settings: dict[str, object]) -> str:
    return str(settings["listeners"]).rpartition("//")[2]


def test_the_first_user_is_made_before_any_broker_runs(shared: Cluster, tmp_path: Path) -> None:
    connect = f"{shared.connect}/first-user"
    add_user(tmp_path, "broker", connect)
    one, two = (secured(node, connect) for node in (1, 2))
    with served(tmp_path / "one", one) as first, served(tmp_path / "two", two) as second:
        is_replicated(first.bootstrap, [1, 2])
        add_user(tmp_path, "carl", connect)
        for each in (one, two):
            assert until(partial(logs_in, listener(each), "carl"))
        delete = ["user", "delete", "carl", "-b", second.bootstrap]
        with pytest.raises(SystemExit, match=r"^0$"):
            main(delete)
        for each in (one, two):
            assert until(partial(is_refused, listener(each), "carl"))


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
@pytest.mark.parametrize("controller", [KAFKA, KRUST])
def test_krust_and_kafka_log_in_at_each_other_with_users_that_either_made(
    shared: Cluster, tmp_path: Path, controller: int
) -> None:
    connect = f"{shared.connect}/logins-beside-kafka-{controller}"
    add_user(tmp_path, "broker", connect)
    theirs, ours = secured(KAFKA, connect), secured(KRUST, connect)
    with tools.tools("3.9.1") as run:
        if controller == KAFKA:
            with (
                kafka.running("3.9.1", tmp_path / "kafka", theirs, zookeeper=connect) as place,
                served(tmp_path / "krust", ours) as krusts,
            ):
                _users_of_either_act_on_both(run, (place, krusts.bootstrap), (theirs, ours))
        else:
            with (
                served(tmp_path / "krust", ours) as krusts,
                kafka.running("3.9.1", tmp_path / "kafka", theirs, zookeeper=connect) as place,
            ):
                _users_of_either_act_on_both(run, (place, krusts.bootstrap), (theirs, ours))


def _users_of_either_act_on_both(
    run: tools.Tools, places: tuple[str, str], settings: tuple[dict[str, object], ...]
) -> None:
    is_replicated(places[0], [KAFKA, KRUST])
    for number, place in enumerate(places):
        user = f"user{number}"
        at = ("--bootstrap-server", place, "--entity-type", "users", "--entity-name", user)
        made = f"SCRAM-SHA-512=[iterations=4096,password={user}-secret]"
        assert run("kafka-configs", *at, "--alter", "--add-config", made)[0] == 0
        for each in settings:
            assert until(partial(logs_in, listener(each), user))
        assert run("kafka-configs", *at, "--alter", "--delete-config", "SCRAM-SHA-512")[0] == 0
        for each in settings:
            assert until(partial(is_refused, listener(each), user))
