"""Cleaning one log: krust's cleaner beside that of Apache Kafka 3.9.1, on the same files.

    python benches/compaction.py [--mb 512] [--value 100] [--codec lz4] [--dir FOLDER]

For values of 100 B and 1 KiB, plain and lz4: the `compaction` program writes a log of so many
megabytes of records in which each key is there twice; a Kafka is given a copy and cleans it, then
krust cleans the original. Both have one thread and 128 MiB for keys; where that does not hold all
keys, both go over the log several times. Figures are megabytes of the log for each CPU-second of
the cleaner's thread; Kafka's compilers run in threads of their own, which are told apart. Without a
Kafka (it needs Java and Maven) krust's figure stands alone. PEERS_BIN is the folder of the program
(default target/release/examples). It is no test: a missed target does not fail.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from tests.peers import kafka  # noqa: E402
from tests.peers.absent import AbsentError  # noqa: E402

BINARIES = Path(os.environ.get("PEERS_BIN", HERE.parent / "target/release/examples"))
PARTITION = "bench-0"
LOADS = ((100, "none"), (100, "lz4"), (1024, "none"), (1024, "lz4"))
WANTED = 3.0
WAIT_S = 3600
OURS = "partition.metadata"
"""The one file of its partition that Kafka keeps."""
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(128 << 20)}
SETTINGS |= {"min.cleanable.dirty.ratio": "0.001"}


def program(folder: Path, value: int, codec: str, *more: str) -> str:
    """Run the `compaction` program on the log in a folder; what it printed."""
    command = [BINARIES / "compaction", "--dir", folder, "--value", str(value), "--codec", codec]
    done = subprocess.run([*command, *more], check=True, capture_output=True, text=True)
    return done.stdout


def last_segment(partition: Path) -> int:
    return max(int(log.stem) for log in partition.glob("*.log"))


def clean_to(data: Path) -> int:
    """Up to where Kafka has cleaned the log."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return -1
    return int(dict(line.rsplit(" ", 1) for line in lines).get("bench 0", -1))


def thread_cpu_s(pid: int, *names: str) -> float:
    """CPU time of the threads whose names begin so."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith(names):
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def kafkas(folder: Path, log: Path) -> tuple[float, float, int]:
    """CPU-seconds of Kafka's cleaner and of its compilers, and bytes left."""
    off: dict[str, object] = {"log.cleaner.enable": "false"}
    with kafka.running("3.9.1", folder, off) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        asked = admin.create_topics([NewTopic("bench", 1, 1, config=SETTINGS)])
        asked["bench"].result(60)
    place = folder / "data" / PARTITION
    for file in place.iterdir():
        if file.name != OURS:
            file.unlink()
    for file in log.iterdir():
        if file.name != OURS:
            shutil.copy(file, place)
    goal = last_segment(place)
    on: dict[str, object] = {"log.cleaner.backoff.ms": 100}
    with kafka.running("3.9.1", folder, on):
        until = time.monotonic() + WAIT_S
        while clean_to(folder / "data") < goal:
            assert time.monotonic() < until, "Kafka does not come to an end"
            time.sleep(0.1)
        pid = kafka.pid(folder)
        cleaner = thread_cpu_s(pid, "kafka-log-clean")
        compilers = thread_cpu_s(pid, "C1 Compiler", "C2 Compiler")
    return cleaner, compilers, sum(file.stat().st_size for file in place.glob("*.log"))


def measured(parent: Path, load: tuple[int, str], mb: int) -> None:
    """Both clean one log."""
    value, codec = load
    with tempfile.TemporaryDirectory(dir=parent) as name:
        ours, theirs = Path(name) / "krust", Path(name) / "kafka"
        ours.mkdir()
        theirs.mkdir()
        program(ours, value, codec, "--mb", str(mb), "--write-only", "yes")
        try:
            cleaner, compilers, left = kafkas(theirs, ours / PARTITION)
        except AbsentError as error:
            print(f"no Kafka: {error}")
            cleaner = compilers = left = 0
        shutil.rmtree(theirs)
        result: dict[str, Any] = json.loads(program(ours, value, codec))
    mb, rate = result["mb"], result["mb_per_cpu_s"]
    line = f"{value} B, {codec}: {mb:.0f} MB to {result['mb_after']:.0f}: {rate:.0f} MB a CPU-s"
    line += f" in {result['rounds']} rounds"
    if cleaner:
        with_jit = mb / (cleaner + compilers)
        line += f"; Kafka to {left / 1e6:.0f}: {mb / cleaner:.0f} ({with_jit:.0f} with its"
        line += f" compilers): {rate * cleaner / mb:.1f} x, wanted {WANTED}"
    print(line, flush=True)


def main() -> None:
    """Measure every load, print each line as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--value", type=int, default=None, help="this size alone")
    parser.add_argument("--codec", default=None, help="this codec alone")
    options = parser.parse_args()
    for value, codec in LOADS:
        if options.value in (None, value) and options.codec in (None, codec):
            measured(options.dir, (value, codec), options.mb)


if __name__ == "__main__":
    main()
