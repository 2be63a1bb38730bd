"""Transactions in a cluster of a Kafka 3.9.1 and a krust, with the coordinator on either kind.

Each topic has a replica on both brokers, so when one dies, the broker of the other kind takes over
its coordinators and its partitions.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from krust.errors import KrustError
from tests.cluster.mixed import KAFKA, KRUST, MixedCluster
from tests.peers import kafka
from tests.peers import zookeeper as peer
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

NUMBERS = {KAFKA: 1, KRUST: 2}
OTHER = {KAFKA: KRUST, KRUST: KAFKA}
GROUP, TRANSACTION = 0, 1
UNSTABLE_OFFSET_COMMIT = 88
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 4000,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "replica.lag.time.max.ms": 5000,
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
}
_NUMBER = itertools.count(1)


class Topic(NamedTuple):
    """A topic with a partition that each kind leads first."""

    name: str
    led_by: dict[str, int]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """A Kafka and a krust; coordinators are on both."""
    if reason := peer.missing() or kafka.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "zk").mkdir()
    with (
        peer.running(folder / "zk") as ensemble,
        MixedCluster(folder, f"{ensemble.connect}/mixed", SETTINGS) as brokers,
    ):
        for kind, number in NUMBERS.items():
            brokers.start(number, kind)
        yield brokers


@pytest.fixture
def topic(mixed: MixedCluster) -> Topic:
    name = f"orders-{next(_NUMBER)}"
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
    made = NewTopic(name, replica_assignment=[[1, 2], [2, 1]], num_partitions=2)
    admin.create_topics([made])[name].result(WAIT_S)
    mixed.wait_in_sync(name, 2)
    return Topic(name, {KAFKA: 0, KRUST: 1})


def key_on(mixed: MixedCluster, kind: str, key_type: int) -> str:
    """A new transactional id or group whose coordinator is on a broker of this kind."""
    keys = (f"key-{number}" for number in _NUMBER)
    return next(key for key in keys if coordinator_of(mixed, key, key_type) == NUMBERS[kind])


def coordinator_of(mixed: MixedCluster, key: str, key_type: int) -> int:
    """The coordinator, as soon as there is one."""
    until(lambda: coordinator(mixed, key, key_type) is not None)
    return coordinator(mixed, key, key_type) or 0


def coordinator(mixed: MixedCluster, key: str, key_type: int) -> int | None:
    """The broker that coordinates a transactional id or a group; None: nobody knows it now."""
    asked = {"key_type": key_type, "key": key, "coordinator_keys": [key]}
    try:
        [answer] = Client(mixed.bootstrap).request("FindCoordinator", asked)["coordinators"]
    except KrustError:
        return None
    return int(answer["node_id"]) if answer["error_code"] == 0 else None


def producer(mixed: MixedCluster, transactional_id: str, **more: Any) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": mixed.bootstrap,
            "transactional.id": transactional_id,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
            **more,
        }
    )
    retried(lambda: made.init_transactions(WAIT_S))
    return made


def retried(call: Any) -> None:
    """Make a call of a transactional producer until it succeeds; other errors are not retried."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def write(one: Producer, topic: Topic, value: str) -> None:
    """Write a value to the partitions that both kinds lead."""
    for partition in topic.led_by.values():
        one.produce(topic.name, value, partition=partition)
    assert one.flush(WAIT_S) == 0


def committed(mixed: MixedCluster, topic: Topic) -> dict[int, list[str]]:
    """What read_committed readers see of each partition, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": mixed.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[int, list[str]] = {partition: [] for partition in topic.led_by.values()}
    consumer.assign([TopicPartition(topic.name, partition, 0) for partition in found])
    left = set(found)
    while left:
        message = consumer.poll(WAIT_S)
        assert message is not None
        partition = message.partition()
        assert partition is not None
        if message.error() is None:
            found[partition].append(message.value().decode())
        else:
            left.discard(partition)
    consumer.close()
    return found


def on_both(*values: str) -> dict[int, list[str]]:
    return {0: list(values), 1: list(values)}


def stable_offset(mixed: MixedCluster, group: str, topic: Topic) -> int | None:
    """The committed offset of a group; None: a transaction with one is open."""
    asked = {
        "group_id": group,
        "member_id": None,
        "member_epoch": -1,
        "topics": [{"name": topic.name, "partition_indexes": [0]}],
    }
    client = Client(mixed.address(coordinator(mixed, group, GROUP) or 0))
    answer = client.request("OffsetFetch", {"groups": [asked], "require_stable": True}, version=8)
    [row] = answer["groups"][0]["topics"][0]["partitions"]
    if row["error_code"] == UNSTABLE_OFFSET_COMMIT:
        return None
    assert row["error_code"] == 0
    return int(row["committed_offset"])


def becomes_stable(mixed: MixedCluster, group: str, topic: Topic) -> int | None:
    """The committed offset of a group, as soon as no transaction with one is open."""
    until(lambda: stable_offset(mixed, group, topic) is not None)
    return stable_offset(mixed, group, topic)


def send_offsets(one: Producer, offsets: list[TopicPartition], member: Consumer) -> None:
    of_group = member.consumer_group_metadata()
    retried(lambda: one.send_offsets_to_transaction(offsets, of_group, WAIT_S))


def group_of(mixed: MixedCluster, group: str, topic: Topic) -> Consumer:
    """A member of a group, whose offsets a transaction may send."""
    consumer = Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic.name])

    def has_partitions() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == len(topic.led_by)

    until(has_partitions)
    return consumer


@pytest.mark.parametrize("kind", [KAFKA, KRUST])
def test_a_transaction_over_both_kinds_is_seen_whole_or_not_at_all(
    mixed: MixedCluster, topic: Topic, kind: str
) -> None:
    one = producer(mixed, key_on(mixed, kind, TRANSACTION))
    for number, ends in enumerate(("commit", "abort", "commit")):
        one.begin_transaction()
        write(one, topic, str(number))
        retried(one.commit_transaction if ends == "commit" else one.abort_transaction)
    until(lambda: committed(mixed, topic) == on_both("0", "2"))


@pytest.mark.parametrize("kind", [KAFKA, KRUST])
@pytest.mark.parametrize("group_kind", [KAFKA, KRUST])
def test_offsets_are_committed_with_the_transaction_to_a_group_on_either_kind(
    mixed: MixedCluster, topic: Topic, kind: str, group_kind: str
) -> None:
    group = key_on(mixed, group_kind, GROUP)
    one = producer(mixed, key_on(mixed, kind, TRANSACTION))
    member = group_of(mixed, group, topic)
    for offset, ends, stable in ((5, "commit", 5), (9, "abort", 5), (7, "commit", 7)):
        one.begin_transaction()
        write(one, topic, str(offset))
        offsets = [TopicPartition(topic.name, 0, offset)]
        send_offsets(one, offsets, member)
        assert stable_offset(mixed, group, topic) is None
        retried(one.commit_transaction if ends == "commit" else one.abort_transaction)
        assert stable == becomes_stable(mixed, group, topic)
    member.close()


def test_no_finalized_version_of_transactions_is_offered_while_a_kafka_is_in_the_cluster(
    mixed: MixedCluster,
) -> None:
    for number in NUMBERS.values():
        answer = Client(mixed.address(number)).request("ApiVersions", {}, version=3)
        finalized = {
            each["name"]: each["max_version_level"] for each in answer["finalized_features"]
        }
        assert finalized.get("transaction.version", 0) == 0


@pytest.mark.parametrize("kind", [KAFKA, KRUST])
def test_the_other_kind_ends_transactions_of_a_coordinator_that_is_killed(
    mixed: MixedCluster, topic: Topic, kind: str
) -> None:
    """A transaction is committed, one is open, one is being committed, and one is abandoned when
    their coordinator dies. The producers go on with the other kind.
    """
    names = ("committed", "open", "ending", "abandoned")
    made = {
        name: producer(
            mixed,
            key_on(mixed, kind, TRANSACTION),
            **({"transaction.timeout.ms": 5_000} if name == "abandoned" else {}),
        )
        for name in names
    }
    for name, one in made.items():
        one.begin_transaction()
        write(one, topic, name)
    retried(made["committed"].commit_transaction)
    ending = threading.Thread(target=retried, args=(made["ending"].commit_transaction,))
    ending.start()
    mixed.kill(NUMBERS[kind])
    ending.join()
    retried(made["open"].commit_transaction)
    until(
        lambda: (
            {partition: sorted(values) for partition, values in committed(mixed, topic).items()}
            == on_both("committed", "ending", "open")
        )
    )
    after = producer(mixed, key_on(mixed, OTHER[kind], TRANSACTION))
    after.begin_transaction()
    write(after, topic, "after")
    retried(after.commit_transaction)
    # Readers get there only when the abandoned transaction is aborted, on both partitions.
    until(lambda: all("after" in values for values in committed(mixed, topic).values()))
    assert all("abandoned" not in values for values in committed(mixed, topic).values())
    mixed.start(NUMBERS[kind], kind)
    mixed.wait_in_sync(topic.name, 2)
    mixed.wait_in_sync("__transaction_state", 4)
