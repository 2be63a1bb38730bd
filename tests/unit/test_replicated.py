"""Three brokers with a replica of each partition: what was acknowledged outlives any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer as Confluent

import krust
from krust.errors import Code
from tests.waiting import until

CONFIG: dict[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 4,
    "replica.lag.time.max.ms": 2000,
    "replica.fetch.backoff.ms": 50,
}


@pytest.fixture
def cluster() -> Iterator[krust.Cluster]:
    with krust.Cluster(3, config=CONFIG) as made:
        yield made


def write(cluster: krust.Cluster, topic: str, first: int, count: int) -> None:
    """Records whose values are these numbers, acknowledged by all replicas in sync."""
    with krust.Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(first, first + count):
            producer.produce(topic, b"%d" % number, partition=0)


def values(consumer: krust.Consumer, count: int) -> list[int]:
    """The values of the next records, as many or more."""
    found: list[int] = []

    def has_enough() -> bool:
        found.extend(int(record.value or b"-1") for record in consumer.poll(200))
        return len(found) >= count

    until(has_enough)
    return found


def read(cluster: krust.Cluster, topic: str, count: int) -> list[int]:
    """The first values of partition 0."""
    with krust.Consumer(bootstrap_servers=cluster.bootstrap, group_id=None) as consumer:
        consumer.assign([(topic, 0, 0)])
        return values(consumer, count)


def fail_over(cluster: krust.Cluster, topic: str) -> int:
    """Kill the leader, and wait for the next one. The killed broker."""
    victim = cluster.leader(topic)
    cluster.kill(victim)
    until(lambda: cluster.leader(topic) not in (-1, victim))
    return victim


def follower(cluster: krust.Cluster, topic: str) -> int:
    """A broker that follows."""
    return next(each for each in cluster.in_sync(topic) if each != cluster.leader(topic))


def logs(folder: Path, topic: str) -> list[bytes]:
    """The bytes of partition 0 on each broker."""
    found = sorted(folder.glob(f"broker-*/{topic}-0"))
    return [b"".join(each.read_bytes() for each in sorted(at.glob("*.log"))) for at in found]


def test_records_outlive_the_leader_that_acknowledged_them(cluster: krust.Cluster) -> None:
    cluster.create_topic("t")
    cluster.wait_in_sync("t")
    for written in (100, 200, 300):
        write(cluster, "t", written - 100, 100)
        victim = fail_over(cluster, "t")
        assert read(cluster, "t", written) == list(range(written))
        cluster.start(victim)
        cluster.wait_in_sync("t")


def test_a_killed_follower_leaves_the_isr_and_leads_once_it_came_back(
    cluster: krust.Cluster,
) -> None:
    cluster.create_topic("t")
    cluster.wait_in_sync("t")
    away = follower(cluster, "t")
    cluster.kill(away)
    until(lambda: away not in cluster.in_sync("t"))
    write(cluster, "t", 0, 500)
    cluster.start(away)
    cluster.wait_in_sync("t")
    while cluster.leader("t") != away:
        cluster.start(fail_over(cluster, "t"))
        cluster.wait_in_sync("t")
    assert read(cluster, "t", 500) == list(range(500))


def test_a_paused_follower_lags_and_is_waited_for_no_longer(cluster: krust.Cluster) -> None:
    cluster.create_topic("t")
    cluster.wait_in_sync("t")
    lagging = follower(cluster, "t")
    cluster.pause(lagging, expire=False)
    write(cluster, "t", 0, 10)
    until(lambda: lagging not in cluster.in_sync("t"))
    cluster.resume(lagging)
    cluster.wait_in_sync("t")


def test_acks_all_needs_min_isr_and_acks_1_does_not(cluster: krust.Cluster) -> None:
    cluster.create_topic("t")
    cluster.wait_in_sync("t")
    leader = cluster.leader("t")
    for other in {0, 1, 2} - {leader}:
        cluster.kill(other)
    until(lambda: cluster.in_sync("t") == (leader,))
    with krust.Producer(bootstrap_servers=cluster.bootstrap, acks=1) as producer:
        producer.produce("t", b"0", partition=0)
    codes: list[int | None] = []
    config = {"acks": "all", "retries": 0, "message.timeout.ms": 30_000}
    all_ = Confluent({**cluster.client_config(), **config})
    all_.produce(
        "t", b"1", partition=0, on_delivery=lambda error, _: codes.append(error and error.code())
    )
    all_.flush()
    assert codes == [Code.NOT_ENOUGH_REPLICAS]


class Writer:
    """Writes numbers in a thread until it is stopped, and keeps those that were acknowledged."""

    def __init__(self, cluster: krust.Cluster, topic: str) -> None:
        self.acknowledged: list[int] = []
        self._topic = topic
        self._stops = threading.Event()
        config = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 120_000}
        self._producer = Confluent({**cluster.client_config(), **config})
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._stops.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=0, on_delivery=self._noting(number)
            )
            self._producer.poll(0.001)
            number += 1
        self._producer.flush()

    def _noting(self, number: int) -> Callable[[object, object], None]:
        def note(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.append(number)

        return note


def test_no_acknowledged_record_is_lost_or_doubled_while_leaders_die(tmp_path: Path) -> None:
    with krust.Cluster(3, data_dir=tmp_path, config=CONFIG) as cluster:
        cluster.create_topic("t")
        cluster.wait_in_sync("t")
        writer = Writer(cluster, "t")
        for written in (200, 400, 600, 800):
            until(partial(lambda enough: len(writer.acknowledged) > enough, written))
            cluster.start(fail_over(cluster, "t"))
            cluster.wait_in_sync("t")
        writer.stop()
        found = read(cluster, "t", len(writer.acknowledged))
        assert len(found) == len(set(found)), "a record was doubled"
        assert set(writer.acknowledged) <= set(found), "an acknowledged record was lost"
        cluster.wait_in_sync("t")
    first, second, third = logs(tmp_path, "t")
    assert first == second == third


def consume(cluster: krust.Cluster, topic: str, count: int) -> list[int]:
    """The next values for a group, which commits them."""
    with krust.Consumer(
        bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        found = values(consumer, count)
        consumer.commit()
    return found


def test_committed_offsets_outlive_their_coordinator(cluster: krust.Cluster) -> None:
    cluster.create_topic("t")
    for victim in range(3):
        write(cluster, "t", 10 * victim, 10)
        assert consume(cluster, "t", 10) == list(range(10 * victim, 10 * victim + 10))
        for topic in ("t", "__consumer_offsets"):
            cluster.wait_in_sync(topic)
        cluster.kill(victim)
        until(partial(lambda gone: cluster.leader("t") not in (-1, gone), victim))
        cluster.start(victim)
        for topic in ("t", "__consumer_offsets"):
            cluster.wait_in_sync(topic)
