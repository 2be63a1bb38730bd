"""Starts and stops leave no descriptor, thread or memory; a failed start prints one line."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import krust
from tests.serving import STOP_S, NotReadyError, ServedBroker
from tests.waiting import WAIT_S, until

CYCLES = 1000
WARM_UP = 50
MEMORY_LIMIT = 4 << 20  # allocator noise over 950 cycles, not a leak of 4 KiB each


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_resources() -> tuple[int, int, int]:
    """Descriptors, Python threads, all threads of this process."""
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    tasks = sum(1 for _ in Path("/proc/self/task").iterdir())
    return descriptors, threading.active_count(), tasks


def cycle() -> None:
    with krust.Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        socket.create_connection((host, int(port)), WAIT_S).close()


def many_starts() -> None:
    """In its own process, because in a shared one other tests open and close things meanwhile."""
    for _ in range(WARM_UP):
        cycle()
    gc.collect()
    before, memory = open_resources(), resident_bytes()
    for _ in range(CYCLES - WARM_UP):
        cycle()
    gc.collect()
    # A thread that was joined is seen a moment longer.
    until(lambda: all(now <= then for now, then in zip(open_resources(), before, strict=True)))
    assert resident_bytes() - memory < MEMORY_LIMIT


def test_a_broker_without_security_loads_no_module_for_it() -> None:
    """Python's OpenSSL and its clients of HTTP take 7 MB and 30 ms of each start."""
    costly = {"_hashlib", "_ssl", "asyncio", "email", "http", "ssl", "urllib.request"}
    code = "import sys, krust\nwith krust.Broker(): print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not costly & set(run.stdout.split())


@pytest.mark.timeout(600)
def test_a_thousand_starts_leave_nothing_behind() -> None:
    code = "from tests.test_start import many_starts; many_starts()"
    root = Path(__file__).parents[1]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        broker.process.send_signal(number)
        assert broker.process.wait(STOP_S) == 0
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()
    assert "Traceback" not in broker.stderr()


def test_the_end_of_standard_input_stops_the_broker(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        assert broker.process.stdin is not None
        broker.process.stdin.close()
        assert broker.process.wait(STOP_S) == 0


def test_the_ready_file_has_the_address_and_goes_with_the_broker(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    with ServedBroker(tmp_path / "data", "--ready-file", str(ready)) as broker:
        details = json.loads(ready.read_text())
        assert details == broker.ready
        assert details["pid"] == broker.pid
        assert details["data_dir"] == str(tmp_path / "data")
        assert len(details["cluster_id"]) == 22
        socket.create_connection(broker.address, WAIT_S).close()
    assert not ready.exists()


def refused(tmp_path: Path, *flags: str, data: str = "data", port: int = 0) -> str:
    """Start where it has to fail; returns the one line that it prints."""
    with pytest.raises(NotReadyError) as caught:
        ServedBroker(tmp_path / data, *flags, port=port)
    assert caught.value.code == 3, caught.value.stderr
    assert "Traceback" not in caught.value.stderr
    lines = [line for line in caught.value.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, caught.value.stderr
    return lines[0]


def test_a_taken_port_gives_one_line_and_exit_code_3(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "first") as broker:
        line = refused(tmp_path, data="second", port=broker.address[1])
    assert str(broker.address[1]) in line


def test_a_directory_in_use_gives_one_line_and_exit_code_3(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data"):
        assert str(tmp_path / "data") in refused(tmp_path)


def test_a_directory_of_another_cluster_gives_one_line_and_exit_code_3(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data"):
        pass
    with ServedBroker(tmp_path / "other"):
        pass
    meta = tmp_path / "other/meta.properties"
    meta.write_text((tmp_path / "data/meta.properties").read_text())
    line = refused(tmp_path, data="other")
    assert "cluster" in line


def test_a_file_instead_of_a_directory_gives_one_line_and_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert str(tmp_path / "data") in refused(tmp_path)


def test_both_loopbacks_answer(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        port = broker.address[1]
        socket.create_connection(("127.0.0.1", port), WAIT_S).close()
        if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
            socket.create_connection(("::1", port), WAIT_S).close()
