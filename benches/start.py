"""What it costs to start, to stop, to stand idle, and to hold 10,000 partitions.

    python benches/start.py [--partitions 10000]

Times are medians; a process is compared with `python -c 'import click'` of the same run, because
nothing that speaks click can be faster. Prints a table and ends.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import krust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 50
PROCESSES = 15
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
DESCRIPTORS = 4096


def main() -> None:
    """Measure everything, print each line as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    # As an installed wheel has it; a checkout may have been told not to keep bytecode.
    compileall.compile_dir(Path(krust.__file__).parent, quiet=1)
    embedded()
    processes()
    many_partitions(options.partitions)


def embedded() -> None:
    """A broker in this process: to its first answer, and to its end."""
    starts, stops = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        broker = krust.Broker()
        answer(broker.bootstrap)
        ready = time.perf_counter()
        broker.stop()
        starts.append(ready - begin)
        stops.append(time.perf_counter() - ready)
    show("Broker() to first ApiVersions answer", f"{milliseconds(starts)} ms", "<= 5")
    show("Broker.stop()", f"{milliseconds(stops)} ms", "<= 10")


def processes() -> None:
    """Commands, beside the interpreter with click."""
    click = timed(lambda: run("-c", "import click"))
    show("python -c 'import click'", f"{click} ms", "the floor")
    ready = []
    for _ in range(PROCESSES):
        begin = time.perf_counter()
        with serving() as (process, bootstrap):
            ready.append(time.perf_counter() - begin)
            answer(bootstrap)
            resident = memory(process.pid)
    show("krust serve to ready", f"{milliseconds(ready)} ms", f"<= {click + 40:.1f}")
    show("its memory, idle", f"{resident} MB", "<= 25")
    with serving() as (_, bootstrap):
        listing = timed(lambda: run("-m", "krust", "-b", bootstrap, "topic", "list"))
    show("krust topic list", f"{listing} ms", f"<= {click + 40:.1f}")


def many_partitions(count: int) -> None:
    """Many partitions in one broker that may open few files."""
    with tempfile.TemporaryDirectory() as folder:
        with serving(f"{folder}/data", DESCRIPTORS) as (process, bootstrap):
            begin = time.perf_counter()
            topics = [f"t{number}:100" for number in range(count // 100)]
            run("-m", "krust", "-b", bootstrap, "topic", "create", *topics)
            created = time.perf_counter() - begin
            resident = memory(process.pid)
        show(f"{count} partitions created", f"{created:.1f} s", "<= 15")
        show("memory with them", f"{resident} MB", "<= 150")
        begin = time.perf_counter()
        with serving(f"{folder}/data", DESCRIPTORS) as (process, bootstrap):
            again = time.perf_counter() - begin
            resident = memory(process.pid)
        show("clean restart with them", f"{again:.1f} s", "<= 5")
        show("memory after it", f"{resident} MB", "<= 150")


@contextlib.contextmanager
def serving(
    data: str | None = None, descriptors: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`krust serve` on a free port; its process and address."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        command = [sys.executable, "-m", "krust", "serve", "--port", "0"]
        command += ["--data-dir", data or f"{folder}/data", "--ready-file", str(ready)]
        if descriptors:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError("krust serve ended")
            time.sleep(0.0005)
        try:
            yield process, json.loads(ready.read_text())["bootstrap"]
        finally:
            os.kill(process.pid, signal.SIGTERM)
            process.wait()


def answer(bootstrap: str) -> None:
    """Ask for ApiVersions and wait for the whole answer."""
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host.strip("[]"), int(port))) as peer:
        peer.sendall(API_VERSIONS)
        with peer.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)


def run(*arguments: str) -> None:
    """A command of this interpreter, to its end."""
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def timed(work: Callable[[], None]) -> float:
    """The median of its time, in milliseconds."""
    times = []
    for _ in range(PROCESSES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return milliseconds(times)


def milliseconds(times: list[float]) -> float:
    """The median, in milliseconds."""
    return round(statistics.median(times) * 1000, 1)


def memory(pid: int) -> float:
    """Resident memory of a process, in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
    return round(int(kilobytes) / 1024, 1)


def show(what: str, figure: str, bound: str) -> None:
    """One line of the table."""
    print(f"{what:<42}{figure:>14}   {bound}", flush=True)


if __name__ == "__main__":
    main()
