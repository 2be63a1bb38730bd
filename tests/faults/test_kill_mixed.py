"""kill -9 under plain and idempotent producers, compacted logs, deletions of records and topics,
and segments that roll all the time. After each kill the test reads every record.

KRUST_CRASH_ROUNDS says how often (5). A plain producer does not retry, so none of its
records may be there twice; an unacknowledged record may be there or not.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.test_kill import PARTITIONS, Load, read_all
from tests.faults.test_kill_while_compacting import CONFIG, KEYS, OPTIONS, Table, read_to_the_end
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

ROUNDS = int(os.environ.get("KRUST_CRASH_ROUNDS", "5"))
SMALL = {"segment.bytes": "20000"}
SHORT = {**SMALL, "retention.bytes": "100000"}


class Plain(Load):
    """The same numbers from a producer without retries."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic, **{"enable.idempotence": False, "retries": 0})

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            super()._delivered(error, message)


class Mixture:
    """All loads against one broker, and the records that must be there."""

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for topic, config in (("plain", SMALL), ("once", SMALL), ("table", CONFIG)):
            self._create(topic, config)
        self._create("short", SHORT)
        self.plain, self.once = Plain(bootstrap, "plain"), Load(bootstrap, "once")
        self.table, self.short = Table(bootstrap, "table"), Load(bootstrap, "short")
        self.loads = (self.plain, self.once, self.table, self.short)
        self.deleted_to = [0] * PARTITIONS
        self.topics: list[str] = []
        self.turns = 0

    def _create(self, topic: str, config: dict[str, str]) -> None:
        asked = self.admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])
        asked[topic].result(WAIT_S)

    def turn_topics(self) -> None:
        """Create a topic and delete one."""
        self.turns += 1
        self.topics.append(f"t-{self.turns}")
        self._create(self.topics[-1], {})
        if len(self.topics) > 2:
            self.admin.delete_topics([self.topics[0]])[self.topics[0]].result(WAIT_S)
            del self.topics[0]

    def run_until(self, acknowledged: int) -> None:
        """Send until this many more records are acknowledged."""
        goal = sum(load.count() for load in self.loads) + acknowledged
        while sum(load.count() for load in self.loads) < goal:
            for load in self.loads:
                load.step()

    def delete_records(self, chance: random.Random) -> None:
        """Request the deletion of the first records; do not wait for the answer."""
        partition = chance.randrange(PARTITIONS)
        last = max((offset for offset, _ in self.short.acked[partition]), default=0)
        self.deleted_to[partition] = max(self.deleted_to[partition], last - chance.randrange(300))
        self.admin.delete_records([TopicPartition("short", partition, self.deleted_to[partition])])

    def check(self, bootstrap: str) -> None:
        """Every record of every log was sent and is in its place; none is missing."""
        for partition in range(PARTITIONS):
            found = dict(read_all(bootstrap, "plain", partition))
            assert list(found) == list(range(len(found)))
            assert max(Counter(found.values()).values(), default=1) == 1, "a record is there twice"
            kept = dict(self.plain.acked[partition])
            assert {at: found.get(at) for at in kept} == kept
            once = read_all(bootstrap, "once", partition)
            assert once == [(number, number) for number in range(len(once))]
            assert len(once) >= len(self.once.acked[partition])
            self._check_table(bootstrap, partition)
            short = read_all(bootstrap, "short", partition)
            first = short[0][0] if short else 0
            assert short == [(number, number) for number in range(first, first + len(short))]
            gone = {at for at, _ in self.short.acked[partition]} - {at for at, _ in short}
            assert all(at < max(first, self.deleted_to[partition]) for at in gone)
        known = self.admin.list_topics(timeout=WAIT_S).topics
        assert set(self.topics) == {topic for topic in known if topic.startswith("t-")}

    def _check_table(self, bootstrap: str, partition: int) -> None:
        acked = [number for _, number in self.table.acked[partition]]
        found = read_to_the_end(bootstrap, partition)
        assert all(offset == number for offset, number in found)
        newest = {number % KEYS: number for _, number in found}
        lost = [number for number in acked if newest.get(number % KEYS, -1) < number]
        assert not lost, f"of these keys the last value is gone: {lost[-8:]}"


@pytest.mark.timeout(max(300, ROUNDS * 30))
def test_mixed_records_survive_kills_in_their_partitions_and_order(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    options = {**OPTIONS, "log.segment.delete.delay.ms": 0}
    port = free_port()
    broker = ServedBroker(tmp_path / "data", options=options, port=port)
    mixture = Mixture(broker.bootstrap)
    try:
        for _ in range(ROUNDS):
            mixture.turn_topics()
            mixture.delete_records(chance)
            mixture.run_until(acknowledged=chance.randrange(200, 2500))
            broker.kill()
            broker = ServedBroker(tmp_path / "data", options=options, port=port)
            mixture.check(broker.bootstrap)
        for load in mixture.loads:
            load.finish()
        mixture.check(broker.bootstrap)
        kinds = {load.topic: load.count() for load in mixture.loads}
        print(f"{ROUNDS} kills, acknowledged and read: {kinds}")
        assert broker.stop() == 0
    finally:
        if broker.process.poll() is None:
            broker.kill()
