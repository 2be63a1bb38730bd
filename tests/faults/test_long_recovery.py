"""A start that recovers logs shows its progress with true numbers, and can be stopped."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import krust
from krust.server import Recovery
from tests.serving import STOP_S, ServedBroker, environment

TOPICS, PARTITIONS, RECORDS = 2, 3, 40
VALUE = b"v" * 20_000

DRIVER = """
import signal
from krust import server
from krust.cli import main, recovering

recovering.QUIET_S = 0
server._LOOK_S = 0.001
look = recovering.RecoveryProgress.__call__

def interrupted(self, found, left=[{interrupts}]):
    if left[0]:
        left[0] -= 1
        signal.raise_signal(signal.SIGINT)
    look(self, found)

recovering.RecoveryProgress.__call__ = interrupted
main()
"""
"""krust serve, but it shows each moment; perhaps somebody presses Ctrl-C at once."""


@pytest.fixture
def unclean(tmp_path: Path) -> Path:
    """The directory of a broker that was killed."""
    with ServedBroker(tmp_path / "data", options={"num.partitions": PARTITIONS}) as broker:
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(RECORDS * TOPICS * PARTITIONS):
                topic = f"t{number % TOPICS}"
                partition = number // TOPICS % PARTITIONS
                producer.produce(topic, VALUE, partition=partition)
        broker.kill()
    return tmp_path / "data"


def records(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    places = [TopicPartition(f"t{n}", p) for n in range(TOPICS) for p in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, timeout=STOP_S) for place in places]
    consumer.close()
    return sum(high - low for low, high in ends)


def serve(data: Path, interrupts: int, *flags: str) -> list[str]:
    driver = DRIVER.format(interrupts=interrupts)
    return [sys.executable, "-c", driver, "serve", "--port", "0", "--data-dir", str(data), *flags]


def assert_progress(log: str, data: Path) -> None:
    logs = [path.stat().st_size for path in data.glob("*/*.log")]
    checked = f"{sum(logs) // 1_000_000:,}"
    line = f"recovering  {len(logs)} of {len(logs)} logs  {checked} of {checked} MB checked  \\d+ s"
    assert len(logs) == TOPICS * PARTITIONS
    assert checked != "0"
    assert re.search(line, log), log


def test_on_a_terminal_the_progress_line_ends_with_the_total(unclean: Path) -> None:
    master, slave = pty.openpty()
    ready, child = os.pipe()
    command = serve(unclean, 0, "--ready-fd", str(child))
    process = subprocess.Popen(command, stderr=slave, pass_fds=[child], env=environment())
    os.close(slave)
    os.close(child)
    with os.fdopen(ready) as pipe:
        assert pipe.readline()
    process.send_signal(signal.SIGTERM)
    shown = b""
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:  # the other side is gone
            break
    os.close(master)
    assert process.wait(STOP_S) == 0, shown
    assert shown.count(b"\r\x1b[K") > 0
    assert_progress(shown.decode(), unclean)


def test_without_a_terminal_the_log_shows_the_progress(unclean: Path) -> None:
    process = subprocess.Popen(
        serve(unclean, 0, "--exit-on-stdin-close"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    assert process.stdin is not None
    log = ""
    while "ready in" not in log:
        log += process.stderr.readline()
    process.stdin.close()
    log += process.stderr.read()
    process.stderr.close()
    assert process.wait(STOP_S) == 0, log
    assert_progress(log, unclean)


def test_ctrl_c_ends_a_recovery_in_order_and_the_next_start_repeats_it(unclean: Path) -> None:
    ended = subprocess.run(
        serve(unclean, 1), capture_output=True, text=True, check=False, env=environment()
    )
    assert ended.returncode == 0, ended.stderr
    assert "SIGINT: stopped before it was ready" in ended.stderr
    with ServedBroker(unclean) as broker:
        assert records(broker.bootstrap) == RECORDS * TOPICS * PARTITIONS


def test_a_caller_that_watches_a_start_can_end_it(unclean: Path) -> None:
    def watch(_found: Recovery) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        krust.Broker(unclean, watch=watch)
    seen: list[Recovery] = []
    with krust.Broker(unclean, watch=seen.append) as broker:
        assert records(broker.bootstrap) == RECORDS * TOPICS * PARTITIONS
    assert seen[-1].opened == seen[-1].logs == TOPICS * PARTITIONS
    assert seen[-1].checked == seen[-1].to_check
