"""`krust group` and groups that live in a real ZooKeeper."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import krust
from krust.cli import main, zookeeper
from krust.clients.zookeeper import ConsumerConnector
from tests.peers import zookeeper as peer
from tests.three_brokers import Command

pytestmark = pytest.mark.java

WAIT_S = 60.0


@pytest.fixture(scope="module")
def connect(zookeeper: peer.Ensemble) -> str:
    return f"{zookeeper.connect}/groups/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def broker(connect: str) -> Iterator[krust.Broker]:
    config = {"zookeeper.connect": connect, "offsets.topic.replication.factor": 1}
    with krust.Broker(config=config) as broker:
        broker.create_topic("orders", 2)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(20):
                producer.produce("orders", b"x", partition=number % 2)
        yield broker


@pytest.fixture(scope="module")
def command(broker: krust.Broker) -> Command:
    return Command(broker.bootstrap)


@pytest.fixture
def tree(connect: str, broker: krust.Broker) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start_async().wait(WAIT_S)
    yield client
    client.stop()
    client.close()


def offsets(tree: KazooClient, group: str, *numbers: int) -> None:
    for partition, number in enumerate(numbers):
        path = f"/consumers/{group}/offsets/orders/{partition}"
        tree.create(path, str(number).encode(), makepath=True)


def commit(broker: krust.Broker, group: str, *numbers: int) -> None:
    with krust.Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        consumer.commit({("orders", partition): at for partition, at in enumerate(numbers)})


def rows(described: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(row["partition"], row["committed"], row["lag"]) for row in described["partitions"]]


def test_groups_in_kafka_and_zookeeper_are_listed_and_described_together(
    broker: krust.Broker, command: Command, connect: str, tree: KazooClient
) -> None:
    offsets(tree, "both", 3, 4)
    commit(broker, "both", 5, 6)
    offsets(tree, "old", 1)
    settings: dict[str, object] = {"group.id": "living", "zookeeper.connect": connect}
    with ConsumerConnector(settings, consumer_id="me") as connector:
        connector.create_message_streams({"orders": 1})
        listed = command("group", "list", "--json").json()
        kinds = [(row["group"], row["type"], row["state"]) for row in listed]
        assert sorted(kinds) == [
            ("both", "classic", "Empty"),
            ("both", "zookeeper", "Empty"),
            ("living", "zookeeper", "Stable"),
            ("old", "zookeeper", "Empty"),
        ]
        [living] = command("group", "describe", "living", "--json").json()
        assert living["state"] == "Stable"
        [member] = living["members"]
        assert (member["member_id"], member["subscribed"]) == ("living_me", ["orders"])
        assert member["assigned"] == [["orders", 0], ["orders", 1]]
        refused = command("group", "migrate", "living", "--to", "kafka", "--yes")
        assert refused.code != 0
        assert "is Stable and has 1 members" in refused.err
    in_kafka, in_zookeeper = command("group", "describe", "both", "--json").json()
    assert rows(in_kafka) == [(0, 5, 5), (1, 6, 4)]
    assert rows(in_zookeeper) == [(0, 3, 7), (1, 4, 6)]
    assert in_zookeeper["type"] == "zookeeper"
    assert "in ZooKeeper" in command.ok("group", "describe", "old").text
    alone = command("group", "list", "--zookeeper", "none", "--json").json()
    assert {row["type"] for row in alone} == {"classic"}
    missing = command("group", "describe", "nobody")
    assert missing.code != 0
    assert 'group "nobody" does not exist' in missing.err


def test_offsets_are_migrated_and_the_newer_of_both_wins(
    broker: krust.Broker, command: Command, connect: str, tree: KazooClient
) -> None:
    offsets(tree, "moving", 7, 2)
    commit(broker, "moving", 1, 9)
    plan = command("group", "migrate", "moving", "--to", "kafka", "--json").json()
    row = {"topic": "orders", "partition": 0, "old": 1, "new": 7}
    assert plan == [{**row, "moved": False}]
    done = command("group", "migrate", "moving", "--to", "kafka", "--yes", "--json").json()
    assert done == [{**row, "moved": True}]
    back = command("group", "migrate", "moving", "--to", "zookeeper", "--yes", "--json").json()
    assert back == [{"topic": "orders", "partition": 1, "old": 2, "new": 9, "moved": True}]
    folder = "/consumers/moving/offsets/orders"
    assert [tree.get(f"{folder}/{n}")[0] for n in range(2)] == [b"7", b"9"]
    again = command.ok("group", "migrate", "moving", "--to", "zookeeper", "--yes")
    assert "at least as far in zookeeper already" in again.err
    named = ("--to", "kafka", "--zookeeper", "127.0.0.1:1", "--yes")
    assert "no ZooKeeper answers" in command("group", "migrate", "moving", *named, timeout="8s").err
    nowhere = command("group", "migrate", "nobody", "--to", "kafka", "--yes")
    assert 'group "nobody" does not exist' in nowhere.err


def test_a_broker_without_zookeeper_adds_no_groups_and_an_unreachable_zookeeper_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with krust.Broker() as broker:

        def listed() -> None:
            with pytest.raises(SystemExit) as ended:
                main(["-b", broker.bootstrap, "group", "list", "--json"])
            assert not ended.value.code

        listed()
        assert capsys.readouterr().out.strip() == "[]"
        refused = Command(broker.bootstrap)("group", "migrate", "g", "--to", "kafka", "--yes")
        assert "no ZooKeeper is known" in refused.err
        monkeypatch.setattr(zookeeper, "configured_connect", lambda asked: "127.0.0.1:1")
        monkeypatch.setattr(zookeeper, "MOMENT_MS", 100)
        listed()
        assert "groups in the ZooKeeper 127.0.0.1:1 are not shown" in capsys.readouterr().err
        monkeypatch.setitem(sys.modules, "krust.metadata.zookeeper", None)
        listed()
        assert "need kazoo" in capsys.readouterr().err
