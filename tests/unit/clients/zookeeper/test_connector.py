"""Consumers whose group lives in a real ZooKeeper, beside a krust broker."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import krust
from krust._krust import Client, Record
from krust.clients.zookeeper import (
    Blacklist,
    ConsumerConnector,
    ConsumerTimeoutError,
    KafkaStream,
    RebalanceFailedError,
    Whitelist,
)
from krust.clients.zookeeper.sharing import share, threads
from krust.errors import ConfigError, ServerError
from krust.metadata.contents import ConsumerRegistration
from krust.metadata.ensemble import Ensemble
from krust.metadata.zookeeper import end_session
from tests.peers import zookeeper as peer
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.java

_NUMBER = itertools.count(1)


@pytest.fixture(scope="module")
def connect(zookeeper: peer.Ensemble) -> str:
    return f"{zookeeper.connect}/consumers-of/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def broker(connect: str) -> Iterator[krust.Broker]:
    config = {"zookeeper.connect": connect, "offsets.topic.replication.factor": 1}
    with krust.Broker(config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def tree(connect: str, broker: krust.Broker) -> Iterator[KazooClient]:
    """Somebody else who looks at the same tree."""
    client = KazooClient(connect)
    client.start_async().wait(WAIT_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def name() -> str:
    return f"t{next(_NUMBER)}"


class Reader:
    """A stream that a thread reads; `records` grows."""

    def __init__(self, stream: KafkaStream) -> None:
        self.records: list[Record] = []
        self.stream = stream
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            for record in self.stream:
                self.records.append(record)
        except BaseException as error:
            self.failed.append(error)

    def ended(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        assert self.failed == []


class Member:
    """A connector whose streams are read."""

    def __init__(self, connect: str, group: str, what: Any, **more: object) -> None:
        settings: dict[str, object] = {"rebalance.backoff.ms": 200, "rebalance.max.retries": 300}
        settings |= {"zookeeper.session.timeout.ms": peer.LONG_MS, "auto.offset.reset": "smallest"}
        self.connector = ConsumerConnector(
            settings, group_id=group, zookeeper_connect=connect, **more
        )
        try:
            if isinstance(what, dict):
                made = self.connector.create_message_streams(what)
                streams = [stream for each in made.values() for stream in each]
            else:
                streams = self.connector.create_message_streams_by_filter(*what)
        except BaseException:
            self.connector.shutdown()
            raise
        self.readers = [Reader(stream) for stream in streams]

    @property
    def records(self) -> list[Record]:
        return [record for reader in self.readers for record in reader.records]

    @property
    def has(self) -> set[tuple[str, int]]:
        return {(*place,) for reader in self.readers for place in reader.stream.places}

    @property
    def id(self) -> str:
        return self.connector._config.member

    def stop(self) -> None:
        self.connector.shutdown()
        for reader in self.readers:
            reader.ended()


Join = Callable[..., Member]


@pytest.fixture
def join(connect: str, broker: krust.Broker) -> Iterator[Join]:
    with ExitStack() as stack:

        def joined(group: str, what: Any, **more: object) -> Member:
            member = Member(connect, group, what, **more)
            stack.callback(member.stop)
            return member

        yield joined


def produce(broker: krust.Broker, topic: str, partitions: int, count: int, word: str = "v") -> None:
    with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            producer.produce(topic, f"{word}{number}", partition=number % partitions)


def places(records: list[Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def stored(tree: KazooClient, group: str, topic: str, partitions: int) -> list[int]:
    folder = f"/consumers/{group}/offsets/{topic}"
    there = [f"{folder}/{number}" for number in range(partitions)]
    return [int(tree.get(path)[0]) if tree.exists(path) else -1 for path in there]


def ephemerals(tree: KazooClient, path: str) -> list[str]:
    found = [path] if tree.exists(path).ephemeralOwner else []
    for child in tree.get_children(path):
        found += ephemerals(tree, f"{path}/{child}")
    return found


def test_members_share_partitions_through_zookeeper_and_leave_no_nodes(
    broker: krust.Broker, tree: KazooClient, join: Join, name: str
) -> None:
    broker.create_topic(name, 5)
    one = join(name, {name: 2}, consumer_id="one")
    assert len(one.has) == 5
    two = join(name, {name: 1})
    until(lambda: len(one.has) == 4 and len(two.has) == 1)
    produce(broker, name, 5, 50)
    until(lambda: len(one.records + two.records) == 50)
    assert places(one.records + two.records) == [(p, o) for p in range(5) for o in range(10)]
    registration = json.loads(tree.get(f"/consumers/{name}/ids/{name}_one")[0])
    assert registration.pop("timestamp").isdecimal()
    assert registration == {"version": 1, "subscription": {name: 2}, "pattern": "static"}
    owners = {p: tree.get(f"/consumers/{name}/owners/{name}/{p}")[0].decode() for p in range(5)}
    readers = [
        threads(each.id, ConsumerRegistration({name: count}, "static", 0), ())
        for each, count in ((one, 2), (two, 1))
    ]
    assert owners == {
        place.partition: who for place, who in share(readers, {name: range(5)}).items()
    }
    one.stop()
    until(lambda: len(two.has) == 5)
    two.stop()
    assert ephemerals(tree, f"/consumers/{name}") == []
    assert stored(tree, name, name, 5) == [10] * 5
    assert tree.get_children(f"/consumers/{name}/owners") == [name]


def test_the_next_owner_continues_at_the_offset_of_the_last_one(
    broker: krust.Broker, join: Join, name: str
) -> None:
    broker.create_topic(name, 4)
    members = [join(name, {name: 1})]
    ended = threading.Event()
    sent = itertools.count()

    def flow() -> None:
        with krust.Producer(bootstrap_servers=broker.bootstrap, linger_ms=1) as producer:
            while not ended.is_set():
                number = next(sent)
                producer.produce(name, str(number), partition=number % 4)
                if number % 50 == 0:
                    time.sleep(0.001)

    producing = threading.Thread(target=flow)
    producing.start()
    try:
        until(lambda: len(members[0].records) > 200)
        for _ in range(2):
            members.append(join(name, {name: 1}))
            until(lambda: all(each.has for each in members))
            until(lambda: len(members[-1].records) > 50)
        members[0].stop()
        until(lambda: len(members[1].has | members[2].has) == 4)
    finally:
        ended.set()
        producing.join()
    total = next(sent)
    until(lambda: sum(len(each.records) for each in members) >= total)
    read = [int(record.value or b"") for each in members for record in each.records]
    assert sorted(read) == list(range(total))


def test_filters_subscribe_to_later_topics_and_new_partitions(
    broker: krust.Broker, join: Join, name: str
) -> None:
    broker.create_topic(f"{name}-a", 2)
    white = join(f"{name}-w", (Whitelist(f"{name}-.*"), 2))
    black = join(f"{name}-b", (Blacklist(f"(?!{name}-).*,{name}-a"), 1))
    assert white.has == {(f"{name}-a", 0), (f"{name}-a", 1)}
    assert black.has == set()
    broker.create_topic(f"{name}-b", 1)
    until(lambda: (f"{name}-b", 0) in white.has)
    until(lambda: black.has == {(f"{name}-b", 0)})
    body = {"topics": [{"name": f"{name}-b", "count": 3, "assignments": None}]}
    Client(broker.bootstrap).request("CreatePartitions", {**body, "timeout_ms": 20_000})
    until(lambda: len(white.has) == 5 and len(black.has) == 3)
    produce(broker, f"{name}-b", 3, 9)
    until(lambda: len(white.records) == len(black.records) == 9)


def test_a_member_waits_for_a_missing_topic(broker: krust.Broker, join: Join, name: str) -> None:
    member = join(name, {name: 1})
    assert member.has == set()
    broker.create_topic(name, 1)
    produce(broker, name, 1, 3)
    until(lambda: len(member.records) == 3)


def test_a_member_whose_session_expired_registers_again(
    broker: krust.Broker, connect: str, tree: KazooClient, join: Join, name: str
) -> None:
    broker.create_topic(name, 4)
    one = join(name, {name: 1}, auto_commit_interval_ms=50)
    two = join(name, {name: 1}, auto_commit_interval_ms=50)
    until(lambda: len(one.has) == len(two.has) == 2)
    produce(broker, name, 4, 40)
    until(lambda: len(one.records + two.records) == 40)
    until(lambda: stored(tree, name, name, 4) == [10] * 4)
    path = f"/consumers/{name}/ids/{one.id}"
    first = tree.exists(path)
    assert end_session(Ensemble(connect), one.connector._tree.store.credentials)
    again = until(lambda: _another(tree, path, first.ephemeralOwner))
    assert again.czxid > first.czxid
    until(lambda: len(one.has) == len(two.has) == 2 and one.has != two.has)
    produce(broker, name, 4, 40, "after")
    until(lambda: len(one.records + two.records) >= 80)
    assert places(one.records + two.records) == [(p, o) for p in range(4) for o in range(20)]


def _another(tree: KazooClient, path: str, owner: int) -> Any:
    stat = tree.exists(path)
    return stat if stat is not None and stat.ephemeralOwner != owner else None


def test_a_partition_of_another_owner_is_an_error_until_it_is_free(
    broker: krust.Broker, connect: str, tree: KazooClient, join: Join, name: str
) -> None:
    broker.create_topic(name, 2)
    path = f"/consumers/{name}/owners/{name}/1"
    tree.create(path, b"a stranger", makepath=True)
    settings = {"group.id": name, "zookeeper.connect": connect, "rebalance.backoff.ms": 20}
    with ConsumerConnector(settings) as connector:
        with pytest.raises(RebalanceFailedError, match=f"{name}:1 is still another's"):
            connector.create_message_streams({name: 1})
        assert tree.get(path)[0] == b"a stranger"
        tree.delete(path)
        until(lambda: tree.exists(path) and tree.get(path)[0].startswith(name.encode()))
    assert ephemerals(tree, f"/consumers/{name}") == []


def test_a_member_with_invalid_data_is_logged(
    broker: krust.Broker, tree: KazooClient, join: Join, name: str, caplog: Any
) -> None:
    broker.create_topic(name, 2)
    for bad, data in (
        ("no-json", b"{"),
        (
            "no-pattern",
            b'{"version":1,"subscription":{"(":1},"pattern":"white_list","timestamp":"1"}',
        ),
    ):
        tree.create(f"/consumers/{name}/ids/{bad}", data, makepath=True)
    tree.create(f"/consumers/{name}/offsets/{name}/0", b"many", makepath=True)
    produce(broker, name, 2, 4)
    member = join(name, {name: 1})
    until(lambda: len(member.records) == 4)
    logged = [record.message for record in caplog.records if "passed over" in record.message]
    assert len(logged) == 3


def test_no_offset_is_stored_without_auto_commit(
    broker: krust.Broker, tree: KazooClient, join: Join, name: str
) -> None:
    broker.create_topic(name, 1)
    produce(broker, name, 1, 5)
    one = join(name, {name: 1}, auto_commit="false")
    until(lambda: len(one.records) == 5)
    one.stop()
    two = join(name, {name: 1}, auto_commit_enable=False)
    until(lambda: len(two.records) == 5)
    two.connector.commit_offsets()
    assert stored(tree, name, name, 1) == [5]
    two.stop()
    with pytest.raises(ConfigError, match="shut down"):
        two.connector.commit_offsets()


def test_offsets_move_to_kafka_and_back_while_the_newer_of_both_holds(
    broker: krust.Broker, tree: KazooClient, join: Join, name: str
) -> None:
    broker.create_topic(name, 1)
    kafka, dual = {"offsets_storage": "kafka"}, {"dual_commit_enabled": "true"}
    seen: list[int] = []

    def reads(count: int, **more: object) -> None:
        produce(broker, name, 1, count)
        member = join(name, {name: 1}, **more)
        until(lambda: len(member.records) == count)
        member.stop()
        seen.extend(record.offset for record in member.records)
        assert seen == list(range(len(seen)))

    def in_kafka() -> int:
        with krust.Consumer(bootstrap_servers=broker.bootstrap, group_id=name) as asked:
            return next(iter(asked.committed([(name, 0)]).values()), -1)

    reads(3)
    assert (stored(tree, name, name, 1), in_kafka()) == ([3], -1)
    reads(2, **kafka, **dual)
    assert (stored(tree, name, name, 1), in_kafka()) == ([5], 5)
    reads(2)  # one that was not restarted yet
    assert (stored(tree, name, name, 1), in_kafka()) == ([7], 5)
    reads(2, **kafka)  # dual unless it is said otherwise, so the 7 holds
    assert (stored(tree, name, name, 1), in_kafka()) == ([9], 9)
    reads(1, **kafka, dual_commit_enabled="false")
    assert (stored(tree, name, name, 1), in_kafka()) == ([9], 10)
    reads(1, **kafka, **dual)  # and back: the 10 of Kafka is the newer one
    assert (stored(tree, name, name, 1), in_kafka()) == ([11], 11)
    reads(4)
    assert (stored(tree, name, name, 1), in_kafka()) == ([15], 11)


def test_deleted_and_missing_offsets_are_reset(
    broker: krust.Broker, tree: KazooClient, join: Join, name: str
) -> None:
    broker.create_topic(name, 2)
    produce(broker, name, 2, 6)
    tree.create(f"/consumers/{name}/offsets/{name}/0", b"1000", makepath=True)
    member = join(name, {name: 1})
    until(lambda: len(member.records) == 6)
    other = join(f"{name}-end", {name: 1}, auto_offset_reset="largest")
    until(lambda: len(other.readers[0].stream.positions()) == 2)
    produce(broker, name, 2, 2, "new")
    until(lambda: len(other.records) == 2)
    assert {record.value for record in other.records} == {b"new0", b"new1"}


def test_a_stream_times_out_and_can_be_read_again(
    broker: krust.Broker, connect: str, name: str
) -> None:
    broker.create_topic(name, 1)
    with ConsumerConnector(
        group_id=name,
        zookeeper_connect=connect,
        consumer_timeout_ms=50,
        auto_offset_reset="smallest",
        bootstrap_servers=broker.bootstrap,
    ) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        with pytest.raises(ConsumerTimeoutError):
            next(stream)
        produce(broker, name, 1, 1)
        until(lambda: _next(stream))
        with pytest.raises(ConfigError, match="has its streams"):
            connector.create_message_streams_by_filter(Whitelist("x"))
    assert list(stream) == []
    connector.shutdown()


def _next(stream: KafkaStream) -> Record | None:
    try:
        return next(stream)
    except ConsumerTimeoutError:
        return None


def test_streams_pause_while_their_ownership_is_uncertain(tmp_path: Path) -> None:
    with (
        peer.running(tmp_path / "zk") as ensemble,
        krust.Broker(
            config={
                "zookeeper.connect": f"{ensemble.connect}/k",
                "offsets.topic.replication.factor": 1,
            }
        ) as broker,
    ):
        broker.create_topic("t", 1)
        member = Member(
            f"{ensemble.connect}/k",
            "g",
            {"t": 1},
            zookeeper_session_timeout_ms=7000,
            auto_commit_interval_ms=10,
        )
        produce(broker, "t", 1, 1, "before")
        until(lambda: len(member.records) == 1)
        ensemble.leader.pause()
        until(lambda: member.readers[0].stream._halted)
        produce(broker, "t", 1, 1, "meanwhile")
        with krust.Consumer(bootstrap_servers=broker.bootstrap) as other:
            other.assign([("t", 0, 1)])
            until(lambda: other.poll(100))  # any reader can get it
        assert len(member.records) == 1
        ensemble.leader.resume()
        until(lambda: member.records[-1].value == b"meanwhile0")
        ensemble.leader.kill()
        ensemble.leader.start()
        produce(broker, "t", 1, 1, "after")
        until(lambda: member.records[-1].value == b"after0")
        member.stop()


def test_settings_are_validated_before_any_request() -> None:
    with pytest.raises(ConfigError, match=r"needs group\.id"):
        ConsumerConnector(zookeeper_connect="localhost:1")
    with pytest.raises(ConfigError, match="cannot be a name"):
        ConsumerConnector(zookeeper_connect="localhost:1", group_id="a/b")
    with pytest.raises(ConfigError, match="must be zookeeper or kafka"):
        ConsumerConnector(zookeeper_connect="localhost:1", group_id="g", offsets_storage="disk")
    with pytest.raises(ConfigError, match=r"no setting 'group\.idd'"):
        ConsumerConnector(zookeeper_connect="localhost:1", group_idd="g")
    with pytest.raises(ServerError, match="no ZooKeeper answers"):
        ConsumerConnector(
            zookeeper_connect="127.0.0.1:1", group_id="g", zookeeper_connection_timeout_ms=100
        )
