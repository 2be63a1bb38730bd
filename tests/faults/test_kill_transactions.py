"""kill -9 of the broker under transactions: a read_committed reader sees each one whole or not.

KRUST_TRANSACTION_KILLS: how often the broker is killed (5).
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("KRUST_TRANSACTION_KILLS", "5"))
WAIT_S = 60
PARTITIONS = 4
EACH = 8


class Transactions:
    """One transaction after the other, on a thread. Of each it is known how it ended, or not."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Wait until so many more are committed."""
        wanted = len(self.committed) + count
        until(lambda: len(self.committed) >= wanted)

    def stop(self) -> None:
        """End after the transaction that runs."""
        self._stops.set()
        self._thread.join()

    def _producer(self) -> Producer:
        options = {"bootstrap.servers": self._bootstrap, "transactional.id": "killed"}
        producer = Producer({**options, "log_level": 0, "reconnect.backoff.max.ms": 100})
        producer.init_transactions(WAIT_S)
        return producer

    def _run(self) -> None:
        producer, number = self._producer(), 0
        while not self._stops.is_set():
            commits = number % 3 != 2
            try:
                producer.begin_transaction()
                for each in range(EACH):
                    producer.produce("t", f"{number}".encode(), partition=each % PARTITIONS)
                if commits:
                    producer.commit_transaction(WAIT_S)
                    self.committed.add(number)
                else:
                    self.aborted.add(number)
                    producer.abort_transaction(WAIT_S)
            except KafkaException:
                producer = self._producer()
            number += 1


def read_committed(bootstrap: str) -> Counter[int]:
    """How many records of each transaction a read_committed reader sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
        seen: Counter[int] = Counter()
        ended: set[int] = set()

        def poll() -> bool:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    seen[int(message.value())] += 1
                else:
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        until(poll)
        return seen
    finally:
        consumer.close()


@pytest.mark.timeout(max(300, KILLS * 20))
def test_each_transaction_is_seen_whole_or_not_at_all_after_kills(tmp_path: Path) -> None:
    chance, port = random.Random(20261126), free_port()
    broker = ServedBroker(tmp_path / "data", port=port)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(WAIT_S)
    transactions = Transactions(broker.bootstrap)
    try:
        for _ in range(KILLS):
            transactions.until_more(chance.randrange(5, 60))
            broker.kill()
            broker = ServedBroker(tmp_path / "data", port=port)
        transactions.stop()
        seen = read_committed(broker.bootstrap)
    finally:
        transactions.stop()
        if broker.process.poll() is None:
            broker.kill()
    assert {seen[number] for number in transactions.committed} == {EACH}
    assert not seen.keys() & transactions.aborted
    assert set(seen.values()) == {EACH}
    print(f"{KILLS} kills, {len(transactions.committed)} transactions committed")
