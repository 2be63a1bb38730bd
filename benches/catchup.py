"""Producers beside a reader of cold data: krust and Apache Kafka 3.9.1 in one run.

    python benches/catchup.py [--rounds 5] [--seconds 1] [--cold-mb 1024] [--dir FOLDER]
        [--before CORE]

A topic of so many megabytes is written once. In each round each broker in turn serves producers
alone, then again while one connection reads that topic from its first record on: its files are
synced and the system made to forget them (DONTNEED; `mincore` says how much is left, more than 2 %
is an error), and what the broker had from the disk meanwhile is counted. Two loads: 8 connections
with one request of 1 KiB each (throughput, and the latency that others feel), and batches of 64 KiB
to 4 partitions. A round whose reader came to its end before the producers did is left out.

Medians of the rounds; the ratio is that of the medians with and without the reader. krust is the
`core` program; `--before` is another build of it, which takes its turns too. PEERS_BIN is the
folder of the programs (default target/release/examples). It is no test: a missed target does not
fail.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tests.peers import kafka  # noqa: E402
from tests.peers.absent import AbsentError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARIES = Path(os.environ.get("PEERS_BIN", HERE.parent / "target/release/examples"))
COLD = ("--topic", "cold", "--keep", "--partitions", "1", "--batch-bytes", str(1 << 18))
BATCH = 64 << 10
LOADS = {
    "8 producers of 1 KiB": ("produce-crowd", "--connections", "8", "--record-bytes", "1024"),
    "batches of 64 KiB": ("produce", "--partitions", "4", "--batch-bytes", str(BATCH)),
}
FIRST_REQUESTS = 1500
FETCH_BYTES = 1 << 20
WANTED = 0.7
WARM_PART = 0.02
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


class Broker(NamedTuple):
    """A running broker, and the folder of its cold files."""

    name: str
    pid: int
    bootstrap: str
    cold: Path

    def command(self, mode: str, *more: str) -> list[str]:
        """A call of the driver."""
        command = [str(BINARIES / "driver"), mode, "--bootstrap", self.bootstrap]
        return [*command, "--pid", str(self.pid), *more]

    def read_bytes(self) -> int:
        """The bytes that it read from the disk so far."""
        lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])


@contextlib.contextmanager
def core(name: str, program: Path, folder: Path) -> Iterator[Broker]:
    """krust's core."""
    folder.mkdir()
    process = subprocess.Popen(
        [program, "--dir", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = json.loads(process.stdout.readline())["port"]
        yield Broker(name, process.pid, f"127.0.0.1:{port}", folder / "cold-0")
    finally:
        process.stdin.close()
        process.wait()


@contextlib.contextmanager
def apache(folder: Path) -> Iterator[Broker]:
    """Apache Kafka."""
    with kafka.running("3.9.1", folder, {}) as bootstrap:
        yield Broker("kafka", kafka.pid(folder), bootstrap, folder / "data" / "cold-0")


def drive(command: list[str]) -> dict[str, Any]:
    """The driver's report of its run."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def forget(folder: Path) -> None:
    """Drop the files from the page cache."""
    warm = pages = 0
    for path in folder.glob("*.log"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            size = os.fstat(file).st_size
            if size:
                warm += resident(file, size)
                pages += -(-size // PAGE)
        finally:
            os.close(file)
    assert warm <= pages * WARM_PART, f"{warm} of {pages} pages are still in memory"


def resident(file: int, size: int) -> int:
    """How many pages of a file are in memory."""
    place = mmap.mmap(file, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    try:
        pages = (ctypes.c_ubyte * -(-size // PAGE))()
        first = ctypes.c_char.from_buffer(place)
        failed = LIBC.mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages
        )
        del first
        assert not failed, os.strerror(ctypes.get_errno())
        return sum(page & 1 for page in pages)
    finally:
        place.close()


def beside(it: Broker, cold: tuple[str, ...], load: list[str]) -> dict[str, Any] | None:
    """The load while a reader catches up; `None` if the reader ended first."""
    forget(it.cold)
    before, began = it.read_bytes(), time.perf_counter()
    fetch = ("--fetch-bytes", str(FETCH_BYTES))
    reader = subprocess.Popen(it.command("fetch-old", *cold, *fetch), stdout=subprocess.DEVNULL)
    try:
        while it.read_bytes() == before and reader.poll() is None:
            time.sleep(0.001)
        found = drive(load)
        if reader.poll() is not None:
            return None
        took = time.perf_counter() - began
        return {**found, "cold_mb_s": (it.read_bytes() - before) / 1e6 / took}
    finally:
        reader.kill()
        reader.wait()


def sized(load: tuple[str, ...], requests: float) -> tuple[str, ...]:
    """The load with so many requests."""
    if load[0] == "produce":
        return (*load, "--bytes", str(int(requests) * BATCH))
    return (*load, "--requests", str(int(requests)))


def measured(brokers: list[Broker], cold_mb: int, rounds: int, seconds: float) -> None:
    """Fill, then rounds; prints each load as it is known."""
    cold = (*COLD, "--bytes", str(cold_mb << 20))
    for it in brokers:
        drive(it.command("produce", *cold))
    for name, load in LOADS.items():
        taken: dict[tuple[str, bool], list[dict[str, Any]]] = {}
        calls: dict[str, list[str]] = {}
        for it in brokers:  # also warms files, caches and compilers
            first = drive(it.command(*sized(load, FIRST_REQUESTS)))
            calls[it.name] = it.command(*sized(load, first["requests_s"] * seconds))
        for _ in range(rounds):
            for it in brokers:
                alone, both = drive(calls[it.name]), beside(it, cold, calls[it.name])
                if both:
                    taken.setdefault((it.name, False), []).append(alone)
                    taken.setdefault((it.name, True), []).append(both)
        for it in brokers:
            alone_all, both_all = (taken.get((it.name, key), []) for key in (False, True))
            print(line(name, it.name, alone_all, both_all), flush=True)


def line(load: str, name: str, alone: list[dict[str, Any]], both: list[dict[str, Any]]) -> str:
    """The result of a load on a broker."""
    if not both:
        return f"{load}, {name}: no round whose reader lasted: more --cold-mb"

    def of(found: list[dict[str, Any]], key: str) -> float:
        return statistics.median(one[key] for one in found)

    ratio = of(both, "requests_s") / of(alone, "requests_s")
    each = sorted(
        two["requests_s"] / one["requests_s"] for one, two in zip(alone, both, strict=True)
    )
    return (
        f"{load}, {name}: {of(alone, 'requests_s'):,.0f}/s alone, {of(both, 'requests_s'):,.0f}/s"
        f" beside a reader of {of(both, 'cold_mb_s'):.0f} MB/s from the disk: {ratio:.2f} (rounds"
        f" {each[0]:.2f}-{each[-1]:.2f}, wanted {WANTED}); p50 {of(alone, 'p50_us') / 1e3:.2f} and"
        f" {of(both, 'p50_us') / 1e3:.2f} ms, p99 {of(alone, 'p99_us') / 1e3:.2f} and"
        f" {of(both, 'p99_us') / 1e3:.2f} ms"
    )


def main() -> None:
    """Start, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold-mb", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=1.0, help="about so long is a round")
    parser.add_argument("--dir", type=Path, help="where the logs lie (default: a temporary place)")
    parser.add_argument("--before", type=Path, help="another core program, to compare")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
        brokers = [stack.enter_context(core("krust", BINARIES / "core", folder / "krust"))]
        if given.before:
            brokers.append(stack.enter_context(core("before", given.before, folder / "before")))
        try:
            (folder / "kafka").mkdir()
            brokers.append(stack.enter_context(apache(folder / "kafka")))
        except AbsentError as error:
            print(f"kafka: left out, {error}")
        measured(brokers, given.cold_mb, given.rounds, given.seconds)


if __name__ == "__main__":
    main()
