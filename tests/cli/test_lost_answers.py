"""Connections that break while answers are on their way: nothing is lost, and with --idempotent
nothing comes twice or out of order."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.proxy import Cutting, behind
from tests.serving import ServedBroker
from tests.three_brokers import Command
from tests.waiting import WAIT_S

PRODUCE, FETCH = 0, 1
GROUP_APIS = range(8, 15)
LINES = [b"line %d" % n for n in range(20_000)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    tmp_path: Path, codec: str
) -> None:
    cutting = Cutting(7, [PRODUCE])
    with behind(tmp_path, cutting, "--prod") as address:
        krust = Command(address)
        krust.ok("topic", "create", "t:1")
        small = ["-X", "batch.size=4000", "-X", "retry.backoff.ms=5", "-z", codec]
        krust.ok("produce", "t", "--idempotent", *small, given=b"\n".join(LINES))
        assert cutting.cuts > 3
        assert krust.ok("consume", "t", "-e").out.splitlines() == LINES


def test_a_producer_without_idempotence_loses_nothing_and_keeps_the_order_of_new_records(
    tmp_path: Path,
) -> None:
    cutting = Cutting(7, [PRODUCE])
    with behind(tmp_path, cutting, "--prod") as address:
        krust = Command(address)
        krust.ok("topic", "create", "t:1")
        small = ["-X", "batch.size=4000", "-X", "retry.backoff.ms=5"]
        krust.ok("produce", "t", *small, given=b"\n".join(LINES))
        assert cutting.cuts > 3
        found = krust.ok("consume", "t", "-e").out.splitlines()
        assert list(dict.fromkeys(found)) == LINES
        assert len(found) > len(LINES), "what was lost on the way back was written twice"


def test_a_member_reads_each_record_once_and_its_commits_hold(tmp_path: Path) -> None:
    cutting = Cutting(3, [FETCH, *GROUP_APIS])
    with behind(tmp_path, cutting, "--prod") as address:
        krust = Command(address)
        krust.ok("topic", "create", "t:1")
        krust.ok("produce", "t", given=b"\n".join(LINES))
        found = [krust.ok("consume", "t", "-g", "g", *end).out for end in (["-n", "9000"], ["-e"])]
        assert cutting.cuts > 3
        assert b"".join(found).splitlines() == LINES
        assert found[0].count(b"\n") == 9000
        assert krust.ok("consume", "t", "-g", "g", "-e").out == b"", "all is committed"


def test_a_member_continues_after_a_restart_of_its_broker(tmp_path: Path) -> None:
    port = free_port()
    with ServedBroker(tmp_path / "data", port=port) as broker:
        krust = Command(broker.bootstrap)
        krust.ok("produce", "t", given=b"before\n")
        member = subprocess.Popen(
            krust.argv("consume", "t", "-g", "g"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert member.stdout is not None
        assert member.stdout.readline() == b"before\n"
        broker.kill()
    with member, ServedBroker(tmp_path / "data", port=port):
        krust.ok("produce", "t", given=b"after\n")
        while member.stdout.readline() != b"after\n":  # what was not committed comes again
            assert member.poll() is None
        member.send_signal(signal.SIGINT)
        assert member.wait(WAIT_S) == 130
        assert krust.ok("consume", "t", "-g", "g", "-e").out == b""
