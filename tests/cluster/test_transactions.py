"""Transactions whose coordinator and partitions are on different brokers of one cluster.

Every transaction is whole: a reader of committed records sees all of its records or none, however
brokers die in the middle. Each partition gets one marker for each transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import krust
from tests.waiting import WAIT_S, until

TOPIC, STATE = "orders", "__transaction_state"
PARTITIONS = 6
SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 5000,
}


@pytest.fixture
def cluster() -> Iterator[krust.Cluster]:
    """Three brokers; each leads two partitions of the topic."""
    with krust.Cluster(3, config=SETTINGS) as running:
        running.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        yield running


def producer(cluster: krust.Cluster, transactional_id: str) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 60_000,
        "log_level": 0,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
    }
    made = Producer(settings)
    made.init_transactions(WAIT_S)
    return made


def write(one: Producer, value: str, *, partitions: range = range(PARTITIONS)) -> None:
    for partition in partitions:
        one.produce(TOPIC, value.encode(), partition=partition)
    one.flush(WAIT_S)


def end(one: Producer, *, commit: bool = True) -> None:
    """End a transaction; repeat what the client says to repeat."""

    def ended() -> bool:
        try:
            one.commit_transaction(1) if commit else one.abort_transaction(1)
        except KafkaException as error:
            if error.args[0].retriable():
                return False
            raise
        return True

    until(ended)


def committed(cluster: krust.Cluster, count: int) -> list[tuple[int, str]]:
    """The first `count` committed records: partition and value, sorted."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "readers",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    reader = Consumer(settings)
    reader.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[tuple[int, str]] = []

    def complete() -> bool:
        for message in reader.consume(100, 0.1):
            value = message.value()
            if message.error() is None and isinstance(value, bytes):
                found.append((message.partition() or 0, value.decode()))
        return len(found) >= count

    until(complete)
    reader.close()
    return sorted(found)


def everywhere(*values: str) -> list[tuple[int, str]]:
    return sorted((partition, value) for partition in range(PARTITIONS) for value in values)


def ends(cluster: krust.Cluster) -> list[int]:
    """The log end of each partition."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends"})
    found = [
        reader.get_watermark_offsets(TopicPartition(TOPIC, number), WAIT_S)[1]
        for number in range(PARTITIONS)
    ]
    reader.close()
    return found


def test_a_transaction_ends_on_every_broker_that_leads_one_of_its_partitions(
    cluster: krust.Cluster,
) -> None:
    assert {cluster.leader(TOPIC, number) for number in range(PARTITIONS)} == {0, 1, 2}
    one = producer(cluster, "a")
    for value, commit in (("first", True), ("aborted", False), ("last", True)):
        one.begin_transaction()
        write(one, value)
        end(one, commit=commit)
    assert committed(cluster, 2 * PARTITIONS) == everywhere("first", "last")
    assert ends(cluster) == [6] * PARTITIONS, "three records and three markers"


@pytest.mark.parametrize("commit", [True, False])
def test_a_coordinator_that_dies_in_a_transaction_is_replaced_and_the_transaction_ends(
    cluster: krust.Cluster, commit: bool
) -> None:
    one = producer(cluster, f"dies {commit}")
    one.begin_transaction()
    write(one, "before", partitions=range(3))
    cluster.kill(cluster.leader(STATE, 0))
    write(one, "after", partitions=range(3, PARTITIONS))
    end(one, commit=commit)
    one.begin_transaction()
    write(one, "next")
    end(one)
    expected = everywhere("next")
    if commit:
        expected += [(number, "before" if number < 3 else "after") for number in range(PARTITIONS)]
    assert committed(cluster, len(expected)) == sorted(expected)


def test_markers_wait_for_leaders_that_their_coordinator_cannot_reach(
    cluster: krust.Cluster,
) -> None:
    one = producer(cluster, "cut off")
    one.begin_transaction()
    write(one, "first")
    here = cluster.leader(STATE, 0)
    others = {number for number in range(3) if number != here}
    cluster.kill(min(others))
    end(one)
    assert committed(cluster, PARTITIONS) == everywhere("first")
    cluster.start(min(others))
    cluster.wait_in_sync(TOPIC)
    one.begin_transaction()
    write(one, "second")
    end(one)
    assert committed(cluster, 2 * PARTITIONS) == everywhere("first", "second")
    assert ends(cluster) == [4] * PARTITIONS, "each partition has one marker of each transaction"
