"""kill -9 under an idempotent producer: every acknowledged record is there, once and in order.

KRUST_CRASH_ROUNDS says how often (10). The producer lives on through every crash, as a service's
would; the broker comes back on its port, in its directory.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

ROUNDS = int(os.environ.get("KRUST_CRASH_ROUNDS", "10"))
PARTITIONS = 3
OPTIONS: dict[str, object] = {"log.segment.bytes": 1 << 20}


class Load:
    """An idempotent producer of the numbers 0, 1, 2 ... on each partition."""

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        self.topic = topic
        self.next = [0] * PARTITIONS
        self.acked: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.failed: list[object] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "queue.buffering.max.messages": 5000,
                "batch.num.messages": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
                **settings,
            }
        )

    def run_until(self, acknowledged: int) -> None:
        """Send until this many more records are acknowledged."""
        goal = self.count() + acknowledged
        while self.count() < goal:
            self.step()

    def step(self) -> None:
        """Send one record to each partition below its limit, and take delivery reports."""
        assert not self.failed, self.failed[:3]
        for partition in range(PARTITIONS):
            value = b"%d" % self.next[partition]
            try:
                self.producer.produce(
                    self.topic,
                    value,
                    self.key(self.next[partition]),
                    partition=partition,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self.producer.poll(0.01)
                continue
            self.next[partition] += 1
        self.producer.poll(0)

    def key(self, _number: int) -> bytes | None:
        """The key of a number."""
        return None

    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def finish(self) -> None:
        assert self.producer.flush(WAIT_S) == 0
        assert not self.failed, self.failed[:3]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        place = (message.offset(), int(message.value() or b""))
        self.acked[message.partition() or 0].append(place)


def read_all(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """(offset, number) of every record; reads again if retention deleted the first ones."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    try:
        while (found := _read(consumer, TopicPartition(topic, partition))) is None:
            pass
    finally:
        consumer.close()
    return found


def _read(consumer: Consumer, place: TopicPartition) -> list[tuple[int, int]] | None:
    """From the log's start to its present end; None: the requested offset is gone."""
    low, high = consumer.get_watermark_offsets(place, WAIT_S)
    consumer.assign([TopicPartition(place.topic, place.partition, low)])
    found: list[tuple[int, int]] = []
    while len(found) < high - low:
        batch = consumer.consume(min(10_000, high - low - len(found)), WAIT_S)
        assert batch, f"{len(found)} of {high - low}"
        for message in batch:
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._AUTO_OFFSET_RESET, error
                return None
            found.append((message.offset() or 0, int(message.value() or b"")))
    return found


@pytest.mark.timeout(max(300, ROUNDS * 20))
@pytest.mark.parametrize("flush", ["flush.messages=1", "page cache"])
def test_acknowledged_records_survive_kill_once_and_in_order(tmp_path: Path, flush: str) -> None:
    chance = random.Random(20260102)
    port = free_port()
    broker = ServedBroker(tmp_path / "data", options=OPTIONS, port=port)
    config = {"flush.messages": "1"} if flush == "flush.messages=1" else {}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic("load", PARTITIONS, 1, config=config)
    admin.create_topics([topic])["load"].result(WAIT_S)
    load = Load(broker.bootstrap, "load")
    slowest = 0.0
    try:
        for _ in range(ROUNDS):
            load.run_until(acknowledged=chance.randrange(500, 5000))
            broker.kill()
            began = time.monotonic()
            broker = ServedBroker(tmp_path / "data", options=OPTIONS, port=port)
            slowest = max(slowest, time.monotonic() - began)
        load.finish()
        for partition in range(PARTITIONS):
            found = read_all(broker.bootstrap, "load", partition)
            assert found == [(number, number) for number in range(load.next[partition])]
            assert sorted(load.acked[partition]) == found
        assert broker.stop() == 0
    finally:
        if broker.process.poll() is None:
            broker.kill()
    print(f"{ROUNDS} kills, {load.count()} records, started in {slowest:.2f} s at most")


def test_a_crash_while_starting_loses_nothing(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:
        load = Load(broker.bootstrap, "load")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("load", PARTITIONS, 1)])["load"].result(WAIT_S)
        load.run_until(acknowledged=3000)
        load.finish()
        broker.kill()
    for _ in range(5):
        ServedBroker(tmp_path / "data", options=OPTIONS).kill()
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:
        for partition in range(PARTITIONS):
            found = read_all(broker.bootstrap, "load", partition)
            assert found == sorted(load.acked[partition])
