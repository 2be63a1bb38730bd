"""Kafka's own `TransactionalMessageCopier`, of 3.9.1 and of 4.3.0, in one group: each record of the
input is in the output once, though the broker and a copier are killed and many transactions abort.

KRUST_COPIER_KILLS: how many times the broker and each copier are killed (1).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import krust
from tests.peers import kafka
from tests.peers.tools import command
from tests.ports import free_port
from tests.serving import AT_ONCE, ServedBroker
from tests.waiting import WAIT_S, until

KILLS = int(os.environ.get("KRUST_COPIER_KILLS", "1"))
pytestmark = [pytest.mark.java, pytest.mark.timeout(240 + 60 * KILLS)]

INPUT, OUTPUT, GROUP = "input", "output", "copiers"
PARTITIONS = 4
RECORDS = 6000 + 4000 * KILLS
EACH = 50
"""records of a transaction"""
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


class Copier:
    """A copier of a version, with a transactional id of its own. A killed one is started again."""

    def __init__(self, version: str, bootstrap: str, folder: Path) -> None:
        words = ["--broker-list", bootstrap, "--input-topic", INPUT, "--input-partition", "0"]
        words += ["--output-topic", OUTPUT, "--consumer-group", GROUP]
        words += ["--transactional-id", f"copier-{version}", "--transaction-size", str(EACH)]
        words += ["--transaction-timeout", "10000"]
        words += ["--enable-random-aborts", "--group-mode", "--use-group-metadata"]
        self._words = [*command(version, COPIER), *words]
        self.log = folder / f"{version}.log"
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=subprocess.STDOUT)

    def is_running(self) -> bool:
        """Whether it runs; one that gave up is started again, as a service manager does."""
        if self._process.poll() is None:
            return True
        if self._process.returncode:
            self._start()
        return False

    def kill(self) -> None:
        """Kill it without warning, and start another in its place."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def copiers(bootstrap: str, folder: Path) -> Iterator[list[Copier]]:
    """A copier of each version."""
    running = [Copier(version, bootstrap, folder) for version in kafka.VERSIONS]
    try:
        yield running
    finally:
        for each in running:
            each.stop()


def lag(bootstrap: str) -> int:
    """How many records of the input the group has not committed."""
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        return RECORDS - sum(admin.committed(GROUP, INPUT, PARTITIONS).values())


def committed(bootstrap: str) -> list[int]:
    """The records of the output that a read_committed reader sees."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "reads"}
    settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer(settings)
    reader.assign([TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)])
    found: list[int] = []
    ended: set[int | None] = set()

    def is_at_end() -> bool:
        for message in reader.consume(1000, 0.1):
            if message.error() is None:
                found.append(int(message.value() or b""))
            else:
                ended.add(message.partition())
        return len(ended) == PARTITIONS

    until(is_at_end)
    reader.close()
    return sorted(found)


def test_copiers_of_two_versions_copy_each_record_once_though_all_are_killed(
    tmp_path: Path,
) -> None:
    if reason := kafka.missing():
        pytest.skip(reason)
    port, data = free_port(), tmp_path / "data"
    options = {**AT_ONCE, "transaction.state.log.num.partitions": 4}
    broker = ServedBroker(data, "--prod", port=port, options=dict(options))
    bootstrap = broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(
        [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
    ).values():
        made.result(WAIT_S)
    writer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        writer.produce(INPUT, str(number).encode(), partition=number % PARTITIONS)
    assert writer.flush(WAIT_S) == 0
    left = lag(bootstrap)
    try:
        with copiers(bootstrap, tmp_path) as running:
            for _ in range(KILLS):
                for kill in (*(each.kill for each in running), broker.kill):
                    left -= RECORDS // (4 * KILLS)
                    wait_for(bootstrap, running, left)
                    kill()
                broker = ServedBroker(data, "--prod", port=port, options=dict(options))
            wait_for(bootstrap, running, 0)
        assert committed(bootstrap) == list(range(RECORDS))
    finally:
        broker.stop()


def wait_for(bootstrap: str, running: list[Copier], left: int) -> None:
    """Wait until at most so many records are left to copy."""
    deadline = time.monotonic() + 2 * WAIT_S
    while (now := lag(bootstrap)) > left:
        assert time.monotonic() < deadline, [
            now,
            *(each.log.read_text()[-2000:] for each in running),
        ]
        for each in running:
            each.is_running()
        time.sleep(0.02)
