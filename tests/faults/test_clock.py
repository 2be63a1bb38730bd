"""The wall clock jumps: timestamps follow it; offsets, sequences and waiting clients do not."""

from __future__ import annotations

import os
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.foreign.clients import Confluent, Record
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

HOUR, YEAR = 3600, 365 * 24 * 3600
JUMPS = (HOUR, -HOUR, 10 * YEAR, -10 * YEAR, 0)


def test_a_clock_jump_changes_no_offset_and_no_wait(clock: Path, tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options={"log.segment.bytes": 1 << 20}) as broker:
        os.environ.pop("LD_PRELOAD")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
        admin.create_topics([NewTopic("jump", 1, 1, config=config)])["jump"].result(WAIT_S)
        expected: list[Record] = []
        for jump in JUMPS:
            clock.write_text(str(jump))
            records: list[Record] = [(b"%d" % jump, b"%d" % n) for n in range(20)]
            Confluent(**{"enable.idempotence": True}).write(
                broker.bootstrap, "jump", "lz4", records
            )
            expected += records
            assert Confluent().read(broker.bootstrap, "jump", len(expected)) == expected
            assert_near(stamp(broker.bootstrap, len(expected) - 1), time.time() + jump)
    with ServedBroker(tmp_path / "data") as broker:
        assert Confluent().read(broker.bootstrap, "jump", len(expected)) == expected


def stamp(bootstrap: str, offset: int) -> float:
    """When the broker says that a record was appended, in seconds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition("jump", 0, offset)])
    message = consumer.poll(WAIT_S)
    assert message is not None
    _, timestamp = message.timestamp()
    consumer.close()
    return float(timestamp) / 1000


def assert_near(found: float, wanted: float) -> None:
    assert abs(found - wanted) < HOUR / 2
