"""The Python clients against krust, Apache Kafka 3.9 and 4.3 (see tests/three_brokers.py)."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys

import pytest

from krust import Consumer, _krust
from tests.three_brokers import Command, leader_count
from tests.waiting import WAIT_S, until

_NUMBER = itertools.count(1)


@pytest.fixture
def bootstrap(krust: Command) -> str:
    """A broker's address."""
    return krust.bootstrap


@pytest.fixture
def name() -> str:
    """A topic's name that nothing else uses."""
    return f"clients-{os.getpid()}-{next(_NUMBER)}"


def create(bootstrap: str, name: str, partitions: int) -> None:
    """A topic that every broker of the cluster knows."""
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    client = _krust.Client(bootstrap)
    [answer] = client.request("CreateTopics", {"topics": [topic], "timeout_ms": 60_000})["topics"]
    assert answer["error_code"] in (0, 36), answer
    until(lambda: leader_count(bootstrap, name) == partitions)
    with Consumer(bootstrap_servers=bootstrap) as consumer:  # a leader may not know that it is one
        consumer.end_offsets([(name, number) for number in range(partitions)])


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """A new topic with three partitions."""
    create(bootstrap, name, 3)
    return name


@pytest.fixture
def single(bootstrap: str, name: str) -> str:
    """A new topic with one partition."""
    create(bootstrap, name, 1)
    return name


def read(bootstrap: str, topic: str, partition: int = 0) -> list[_krust.Record]:
    """Every record of a partition."""
    client = _krust.Client(bootstrap)
    [(*_, end, _)] = client.list_offsets([(topic, partition, -1)])
    consumer = _krust.Consumer(bootstrap)
    consumer.assign([(topic, partition, 0, end)])
    found: list[_krust.Record] = []
    while not consumer.done():
        found += consumer.poll(1000)[0]
    return found


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """The values that read_committed readers see up to the end of the log."""
    with Consumer(bootstrap_servers=bootstrap) as reader:
        parts = [(topic, number) for number in range(reader.topics()[topic])]
        ends = reader.end_offsets(parts)
    found: list[bytes] = []
    with Consumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        reader.assign([(*part, 0) for part in parts])
        while any(reader.position(*part) < ends[part] for part in ends):
            found += [bytes(one.value or b"") for one in reader.poll(100)]
    return found


def run_program(program: str, *arguments: str) -> str:
    """Run a program that Ctrl-C may end; what it says."""
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()
