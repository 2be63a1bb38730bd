"""Apache's own ZooKeeper consumer of 0.8.2 against krust: alone, and in one group with krust's."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import krust
from krust._krust import Client, Record
from krust.clients.zookeeper import ConsumerConnector, KafkaStream, Whitelist
from krust.clients.zookeeper.sharing import share, threads
from krust.metadata.contents import ConsumerRegistration
from tests.peers import old_consumer
from tests.peers import zookeeper as peer
from tests.peers.old_consumer import OldConsumer
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

Where = tuple[str, str]
OFFSETS_FACTOR = "offsets.topic.replication.factor"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Where]:
    """A ZooKeeper's address and a broker's."""
    if reason := peer.missing() or old_consumer.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("zookeeper-consumers")
    with peer.running(folder / "zk") as ensemble:
        connect = f"{ensemble.connect}/{uuid.uuid4().hex}"
        flags = ("--zookeeper", connect, "--node-id", "7")
        with ServedBroker(folder / "data", *flags, options={OFFSETS_FACTOR: 1}) as broker:
            yield connect, broker.bootstrap


@pytest.fixture
def tree(where: Where) -> Iterator[KazooClient]:
    """Somebody else who looks at the same tree."""
    client = KazooClient(where[0])
    client.start_async().wait(WAIT_S)
    yield client
    client.stop()
    client.close()


def create(bootstrap: str, name: str, partitions: int) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    [said] = Client(bootstrap).request("CreateTopics", {"topics": [topic]})["topics"]
    assert said["error_code"] == 0


def produce(bootstrap: str, topic: str, partitions: int, numbers: range) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            producer.produce(topic, str(number), partition=number % partitions)


def apaches(folder: Path, where: Where, group: str, what: str, count: int, **more: Any) -> Any:
    """Apache's consumer; it claims and commits as fast as it is allowed to."""
    settings: dict[str, object] = {"zookeeper_connect": where[0], "group_id": group}
    settings |= {"auto_offset_reset": "smallest"}
    settings |= {"rebalance_backoff_ms": 300, "rebalance_max_retries": 100}
    # It can stand still for one session where its own node is in its way, or for all retries,
    # and ends only then.
    settings |= {"zookeeper_session_timeout_ms": 15_000}
    return OldConsumer(folder, what, count, **settings, **more)


class Ours:
    """krust's connector, read by a thread a stream."""

    def __init__(self, where: Where, group: str, what: dict[str, int] | Whitelist) -> None:
        self._connector = ConsumerConnector(
            zookeeper_connect=where[0],
            group_id=group,
            auto_offset_reset="smallest",
            rebalance_backoff_ms=300,
            rebalance_max_retries=200,
            zookeeper_session_timeout_ms=peer.LONG_MS,
        )
        self._read: list[Record] = []
        if isinstance(what, Whitelist):
            streams = self._connector.create_message_streams_by_filter(what, 2)
        else:
            made = self._connector.create_message_streams(what)
            streams = [stream for each in made.values() for stream in each]
        self._threads = [threading.Thread(target=self._run, args=[each]) for each in streams]
        for each in self._threads:
            each.start()

    def _run(self, stream: KafkaStream) -> None:
        for record in stream:
            self._read.append(record)

    @property
    def records(self) -> list[tuple[str, int, int, str]]:
        return [(r.topic, r.partition, r.offset, (r.value or b"").decode()) for r in self._read]

    def stop(self) -> None:
        self._connector.shutdown()
        for each in self._threads:
            each.join()


def shared(tree: KazooClient, group: str, topic: str, partitions: int) -> bool:
    """Whether the owners are those that the members' registrations come to."""
    try:
        return _shared(tree, group, topic, partitions)
    except NoNodeError:  # one goes while we look
        return False


def _shared(tree: KazooClient, group: str, topic: str, partitions: int) -> bool:
    folder = f"/consumers/{group}"
    members = {
        name: ConsumerRegistration.decode(tree.get(f"{folder}/ids/{name}")[0])
        for name in tree.get_children(f"{folder}/ids")
    }
    readers = [threads(name, each, [topic]) for name, each in members.items()]
    wanted = {
        place.partition: who for place, who in share(readers, {topic: range(partitions)}).items()
    }
    owners = f"{folder}/owners/{topic}"
    found = {
        int(each): tree.get(f"{owners}/{each}")[0].decode() for each in tree.get_children(owners)
    }
    return len(found) == partitions and found == wanted


def test_apaches_consumer_alone_reads_commits_and_moves_its_offsets_to_kafka(
    tmp_path: Path, where: Where, tree: KazooClient
) -> None:
    topic = "alone"
    create(where[1], topic, 3)
    produce(where[1], topic, 3, range(30))

    def stored() -> tuple[list[int], list[int]]:
        folder = f"/consumers/{topic}/offsets/{topic}"
        in_zookeeper = [int(tree.get(f"{folder}/{each}")[0]) for each in tree.get_children(folder)]
        with krust.Consumer(bootstrap_servers=where[1], group_id=topic) as asked:
            found = asked.committed([(topic, number) for number in range(3)])
        return in_zookeeper, [*found.values()]

    with apaches(tmp_path, where, topic, f"white:{topic}", 2) as first:
        until(lambda: len(first.records) == 30)
        first.commit()
        first.stop()
    assert stored() == ([10] * 3, [])
    produce(where[1], topic, 3, range(30, 36))
    both = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
    with apaches(tmp_path, where, topic, topic, 1, **both) as second:
        until(lambda: len(second.records) == 6)
        second.stop()
    assert stored() == ([12] * 3, [12] * 3)
    assert sorted(int(each[3]) for each in first.records + second.records) == [*range(36)]


def test_apaches_and_krusts_members_share_a_group_and_each_record_is_read_once(
    tmp_path: Path, where: Where, tree: KazooClient
) -> None:
    topic, partitions, sent = "shared", 20, 0
    create(where[1], topic, partitions)
    with ExitStack() as stack:
        members: list[Any] = []

        def came(member: Any) -> Any:
            stack.callback(member.stop)
            members.append(member)
            settle()
            return member

        def settle() -> None:
            """All is shared, and what is sent then is read."""
            nonlocal sent
            until(lambda: shared(tree, topic, topic, partitions))
            produce(where[1], topic, partitions, range(sent, sent + 120))
            sent += 120
            until(lambda: len(read()) >= sent)

        def read() -> list[int]:
            return [int(record[3]) for each in members for record in each.records]

        old = came(apaches(tmp_path, where, topic, topic, 2))
        ours = came(Ours(where, topic, {topic: 11}))
        came(apaches(tmp_path, where, topic, f"white:{topic}", 1))
        came(Ours(where, topic, Whitelist("sha.*")))
        assert all(each.records for each in members)
        ours.stop()
        settle()
        old.stop()
        settle()
        assert sorted(read()) == [*range(sent)]
    assert tree.get_children(f"/consumers/{topic}/ids") == []
    assert tree.get_children(f"/consumers/{topic}/owners/{topic}") == []
    offsets = f"/consumers/{topic}/offsets/{topic}"
    stored = [int(tree.get(f"{offsets}/{number}")[0]) for number in range(partitions)]
    assert stored == [sent // partitions] * partitions
