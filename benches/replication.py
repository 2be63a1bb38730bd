"""Replicas: three krusts beside three Kafkas 3.9.1, on one ZooKeeper and in one run.

    python benches/replication.py [--rounds 5] [--only PART,..] [--dir FOLDER]

The parts, all by default:

    catch-up  a follower that was away copies what it lacks: its rate beside that of the kernel
              alone (sendfile, read, write), and the p99 of a producer meanwhile beside the p99
              while the follower is away
    produce   1 MiB batches, acks=all, replication factor 3: CPU of the three brokers a GB beside
              Kafka's, krust's own with factor 1, and what the kernel alone costs
              (`benches/replicas_floor.rs`)
    small     records of 100 B, one a request, 32 in flight on one partition: rate beside Kafka's
    latency   the same, one in flight: p99 beside Kafka's
    killed, stopped, many, rolling    krust alone, see `benches/failover.py`: a leader is killed,
              a leader is stopped in order, 3,000 partitions with three replicas, rolling restarts

The load is the `driver` program (`benches/driver`), which sends prebuilt bytes; each broker leads
one partition. The contenders take turns, each topic is deleted after its turn, and the first round
is not counted. The medians count, and of those the ratios. Beside each figure stands the load of
the machine (os.getloadavg), because other work on it changes what a byte costs.
BENCH_BIN is the folder of the programs (default target/release/examples). Needs Java; Maven brings
the jars. It is no test: it reports a missed figure and does not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka.admin import AdminClient

from benches import failover
from benches.figures import BINARIES, compare, load
from tests.cluster.brokers import Cluster
from tests.peers import kafka, zookeeper
from tests.peers.absent import AbsentError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KAFKA = "3.9.1"
RUN_LIMIT_S = 120
CATCH_UP_BYTES = 256 << 20
CATCH_UP_ROUNDS = 7
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

    def drive(self, mode: str, *more: str, topic: str = "") -> Sample:
        """One call of the driver; its report."""
        topic = topic or f"bench-{os.urandom(4).hex()}"
        command = [str(BINARIES / "driver"), mode, "--bootstrap", self.bootstrap, *more]
        command += ["--pid", self.pids, "--topic", topic]
        command += ["--raw"] if self.raw else []
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
        found: Sample = json.loads(done.stdout)
        return found


class Bench:
    """What runs during the parts that compare; Kafka runs from the first part on that needs it."""

    def __init__(self, folder: Path, connect: str, rounds: int, stack: contextlib.ExitStack):
        self.folder, self.rounds = folder, rounds
        self._connect, self._stack = connect, stack
        options = {**SETTINGS, "krust.mode": "prod"}
        self.cluster = stack.enter_context(
            Cluster(folder / "krust", f"{connect}/krust", replicas=3, **options)
        )

    def krust(self) -> Server:
        """The krusts that run."""
        pids = ",".join(str(each.pid) for each in self.cluster.brokers.values())
        return Server(self.cluster.bootstrap(), pids)

    @functools.cached_property
    def kafka(self) -> Server | None:
        """Three Kafkas; None: there are none here."""
        folder = self.folder / "kafka"
        peers = kafka.several(KAFKA, folder, 3, f"{self._connect}/kafka", SETTINGS)
        try:
            places = self._stack.enter_context(peers)
        except AbsentError as error:
            print(f"Kafka is left out: {error}", flush=True)
            return None
        processes = (str(kafka.pid(folder / str(number))) for number in (1, 2, 3))
        return Server(",".join(places), ",".join(processes))

    def servers(self) -> dict[str, Server]:
        """krust and, if it is there, Kafka."""
        return {"krust": self.krust()} | ({"Kafka": self.kafka} if self.kafka else {})

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
                key: median(sample[key] for sample in samples)
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
        details = json.loads(process.stdout.readline())
        yield Server(f"127.0.0.1:{details['port']}", str(details["pid"]), raw=True)
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
        turns["krust, factor 1"] = lambda: bench.krust().drive(*led, "--replicas", "1")
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


def small(bench: Bench) -> None:
    """The rate of small records."""
    size = ("--batch-bytes", "0", "--record-bytes", "100", "--acks", "-1", "--partitions", "1")
    turns: dict[str, Callable[[], Sample]] = {
        name: lambda at=at: at.drive(
            "produce-leaders", *size, "--in-flight", "32", "--requests", "30000"
        )
        for name, at in bench.servers().items()
    }
    found = bench.medians(turns)
    print(f"one record a request, 32 in flight, acks=all, {bench.rounds} rounds, {load()}")
    for name, sample in found.items():
        rate, cost = sample["requests_s"], sample["cpu_us_request"]
        print(f"    {name:<16} {rate:8.0f}/s {cost:8.1f} CPU-us each")
    if "Kafka" in found:
        rates = (found[name]["requests_s"] for name in ("krust", "Kafka"))
        compare("rate beside Kafka's", *rates, wanted=8, at_least=True)


def latency(bench: Bench) -> None:
    """The latency of single records."""
    size = ("--batch-bytes", "0", "--record-bytes", "100", "--acks", "-1", "--partitions", "1")
    turns: dict[str, Callable[[], Sample]] = {
        name: lambda at=at: at.drive(
            "produce-leaders", *size, "--in-flight", "1", "--requests", "3000"
        )
        for name, at in bench.servers().items()
    }
    found = bench.medians(turns)
    print(f"one record a request, one in flight, acks=all, {bench.rounds} rounds, {load()}")
    for name, sample in found.items():
        print(f"    {name:<16} p50 {sample['p50_us']:8.0f} us  p99 {sample['p99_us']:8.0f} us")
    if "Kafka" in found:
        compare("p99 beside Kafka's", found["krust"]["p99_us"], found["Kafka"]["p99_us"], 0.5)


def catch_up(bench: Bench) -> None:
    """A follower that was away, beside the kernel alone, and a producer meanwhile."""
    rates, floors, alone, beside = [], [], [], []
    for turn in range(min(bench.rounds, CATCH_UP_ROUNDS)):
        away = Away(bench, f"away-{turn}")
        away.fill()
        rates.append(away.comes_back())
        floors.append(catch_up_floor(bench.folder))
        away.fill()
        alone += [away.produce()["p99_us"] for _ in range(3)]
        os.sync()
        away.comes_back(lambda away=away: beside.append(away.produce()["p99_us"]))
        away.delete()
    print(f"a follower lacks {CATCH_UP_BYTES >> 20} MiB, {len(rates)} rounds, {load()}")
    for name, found in (("follower", rates), ("kernel alone", floors)):
        print(f"    {name:<16} {', '.join(f'{one / 1e6:.0f}' for one in found)} MB/s")
    for name, found in (("alone", alone), ("beside it", beside)):
        print(f"    producer {name:<10} p99 {', '.join(f'{one:.0f}' for one in found)} us")
    compare("rate beside the kernel alone", *map(median, (rates, floors)), 0.8, at_least=True)
    compare("p99 of a producer beside it", *map(median, (beside, alone)), 2)


class Away:
    """A topic of one partition, led by broker 1, whose replica on broker 3 is away at times."""

    def __init__(self, bench: Bench, topic: str) -> None:
        self._bench, self._topic = bench, topic
        self._drive(bench.krust(), "--batch-bytes", "0", "--requests", "1")

    def _drive(self, at: Server, *more: str) -> Sample:
        size = ("--partitions", "1", "--acks", "-1", "--keep", *more)
        return at.drive("produce-leaders", *size, topic=self._topic)

    def fill(self) -> None:
        """Stop broker 3, and write what it will lack. No page waits for the disk afterwards: the
        system slows who writes while too many do.
        """
        self._bench.cluster.stop(3)
        size = ("--batch-bytes", "1048500", "--record-bytes", "1024")
        self._drive(self._bench.krust(), *size, "--bytes", str(CATCH_UP_BYTES))
        os.sync()

    def produce(self) -> Sample:
        """Single records to the same partition, one in flight."""
        at = self._bench.krust()
        return self._drive(at, "--batch-bytes", "0", "--in-flight", "1", "--requests", "2000")

    def _size(self, number: int) -> int:
        files = (self._bench.cluster.folder(number) / f"{self._topic}-0").glob("*.log")
        return sum(path.stat().st_size for path in files)

    def comes_back(self, meanwhile: Callable[[], object] = str) -> float:
        """Start broker 3; the bytes a second at which its log grows to that of broker 1.

        meanwhile  is called when it has begun to grow
        """
        before, whole = self._size(3), self._size(1)
        starts = threading.Thread(target=self._bench.cluster.start_again, args=(3,))
        starts.start()
        while self._size(3) == before:
            time.sleep(0.0005)
        first, began = self._size(3), time.perf_counter()
        meanwhile()
        while self._size(3) < whole:
            time.sleep(0.0005)
        took = time.perf_counter() - began
        starts.join()
        cluster = self._bench.cluster
        until(lambda: all(cluster.in_sync(self._topic, n) == [[1, 2, 3]] for n in (1, 2, 3)))
        return (whole - first) / took

    def delete(self) -> None:
        """Free its pages."""
        admin = AdminClient({"bootstrap.servers": self._bench.cluster.bootstrap(), "log_level": 0})
        admin.delete_topics([self._topic])[self._topic].result(60)


def catch_up_floor(folder: Path) -> float:
    """The bytes a second of the same by the kernel alone."""
    with tempfile.TemporaryDirectory(dir=folder) as files:
        command = [str(BINARIES / "replicas_floor"), "catch-up", "--dir", files]
        command += ["--bytes", str(CATCH_UP_BYTES)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return CATCH_UP_BYTES / float(json.loads(done.stdout)["seconds"])


PARTS: dict[str, Callable[[Bench], None]] = {
    "catch-up": catch_up,
    "produce": produce,
    "small": small,
    "latency": latency,
}


def main() -> None:
    """Run what was asked for; see the docstring of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    names = [*PARTS, *failover.PARTS]
    parser.add_argument("--only", default="", help=f"parts: {', '.join(names)}")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data")
    given = parser.parse_args()
    chosen = [name for name in given.only.split(",") if name] or names
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.dir)))
        for name in ("zk", "krust", "kafka"):
            (folder / name).mkdir()
        ensemble = stack.enter_context(zookeeper.running(folder / "zk"))
        with contextlib.ExitStack() as compared:
            beside = [name for name in chosen if name in PARTS]
            if beside:
                bench = Bench(folder, ensemble.connect, given.rounds, compared)
            for name in beside:
                PARTS[name](bench)
        for name in chosen:
            if name in failover.PARTS:
                failover.PARTS[name](folder, ensemble.connect, given.rounds)


if __name__ == "__main__":
    main()
