"""System calls fail under a running broker (strace injects errors). The broker refuses writes with
KAFKA_STORAGE_ERROR (56), serves what it has, and has every acknowledged record after a restart.

The broker retries a full disk. After any other error the directory stays offline until the next
start. `make crash` has more cases. Skipped with the reason if strace is missing or may not
attach.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.faults.test_disk import STORAGE_ERROR, create
from tests.faults.test_kill import read_all
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

WRITES = "pwrite64,pwritev,pwritev2"
SYNCS = "fdatasync,fsync"
RENAMES = "rename,renameat,renameat2"
SEGMENT = 3000
REFUSED = {STORAGE_ERROR, KafkaError._MSG_TIMED_OUT}
"""Once the directory is offline nobody leads the partition, which a client waits out."""


NOBODY_S = 2.0
"""so long is a leader waited for where none will come"""


@contextmanager
def failing(broker: ServedBroker, calls: str, error: str, path: Path | None) -> Iterator[None]:
    """These calls (on this file) fail while this lasts."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace here")
    command = [strace, "-f", "-p", str(broker.process.pid), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:error={error}", "-o", "/dev/null"]
    if path is not None:
        command += ["-P", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        first = tracer.stderr.readline()
        if "attached" not in first:
            pytest.skip(f"strace cannot attach: {first.strip()}")
        try:
            yield
        finally:
            tracer.terminate()


def produce(bootstrap: str, number: int, patience_s: float = WAIT_S) -> int:
    """Send a number without retries; Kafka's error code, or the client's if there is no leader."""
    codes: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        codes.append(error.code() if error else 0)

    settings = {"bootstrap.servers": bootstrap, "retries": 0, "log_level": 0}
    producer = Producer({**settings, "message.timeout.ms": int(patience_s * 1000)})
    producer.produce("t", b"%0200d" % number, partition=0, on_delivery=delivered)
    producer.flush(2 * WAIT_S)
    return codes[0]


def restarted(place: Path, acked: list[int]) -> None:
    """After a start the acknowledged records are there, and the partition can be written again."""
    with ServedBroker(place) as broker:
        found = [number for _, number in read_all(broker.bootstrap, "t", 0)]
        assert sorted(set(acked) - set(found)) == []
        assert produce(broker.bootstrap, 10**6) == 0


CASES = [
    (WRITES, "ENOSPC", True, True),
    (WRITES, "EIO", True, False),
    (SYNCS, "EIO", True, False),
    (RENAMES, "ENOSPC", False, True),
]
if "KRUST_CRASH_ROUNDS" in os.environ:
    CASES += [
        (WRITES, "EDQUOT", True, True),
        (SYNCS, "ENOSPC", True, False),
        (RENAMES, "EIO", False, False),
        ("openat", "EMFILE", False, True),
        ("fallocate", "ENOSPC", False, True),
    ]
"""calls, error, whether only those of the log's file fail, whether it recovers by itself"""


@pytest.mark.parametrize(("calls", "error", "of_log", "recovers"), CASES)
def test_a_failing_system_call_refuses_writes_and_loses_no_record(
    tmp_path: Path, calls: str, error: str, of_log: bool, recovers: bool
) -> None:
    place = tmp_path / "data"
    options: dict[str, object] = {"krust.flush.mode": "ack", "log.segment.bytes": SEGMENT}
    log = place / "t-0" / f"{0:020}.log"
    acked: list[int] = []
    patience_s = WAIT_S if recovers else NOBODY_S
    with ServedBroker(place, options=options) as broker:

        def send(number: int, patience_s: float = WAIT_S) -> int:
            code = produce(broker.bootstrap, number, patience_s)
            if code == 0:
                acked.append(number)
            return code

        create(broker.bootstrap, "t")
        assert [send(number) for number in range(3)] == [0, 0, 0]
        with failing(broker, calls, error, log if of_log else None):
            count = 2 if of_log else 30
            codes = {send(number, patience_s) for number in range(3, 3 + count)}
        assert codes <= REFUSED | {0}
        assert recovers or codes & REFUSED
        assert broker.process.poll() is None
        if recovers:
            numbers = itertools.count(100)
            until(lambda: send(next(numbers)) == 0)
        if not recovers:
            assert send(100, patience_s) in REFUSED
        else:
            assert {number for _, number in read_all(broker.bootstrap, "t", 0)} == set(acked)
        assert broker.process.poll() is None
        broker.kill()
    restarted(place, acked)
