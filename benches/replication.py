"""Replicas: three krusts beside three Kafkas 3.9.1, on one ZooKeeper and in one run.

    python benches/replication.py [--rounds 5] [--only PART,..] [--dir FOLDER]

The parts, all by default:

    produce   1 MiB batches, acks=all, replication factor 3: CPU of the three brokers a GB beside
              Kafka's, krust's own with factor 1, and what the kernel alone costs
              (`benches/replicas_floor.rs`)

The load is the `driver` program (`benches/driver`), which sends prebuilt bytes; each broker leads
one partition. The contenders take turns, each topic is deleted after its turn, and the first round
is not counted. The medians count, and of those the ratios. Beside each figure stands the
load of the machine (os.getloadavg), because other work on it changes what a byte costs.
BENCH_BIN is the folder of the programs (default target/release/examples). Needs Java; Maven brings
the jars. It is no test: it reports a missed figure and does not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches.figures import BINARIES, compare, load
from tests.cluster.brokers import Cluster
from tests.peers import kafka, zookeeper
from tests.peers.absent import AbsentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KAFKA = "3.9.1"
RUN_LIMIT_S = 120
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": zookeeper.LONG_MS,
    "num.partitions": 1,
    "min.insync.replicas": 2,
}

Sample = dict[str, float]


class Server(NamedTuple):
    """What the driver sends to: three brokers, or a floor program."""

    bootstrap: str
    pids: str
    raw: bool = False

    def drive(self, mode: str, *more: str) -> Sample:
        """One call of the driver; its report."""
        command = [str(BINARIES / "driver"), mode, "--bootstrap", self.bootstrap, *more]
        command += ["--pid", self.pids, "--topic", f"bench-{os.urandom(4).hex()}"]
        command += ["--raw"] if self.raw else []
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
        found: Sample = json.loads(done.stdout)
        return found


class Bench:
    """What runs during the parts that compare with Kafka."""

    def __init__(self, folder: Path, connect: str, rounds: int, stack: contextlib.ExitStack):
        self.folder, self.rounds = folder, rounds
        cluster = stack.enter_context(
            Cluster(folder / "krust", f"{connect}/krust", **SETTINGS, **{"krust.mode": "prod"})
        )
        pids = ",".join(str(each.pid) for each in cluster.brokers.values())
        self.krust = Server(cluster.bootstrap(), pids)
        self.kafka: Server | None = None
        try:
            peers = kafka.several(KAFKA, folder / "kafka", 3, f"{connect}/kafka", SETTINGS)
            places = stack.enter_context(peers)
            processes = (kafka.pid(folder / "kafka" / str(number)) for number in (1, 2, 3))
            self.kafka = Server(",".join(places), ",".join(map(str, processes)))
        except AbsentError as error:
            print(f"Kafka is left out: {error}", flush=True)

    def servers(self) -> dict[str, Server]:
        """krust and, if it is there, Kafka."""
        return {"krust": self.krust} | ({"Kafka": self.kafka} if self.kafka else {})

    def medians(self, turns: dict[str, Callable[[], Sample]]) -> dict[str, Sample]:
        """The median of each value over the rounds, the contenders taking turns."""
        taken: dict[str, list[Sample]] = {name: [] for name in turns}
        for turn in range(self.rounds + 1):
            for name, measure in turns.items():
                sample = measure()
                if turn > 0:
                    taken[name].append(sample)
        return {
            name: {
                key: statistics.median(sample[key] for sample in samples)
                for key, value in samples[0].items()
                if isinstance(value, int | float)
            }
            for name, samples in taken.items()
        }


@contextlib.contextmanager
def floor(folder: Path) -> Iterator[Server]:
    """The floor program for Produce."""
    folder.mkdir()
    command = [str(BINARIES / "replicas_floor"), "produce", "--dir", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        yield Server(f"127.0.0.1:{facts['port']}", str(facts["pid"]), raw=True)
        process.stdin.close()


def produce(bench: Bench) -> None:
    """CPU a GB of large batches."""
    size = ("--batch-bytes", "1048500", "--record-bytes", "1024", "--acks", "-1")
    size += ("--bytes", str(256 << 20))
    led = ("produce-leaders", *size)
    with floor(bench.folder / "floor") as kernel:
        turns: dict[str, Callable[[], Sample]] = {
            name: lambda at=at: at.drive(*led) for name, at in bench.servers().items()
        }
        turns["krust, factor 1"] = lambda: bench.krust.drive(*led, "--replicas", "1")
        turns["kernel alone"] = lambda: kernel.drive("produce", *size, "--in-flight", "1")
        found = bench.medians(turns)
    print(f"produce 1 MiB batches of 1 KiB, acks=all, {bench.rounds} rounds, {load()}")
    for name, sample in found.items():
        print(f"    {name:<16} {sample['cpu_s_gb']:6.2f} CPU-s/GB {sample['mb_s']:8.0f} MB/s")
    mine = found["krust"]["cpu_s_gb"]
    if "Kafka" in found:
        compare("CPU beside Kafka's", mine, found["Kafka"]["cpu_s_gb"], 0.35)
    compare("CPU beside factor 1", mine, found["krust, factor 1"]["cpu_s_gb"], 4)
    print(f"    beside the kernel alone: {mine / found['kernel alone']['cpu_s_gb']:.2f} x")


PARTS: dict[str, Callable[[Bench], None]] = {"produce": produce}


def main() -> None:
    """Run what was asked for; see the docstring of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help=f"parts: {', '.join(PARTS)}")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data")
    given = parser.parse_args()
    chosen = [name for name in given.only.split(",") if name] or list(PARTS)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
        for name in ("zk", "krust", "kafka"):
            (folder / name).mkdir()
        ensemble = stack.enter_context(zookeeper.running(folder / "zk"))
        bench = Bench(folder, ensemble.connect, given.rounds, stack)
        for name in chosen:
            PARTS[name](bench)


if __name__ == "__main__":
    main()
