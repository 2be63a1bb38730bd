"""Leaders of Kafka send consumers to followers of krust in their rack, and the other way round."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.mixed import BROKERS, KAFKA, KRUST, MixedCluster
from tests.cluster.racks import RACK_AWARE, fetch
from tests.peers import zookeeper as peer
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

PARTITIONS, COUNT = 6, 500
SETTINGS: dict[str, object] = {
    "replica.selector.class": RACK_AWARE,
    "offsets.topic.num.partitions": 1,
    "auto.leader.rebalance.enable": "false",
}


@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
def test_followers_of_either_kind_serve_consumers_that_leaders_of_the_other_kind_sent(
    tmp_path: Path,
) -> None:
    (tmp_path / "zk").mkdir()
    with (
        peer.running(tmp_path / "zk") as ensemble,
        MixedCluster(tmp_path, f"{ensemble.connect}/racks", SETTINGS) as brokers,
    ):
        for number, kind in zip(BROKERS, (KAFKA, KRUST, KAFKA), strict=True):
            brokers.start(number, kind)
        brokers.create("t", PARTITIONS)
        brokers.wait_in_sync("t", PARTITIONS)
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
        for number in range(COUNT * PARTITIONS):
            producer.produce("t", str(number), partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        pairs = set()
        for partition, leader in enumerate(brokers.leaders("t")):
            for near in BROKERS:
                if near == leader:
                    continue
                is_sent_on(brokers, partition, (leader, near))
                pairs.add((brokers.kinds[leader], brokers.kinds[near]))
        assert {(KAFKA, KRUST), (KRUST, KAFKA)} <= pairs
        for near in BROKERS:
            assert values(brokers, f"rack-{near}") == list(range(COUNT * PARTITIONS))


def is_sent_on(brokers: MixedCluster, partition: int, of: tuple[int, int]) -> None:
    """Wait until the leader names the near follower and sends nothing, and the follower sends."""
    leader, near = of
    place, rack = ("t", partition, 0), f"rack-{near}"
    until(lambda: fetch(brokers.address(leader), rack, place) == (near, 0))
    named, size = fetch(brokers.address(near), rack, place)
    assert named == -1
    until(lambda: fetch(brokers.address(near), rack, place)[1] > 0)
    assert fetch(brokers.address(leader), f"rack-{leader}", place)[1] >= size


def values(brokers: MixedCluster, rack: str) -> list[int]:
    """All values that a consumer in this rack reads, in order."""
    consumer = Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": rack, "client.rack": rack}
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    found: list[int] = []

    def all_read() -> bool:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            found.append(int(message.value()))
        return len(found) >= COUNT * PARTITIONS

    until(all_read)
    consumer.close()
    return sorted(found)
