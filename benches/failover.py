"""The parts of `benches/replication.py` in which krust's brokers stop, die and come back.

Each part has three brokers of its own on the ZooKeeper of the run, and prints its figures. Records
are written by the driver's `gaps` mode: a thread a partition sends one record after the other and
asks for the leader again at once, so that a gap is the brokers' and not a client's pause.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benches.figures import BINARIES, absolute, load
from tests.cluster.brokers import Cluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SESSION_MS = 3000
PARTITIONS = 6
BEFORE_S = 1.5
"""how long the load runs undisturbed"""
TOPICS, EACH = 30, 100
IDLE_S = 10
RESTARTS = 5
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@contextmanager
def three(folder: Path, connect: str, name: str, **settings: object) -> Iterator[Cluster]:
    """Three brokers, whose topics have a replica on each."""
    (folder / name).mkdir()
    options = {"zookeeper.session.timeout.ms": SESSION_MS, "min.insync.replicas": 2}
    options |= {"krust.mode": "prod", **settings}
    with Cluster(folder / name, f"{connect}/{name}", replicas=3, **options) as cluster:
        yield cluster


def in_sync(cluster: Cluster) -> int:
    """How many partitions have three replicas in sync, by the broker that knows the fewest."""
    views = (cluster.view(number).get("topics", ()) for number in cluster.brokers)
    parts = ([one for topic in topics for one in topic["partitions"]] for topics in views)
    return min(sum(len(one["isr_nodes"]) == 3 for one in view) for view in parts)


def led_by(cluster: Cluster, number: int, through: int) -> int:
    """How many partitions a broker leads, as another broker says."""
    topics = cluster.view(through).get("topics", ())
    return sum(one["leader_id"] == number for topic in topics for one in topic["partitions"])


class GapsLoad:
    """The driver's `gaps` mode, as a process beside a fault."""

    def __init__(self, cluster: Cluster, seconds: int) -> None:
        command = [str(BINARIES / "driver"), "gaps", "--bootstrap", cluster.bootstrap()]
        command += ["--topic", "written", "--keep", "--partitions", str(PARTITIONS)]
        command += ["--acks", "-1", "--every-ms", "5", "--seconds", str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(BEFORE_S)

    def longest_ms(self) -> float:
        """Wait for its end: how long a partition acknowledged nothing, at most."""
        output, _ = self._process.communicate(timeout=120)
        assert self._process.returncode == 0
        return float(json.loads(output)["longest_gap_ms"])


def killed(folder: Path, connect: str, rounds: int) -> None:
    """The longest gap when a leader is killed, which is the controller in every other round."""
    gaps = []
    with three(folder, connect, "killed") as cluster:
        cluster.create("written", PARTITIONS)
        for turn in range(rounds):
            held = cluster.controller
            victim = held if turn % 2 else next(n for n in cluster.brokers if n != held)
            written = GapsLoad(cluster, 8)
            cluster.kill(victim)
            gaps.append(written.longest_ms())
            cluster.start_again(victim)
            until(lambda: in_sync(cluster) >= PARTITIONS)
            elect(cluster)
    print(f"a leader is killed, {rounds} times, session of {SESSION_MS / 1000:g} s, {load()}")
    print(f"    longest gap of a partition by round: {', '.join(f'{g:.0f} ms' for g in gaps)}")
    absolute("longest gap", max(gaps), SESSION_MS + 1000, "ms")


def stopped(folder: Path, connect: str, rounds: int) -> None:
    """The longest gap when each broker in turn is stopped in order and started again."""
    gaps = []
    with three(folder, connect, "stopped") as cluster:
        cluster.create("written", PARTITIONS)
        for turn in range(rounds):
            number = turn % 3 + 1
            written = GapsLoad(cluster, 4)
            cluster.stop(number)
            gaps.append(written.longest_ms())
            cluster.start_again(number)
            until(lambda: in_sync(cluster) >= PARTITIONS)
            elect(cluster)
    print(f"a leader is stopped in order, {rounds} times, {load()}")
    print(f"    longest gap of a partition by round: {', '.join(f'{g:.0f} ms' for g in gaps)}")
    absolute("longest gap", max(gaps), 200, "ms")


def elect(cluster: Cluster) -> None:
    """Have each broker lead its share again."""
    until(lambda: _elected(cluster))


def _elected(cluster: Cluster) -> bool:
    from confluent_kafka import ElectionType

    from krust._krust import Client

    client = Client(cluster.bootstrap(cluster.controller), {"request.timeout.ms": 30_000})
    asked = {"election_type": int(ElectionType.PREFERRED.value), "topic_partitions": None}
    answer = client.request("ElectLeaders", asked, broker=cluster.controller)
    return bool(answer["error_code"] == 0)


def many(folder: Path, connect: str, _rounds: int) -> None:
    """3,000 partitions with three replicas: at rest, and a broker that stops and comes back."""
    total = TOPICS * EACH
    with three(folder, connect, "many") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})
        made = admin.create_topics([NewTopic(f"t{n}", EACH, 3) for n in range(TOPICS)])
        for each in made.values():
            each.result(60)
        until(lambda: in_sync(cluster) == total)
        busy = idle(cluster)
        resident = [each.resident_bytes() / 1e6 for each in cluster.brokers.values()]
        led = led_by(cluster, 3, through=1)
        began = time.monotonic()
        stops = threading.Thread(target=cluster.stop, args=(3,))
        stops.start()
        until(lambda: led_by(cluster, 3, through=1) == 0)
        moved = time.monotonic() - began
        stops.join()
        ended = time.monotonic() - began
        began = time.monotonic()
        cluster.start_again(3)
        started = time.monotonic() - began
        until(lambda: in_sync(cluster) == total)
        whole = time.monotonic() - began
    print(f"3,000 partitions with three replicas, {load()}")
    absolute("each broker at rest, the busiest", max(busy), 5, "% of a core")
    absolute("its resident memory, the largest", max(resident), 150, "MB")
    absolute(f"a clean stop moves {led} leaders (it ends after {ended:.2f} s)", moved, 3, "s")
    absolute(f"started again (ready after {started:.2f} s), all in sync", whole, 10, "s")


def idle(cluster: Cluster) -> list[float]:
    """The share of a core of each broker at rest, in percent."""

    def used_s(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    pids = [each.pid for each in cluster.brokers.values()]
    before = [used_s(pid) for pid in pids]
    time.sleep(IDLE_S)  # the interval that is measured
    return [(used_s(pid) - so_far) / IDLE_S * 100 for pid, so_far in zip(pids, before, strict=True)]


def rolling(folder: Path, connect: str, _rounds: int) -> None:
    """Restarts of all three brokers, one after the other, under a producer with defaults."""
    failed: list[str] = []
    acknowledged = 0
    ends = threading.Event()

    def delivered(error: Any, _message: Any) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failed.append(str(error))

    with three(folder, connect, "rolling") as cluster:
        cluster.create("written", PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})

        def write() -> None:
            while not ends.is_set():
                for _ in range(100):
                    producer.produce("written", b"x" * 100, on_delivery=delivered)
                producer.poll(0.02)
            producer.flush(120)

        thread = threading.Thread(target=write)
        thread.start()
        took = [restart_all(cluster) for _ in range(RESTARTS)]
        ends.set()
        thread.join()
        left = len(producer)
    print(f"{RESTARTS} rolling restarts under confluent-kafka's producer with defaults, {load()}")
    print(f"    {acknowledged:,} records; the slowest restart of all three {max(took):.1f} s")
    absolute("deliveries that failed", len(failed) + left, 0, "")


def restart_all(cluster: Cluster) -> float:
    """Restart each broker once all partitions are in sync; the seconds."""
    began = time.monotonic()
    for number in (1, 2, 3):
        cluster.stop(number)
        cluster.start_again(number)
        until(lambda: in_sync(cluster) >= PARTITIONS)
    return time.monotonic() - began


PARTS: dict[str, Callable[[Path, str, int], None]] = {
    "killed": killed,
    "stopped": stopped,
    "many": many,
    "rolling": rolling,
}
