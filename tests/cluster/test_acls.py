"""ACLs of several brokers: each obeys what any of them is told, krust's and Kafka's alike."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from krust import jaas
from krust._krust import Client
from tests.acl_matrix.connection import Connection
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.zookeeper import LONG_MS
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.waiting import until, until_is

KAFKA, KRUST, ANOTHER = 1, 2, 3
PASSWORD = "secret"
LOGIN = f'{jaas.PLAIN} required user_admin="{PASSWORD}" user_alice="{PASSWORD}";'
TOPIC_REFUSED = 29
TREES = ("/kafka-acl", "/kafka-acl-extended")
CHANGES = ("/kafka-acl-changes", "/kafka-acl-extended-changes")
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
READ, WRITE, DESCRIBE = 3, 4, 8
DENY, ALLOW = 2, 3
Acl = dict[str, Any]


def settings(node: int, connect: str) -> dict[str, object]:
    """Those of a broker on whose listener LOGINS users log in, and ACLs bind them."""
    [port] = free_ports(1)
    return {
        "broker.id": node,
        "listeners": f"PLAINTEXT://{{bootstrap}},LOGINS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.logins.plain.sasl.jaas.config": LOGIN,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": LONG_MS,
        "offsets.topic.replication.factor": 1,
    }


@contextmanager
def brokers(folder: Path, connect: str, *nodes: int) -> Iterator[dict[int, str]]:
    """Where users log in, by broker; the first one is the controller."""
    places, wanted = {}, {node: settings(node, connect) for node in nodes}
    with ExitStack() as stack:
        for node, each in wanted.items():
            own = folder / str(node)
            folder.mkdir(exist_ok=True)
            if node == KAFKA:
                running = kafka.running("3.9.1", own, each, zookeeper=connect)
                place = stack.enter_context(running)
            else:
                listeners = str(each["listeners"]).replace("{bootstrap}", "127.0.0.1:0")
                options = {**each, "listeners": listeners}
                broker = stack.enter_context(ServedBroker(own, port=None, options=options))
                place = broker.bootstrap
            places[node] = str(each["listeners"]).rpartition("//")[2]
        until_is(len(nodes), lambda: len(Client(place).request("Metadata", {})["brokers"]))
        topic = {"name": "t", "num_partitions": 1, "replication_factor": len(nodes)}
        asked = {"topics": [topic], "timeout_ms": 9000}
        [made] = Client(place).request("CreateTopics", asked)["topics"]
        assert made["error_code"] == 0
        yield places


def acl(
    name: str = "t",
    operation: int = DESCRIBE,
    permission: int = ALLOW,
    principal: str = "User:alice",
    **other: object,
) -> Acl:
    """An ACL as CreateAcls names it."""
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
        **other,
    }


def create(place: str, *acls: Acl) -> None:
    with Connection(place, "admin", PASSWORD) as admin:
        told = admin.ask("CreateAcls", 3, {"creations": list(acls)})
    assert {each["error_code"] for each in told["results"]} == {0}, told


def delete(place: str, *acls: Acl) -> None:
    filters = [
        {
            "resource_type_filter": each["resource_type"],
            "resource_name_filter": each["resource_name"],
            "pattern_type_filter": each["resource_pattern_type"],
            "principal_filter": each["principal"],
            "host_filter": each["host"],
            "operation": each["operation"],
            "permission_type": each["permission_type"],
        }
        for each in acls
    ]
    with Connection(place, "admin", PASSWORD) as admin:
        told = admin.ask("DeleteAcls", 3, {"filters": filters})
    assert [len(each["matching_acls"]) for each in told["filter_results"]] == [1] * len(acls), told


def listed(place: str) -> set[tuple[Any, ...]]:
    """All ACLs as a broker knows them."""
    every = {"resource_type_filter": 1, "pattern_type_filter": 1}
    with Connection(place, "admin", PASSWORD) as admin:
        told = admin.ask("DescribeAcls", 3, {**every, "operation": 1, "permission_type": 1})
    assert told["error_code"] == 0
    return {
        (each["resource_type"], each["pattern_type"], each["resource_name"], *one.values())
        for each in told["resources"]
        for one in each["acls"]
    }


def obeyed_everywhere(places: Mapping[int, str]) -> None:
    """What any broker is told, each of them obeys, on connections that are open."""
    with ExitStack() as stack:
        alices = [
            stack.enter_context(Connection(place, "alice", PASSWORD)) for place in places.values()
        ]
        for place in places.values():
            for allowed in (acl(), acl(resource_pattern_type=PREFIXED), acl("*")):
                assert {describes(each) for each in alices} == {False}
                create(place, allowed)
                assert all(until(partial(describes, each)) for each in alices)
                create(place, acl(permission=DENY))
                for each in alices:
                    until(partial(is_refused, each))
                for other in places.values():
                    until_is(listed(place), partial(listed, other))
                delete(place, allowed, acl(permission=DENY))
                for other in places.values():
                    until_is(set(), partial(listed, other))


def describes(connection: Connection) -> bool:
    [topic] = connection.ask("Metadata", 4, {"topics": [{"name": "t"}]})["topics"]
    assert topic["error_code"] in (0, TOPIC_REFUSED)
    return bool(topic["error_code"] == 0)


def is_refused(connection: Connection) -> bool:
    return not describes(connection)


def test_each_broker_obeys_what_another_was_told(shared: Cluster, tmp_path: Path) -> None:
    with brokers(tmp_path, f"{shared.connect}/acls", KRUST, ANOTHER) as places:
        obeyed_everywhere(places)


def test_a_broker_that_starts_again_obeys_what_it_missed(shared: Cluster, tmp_path: Path) -> None:
    connect = f"{shared.connect}/acls-missed"
    with brokers(tmp_path / "first", connect, KRUST, ANOTHER) as places:
        create(places[KRUST], acl(), acl("prefix", resource_pattern_type=PREFIXED))
    [port] = free_ports(1)
    options = settings(KRUST, connect)
    options["listeners"] = f"PLAINTEXT://127.0.0.1:0,LOGINS://127.0.0.1:{port}"
    with ServedBroker(tmp_path / "first" / str(KRUST), port=None, options=options):
        place = f"127.0.0.1:{port}"
        assert len(listed(place)) == 2
        with Connection(place, "alice", PASSWORD) as alice:
            assert until(partial(describes, alice))


with_kafka = pytest.mark.skipif(
    "KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1"
)


@pytest.mark.java
@pytest.mark.timeout(300)
@with_kafka
@pytest.mark.parametrize("order", [(KAFKA, KRUST), (KRUST, KAFKA)], ids=["kafka", "krust"])
def test_krust_and_kafka_obey_what_either_was_told(
    shared: Cluster, tmp_path: Path, order: tuple[int, int]
) -> None:
    connect = f"{shared.connect}/acls-beside-kafka-{order[0]}"
    with brokers(tmp_path, connect, *order) as places:
        obeyed_everywhere(places)


@pytest.mark.java
@pytest.mark.timeout(300)
@with_kafka
def test_krust_and_kafka_leave_the_same_znodes(shared: Cluster, tmp_path: Path) -> None:
    with brokers(tmp_path, f"{shared.connect}/acls-as-znodes", KAFKA, KRUST) as places:
        found = {
            node: [
                state(shared.tree, "/acls-as-znodes", name, step)
                for step in _changes(places[node], name)
            ]
            for node, name in ((KAFKA, "by-kafka"), (KRUST, "by-krust"))
        }
        for ours, theirs in zip(found[KRUST], found[KAFKA], strict=True):
            assert ours == theirs
        assert listed(places[KRUST]) == listed(places[KAFKA])


def _changes(place: str, name: str) -> Iterator[str]:
    """Make and delete ACLs, one request after the other; what was done."""
    two = acl(name, READ, principal="User:bob"), acl(name, WRITE, DENY, host="10.0.0.1")
    create(place, acl(name))
    yield "one"
    create(place, *two)
    yield "two more at once"
    create(place, acl(name))
    yield "one that is there"
    delete(place, acl(name))
    yield "one of three deleted"
    others = [
        acl(name, READ, resource_type=GROUP),
        acl(name, WRITE, resource_type=TXN),
        acl(name, resource_type=TOPIC, resource_pattern_type=PREFIXED),
        acl(name, READ, resource_type=GROUP, resource_pattern_type=PREFIXED),
        acl(f"{name} é", resource_type=GROUP),
    ]
    create(place, *others)
    yield "other kinds"
    delete(place, others[0], others[2], *two)
    yield "the last of some deleted"


def state(tree: KazooClient, root: str, name: str, step: str) -> tuple[str, list[str], list[str]]:
    """The znodes about a name, with path and bytes, and the changes that name it. "NAME" stands for
    the name. Kafka orders ACLs of one node, and changes of one request, as its hash table does.
    """
    nodes = [row for top in TREES for row in _below(tree, f"{root}{top}")]
    changes = [row for top in CHANGES for row in _below(tree, f"{root}{top}")]
    about = sorted(f"{path} {_ordered(data)}" for path, data in nodes if name in path)
    told = sorted(data for _, data in changes if name in data)
    return step, _without(about, name), _without(told, name)


def _ordered(data: str) -> str:
    """The bytes of a node, with its ACLs in order."""
    content = json.loads(data)
    assert json.dumps(content, separators=(",", ":"), ensure_ascii=False) == data
    content["acls"].sort(key=json.dumps)
    return json.dumps(content, separators=(",", ":"))


def _without(texts: list[str], name: str) -> list[str]:
    return [text.replace(name, "NAME") for text in texts]


def _below(tree: KazooClient, path: str) -> Iterator[tuple[str, str]]:
    try:
        data, _ = tree.get(path)
    except NoNodeError:
        return
    yield path, (data or b"").decode()
    for child in tree.get_children(path):
        yield from _below(tree, f"{path}/{child}")
