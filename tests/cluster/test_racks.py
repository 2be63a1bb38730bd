"""Consumers with a rack read followers in their rack, and lose and double nothing on the way.

While the leader hangs, records can only come from a follower: that shows who served them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka
import pytest

import krust
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ("a", "b", "c")
COUNT = 2000


@pytest.fixture
def cluster() -> Iterator[krust.Cluster]:
    config = {"replica.selector.class": RACK_AWARE, "min.insync.replicas": 1}
    with krust.Cluster(3, racks=RACKS, config=config) as cluster:
        cluster.create_topic("t", 1, replication_factor=3)
        cluster.wait_in_sync("t")
        yield cluster


def produce(cluster: krust.Cluster, first: int, count: int) -> None:
    with krust.Producer(cluster.client_config(acks="all")) as producer:
        for number in range(first, first + count):
            producer.send("t", str(number).encode().ljust(1000))


class Reader:
    """A consumer in the rack of broker `near`: krust's, or librdkafka's."""

    def __init__(self, kind: str, cluster: krust.Cluster, near: int) -> None:
        self.numbers: list[int] = []
        config = cluster.client_config() | {
            "client.rack": RACKS[near],
            "group.id": f"{kind}-{near}",
            "auto.offset.reset": "earliest",
            "max.partition.fetch.bytes": 20_000,
        }
        self._krust = krust.Consumer(config, "t") if kind == "krust" else None
        if self._krust is None:
            more = {"queued.min.messages": 1, "queued.max.messages.kbytes": 20}
            self._confluent = confluent_kafka.Consumer({**config, **more})
            self._confluent.subscribe(["t"])

    def read(self, count: int) -> None:
        """Read until there are `count` records in all."""
        until(lambda: self._poll() >= count)

    def _poll(self) -> int:
        self.numbers += self._more()
        return len(self.numbers)

    def _more(self) -> list[int]:
        if self._krust is not None:
            return [int(record.value or b"") for record in self._krust.poll(0.1)]
        found = []
        for message in self._confluent.consume(100, 0.1):
            if (error := message.error()) is None:
                found.append(int(message.value()))
            else:
                assert error.retriable(), error
        return found

    def close(self) -> None:
        (self._krust or self._confluent).close()


@pytest.mark.parametrize("kind", ["krust", "confluent"])
def test_a_consumer_reads_a_follower_of_its_rack_while_the_leader_hangs(
    cluster: krust.Cluster, kind: str
) -> None:
    produce(cluster, 0, COUNT)
    leader = cluster.leader("t", 0)
    near = (leader + 1) % 3
    reader = Reader(kind, cluster, near)
    try:
        reader.read(50)
        cluster.pause(leader, expire=False)
        reader.read(COUNT)
        cluster.resume(leader)
        assert reader.numbers == list(range(COUNT))
    finally:
        reader.close()
