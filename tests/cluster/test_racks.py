"""Consumers with a rack read followers in their rack, and lose and double nothing on the way.

While the leader hangs, records can only come from a follower: that shows who served them.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

import krust
from tests.cluster.racks import RACK_AWARE, fetch
from tests.peers import kafka
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
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
        self.numbers += self._poll_numbers()
        return len(self.numbers)

    def _poll_numbers(self) -> list[int]:
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


@pytest.mark.parametrize("kind", ["krust", "confluent"])
def test_a_consumer_goes_on_without_its_follower_and_without_its_leader(
    cluster: krust.Cluster, kind: str
) -> None:
    leader = cluster.leader("t", 0)
    near = (leader + 1) % 3
    reader = Reader(kind, cluster, near)
    try:
        produce(cluster, 0, COUNT)
        reader.read(50)
        cluster.kill(near)
        produce(cluster, COUNT, COUNT)
        reader.read(2 * COUNT)
        cluster.start(near)
        cluster.wait_in_sync("t")
        produce(cluster, 2 * COUNT, COUNT)
        reader.read(3 * COUNT)
        cluster.kill(leader)
        until(lambda: cluster.leader("t", 0) not in (-1, leader))
        produce(cluster, 3 * COUNT, COUNT)
        reader.read(4 * COUNT)
        assert reader.numbers == list(range(4 * COUNT))
    finally:
        reader.close()


@pytest.mark.java
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_a_java_consumer_reads_a_follower_of_its_rack_while_the_leader_hangs(
    cluster: krust.Cluster, version: str
) -> None:
    produce(cluster, 0, COUNT)
    leader = cluster.leader("t", 0)
    properties = {"client.rack": RACKS[(leader + 1) % 3], "max.partition.fetch.bytes": 20_000}
    command = ["java", "-cp", f"{kafka.jars(version)}/*", CONSOLE, "--topic", "t"]
    command += ["--bootstrap-server", cluster.bootstrap, "--partition", "0"]
    command += ["--offset", "earliest", "--max-messages", str(COUNT)]
    for name, value in properties.items():
        command += ["--consumer-property", f"{name}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.strip().isdigit())
        numbers = [int(next(lines))]
        # The process waits: a pipe holds 64 KiB of the 2 MB.
        cluster.pause(leader, expire=False)
        numbers += map(int, lines)
    cluster.resume(leader)
    assert numbers == list(range(COUNT))


SELECTOR = """
class ByName:
    name = "by_name"

    def select(self, topic, partition, rack, replicas):
        return int(rack.removeprefix("broker-"))
"""


def test_a_selector_in_python_chooses_the_replica_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "selector_by_name.py").write_text(SELECTOR)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"replica.selector.class": "selector_by_name:ByName"}
    with krust.Cluster(3, config=config) as cluster:
        cluster.create_topic("t", 1, replication_factor=3)
        cluster.wait_in_sync("t")
        produce(cluster, 0, COUNT)
        leader = cluster.leader("t", 0)
        near = (leader + 1) % 3
        until(lambda: fetch(cluster.brokers[leader].bootstrap, f"broker-{near}")[0] == near)
        with krust.Consumer(
            cluster.client_config(client_rack=f"broker-{near}", max_partition_fetch_bytes=20_000)
        ) as consumer:
            consumer.assign([("t", 0)])
            consumer.seek_to_beginning()
            numbers = [int(record.value or b"") for record in consumer.poll(10)]
            cluster.pause(leader, expire=False)
            while len(numbers) < COUNT:
                numbers += [int(record.value or b"") for record in consumer.poll(10)]
            cluster.resume(leader)
        assert numbers == list(range(COUNT))
