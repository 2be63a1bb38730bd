"""The cost of a start, a stop, an idle broker and many partitions.

    python benches/start.py [--partitions 10000] [--topics 100] [--written] [--only partitions]
    python benches/start.py --only half-full [--partitions 10000] [--topics 100] [--interval 4096]

--written puts a record into each partition, so that each has a directory that a start opens.
--only half-full gives each partition half of a segment of 1 GiB with an index entry each so many
bytes; at 4096, the indexes of 10,000 partitions take 25 GiB of the disk.

Times are medians. A process is compared with `python -c 'import click'` of the same run, because no
command that uses click can be faster. Prints a table and ends.
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

from half_full import grow

import krust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 50
PROCESSES = 15
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
DESCRIPTORS = 4096
LARGE = 8000
"""descriptors for more than 10,000 partitions"""
HALF_FULL = 512 << 20
RECORD_MS = 1_700_000_000_000
LARGE_RECORD = b"v" * 10_000


def main() -> None:
    """Measure everything, print each line as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--interval", type=int, default=4096)
    parser.add_argument("--only", choices=["partitions", "half-full"])
    options = parser.parse_args()
    # As an installed wheel has it; a checkout may have been told not to keep bytecode.
    compileall.compile_dir(Path(krust.__file__).parent, quiet=1)
    if options.only is None:
        first_of_a_process("Broker()", "<= 40")
        first_of_a_process("Cluster(3)", "<= 60")
        embedded()
        processes()
    if options.only == "half-full":
        half_full(options.partitions, options.topics, options.interval)
        return
    many_partitions(options.partitions, options.topics, written=options.written)


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


def first_of_a_process(what: str, bound: str) -> None:
    """The first start of a new process, with its imports and without the interpreter's start."""
    code = f"import time; t = time.perf_counter(); import krust; b = krust.{what}; "
    code += "print(time.perf_counter() - t); b.close()"
    times = []
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
        times.append(float(done.stdout))
    show(f"first {what} of a process", f"{milliseconds(times)} ms", bound)


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


def many_partitions(count: int, topics: int, *, written: bool) -> None:
    """Many partitions in one broker that may open few files."""
    small = count <= 10_000
    limit = DESCRIPTORS if small else LARGE
    create_s, start_s, most = (15, 5, 150) if small else (60, 60, count * 10 // 1024)
    names = [f"t{number}" for number in range(topics)]
    with tempfile.TemporaryDirectory() as folder:
        with serving(f"{folder}/data", limit) as (process, bootstrap):
            begin = time.perf_counter()
            wanted = [f"{name}:{count // topics}" for name in names]
            run("-m", "krust", "-b", bootstrap, "--timeout", "300s", "topic", "create", *wanted)
            created = time.perf_counter() - begin
            show(f"{count} partitions created", f"{created:.1f} s", f"<= {create_s}")
            if written:
                begin = time.perf_counter()
                fill(bootstrap, names, count // topics)
                show("a record in each", f"{time.perf_counter() - begin:.1f} s", "-")
            held("with them", process.pid, most, limit)
            begin = time.perf_counter()
        show("orderly stop", f"{time.perf_counter() - begin:.1f} s", f"<= {start_s}")
        begin = time.perf_counter()
        with serving(f"{folder}/data", limit) as (process, bootstrap):
            again = time.perf_counter() - begin
            show("clean restart with them", f"{again:.1f} s", f"<= {start_s}")
            held("after it", process.pid, most, limit)
            process.kill()
        begin = time.perf_counter()
        with serving(f"{folder}/data", limit) as (process, bootstrap):
            again = time.perf_counter() - begin
            show("restart after kill -9", f"{again:.1f} s", f"<= {start_s}")
            held("after it", process.pid, most, limit)


def half_full(count: int, topics: int, interval: int) -> None:
    """Many partitions whose active segments are half full."""
    names = [f"t{number}" for number in range(topics)]
    with tempfile.TemporaryDirectory() as folder:
        with serving(f"{folder}/data", DESCRIPTORS) as (_, bootstrap):
            wanted = [f"{name}:{count // topics}" for name in names]
            run("-m", "krust", "-b", bootstrap, "--timeout", "300s", "topic", "create", *wanted)
            fill(bootstrap, names, count // topics)
        grow(Path(folder) / "data", HALF_FULL, interval)
        begin = time.perf_counter()
        with serving(f"{folder}/data", DESCRIPTORS) as (process, bootstrap):
            show("clean restart, half full", f"{time.perf_counter() - begin:.1f} s", "<= 5")
            held("after it", process.pid, 300, DESCRIPTORS)
            begin = time.perf_counter()
            fill(bootstrap, names, count // topics, LARGE_RECORD)
            show("a record of 10 kB in each", f"{time.perf_counter() - begin:.1f} s", "-")
            held("with an append to each", process.pid, 300, DESCRIPTORS)


def held(when: str, pid: int, most: int, limit: int) -> None:
    """The memory and descriptors of a broker."""
    show(f"memory {when}", f"{memory(pid)} MB", f"<= {most}")
    show(
        f"descriptors {when}", f"{sum(1 for _ in Path(f'/proc/{pid}/fd').iterdir())}", f"<= {limit}"
    )


def fill(bootstrap: str, topics: list[str], partitions: int, value: bytes = b"v") -> None:
    """Write a record into each partition."""
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            for partition in range(partitions):
                producer.produce(topic, value, partition=partition, timestamp_ms=RECORD_MS)


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
