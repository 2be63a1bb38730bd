"""kill -9 while compacted partitions are written and cleaned: each key has its last value.

KRUST_CRASH_ROUNDS says how often (10). Segments are small and the cleaner never rests, so that many
kills fall into a cleaning.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.test_kill import PARTITIONS, ROUNDS, Load
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

KEYS = 40
OPTIONS: dict[str, object] = {
    "log.cleaner.backoff.ms": 1,
    "log.segment.delete.delay.ms": 0,
    "log.retention.check.interval.ms": 20,
}
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "20000",
}


class Table(Load):
    """The same numbers, each under one of a few keys."""

    def key(self, number: int) -> bytes:
        return b"%d" % (number % KEYS)


def read_to_the_end(bootstrap: str, partition: int) -> list[tuple[int, int]]:
    """(offset, number) of every record of the table, to the end of the log."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition("table", partition, 0)])
    found: list[tuple[int, int]] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"silence after {found[-1:]}"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append((message.offset() or 0, int(message.value() or b"")))
    consumer.close()
    return found


def is_compacted(bootstrap: str, partition: int, written: int) -> bool:
    """Whether few enough records are left that it was cleaned; the rest must always be right."""
    found = read_to_the_end(bootstrap, partition)
    assert [offset for offset, _ in found] == [number for _, number in found]
    lasts = {number for _, number in found if number >= written - KEYS}
    assert lasts == set(range(written - KEYS, written))
    return len(found) < written / 2


@pytest.mark.timeout(max(300, ROUNDS * 20))
def test_every_key_keeps_its_last_value_through_kills_while_compacting(tmp_path: Path) -> None:
    chance = random.Random(20261121)
    port = free_port()
    broker = ServedBroker(tmp_path / "data", options=OPTIONS, port=port)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("table", PARTITIONS, 1, config=CONFIG)])["table"].result(WAIT_S)
    load = Table(broker.bootstrap, "table")
    try:
        for _ in range(ROUNDS):
            load.run_until(acknowledged=chance.randrange(500, 5000))
            broker.kill()
            broker = ServedBroker(tmp_path / "data", options=OPTIONS, port=port)
        load.finish()
        for partition, written in enumerate(load.next):
            until(partial(is_compacted, broker.bootstrap, partition, written))
        assert broker.stop() == 0
    finally:
        if broker.process.poll() is None:
            broker.kill()
