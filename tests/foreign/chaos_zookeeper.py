"""Members of a group in ZooKeeper come and go while records flow: Apache's of 0.8.2.2 and krust's.

    python -m tests.foreign.chaos_zookeeper [--seconds 60] [--seed N] [--kinds krust] [--kill]

Every few seconds one joins or leaves, with `--kill` one dies too (krust's: its session ends). Then
the faults stop and the members read the rest. The program prints the records that were read more
than once or never. Exit code 1: a record was never read, or a partition had two owners at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

import krust
from krust.metadata.ensemble import Ensemble
from krust.metadata.zookeeper import end_session
from tests.foreign.test_zookeeper_consumer import (
    OFFSETS_FACTOR,
    Ours,
    Where,
    apaches,
    create,
    shared,
)
from tests.peers import zookeeper as peer
from tests.serving import ServedBroker

TOPIC, PARTITIONS, FEWEST, MOST = "flow", 12, 2, 4
A_SECOND, QUIET_S = 1000, 90.0


class Flow(threading.Thread):
    """Writes to every partition in turn until `ended`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.count = 0
        self._where = bootstrap

    def run(self) -> None:
        with krust.Producer(bootstrap_servers=self._where, linger_ms=1) as producer:
            for number in itertools.count():
                if self.ended.is_set():
                    return
                producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
                self.count = number + 1
                if number % (A_SECOND // 100) == 0:
                    self.ended.wait(0.01)


class Chaos:
    """One run."""

    def __init__(self, folder: Path, where: Where, given: argparse.Namespace) -> None:
        self.folder, self.where = folder, where
        self.kinds: list[str] = given.kinds.split(",")
        self.rng = random.Random(given.seed)
        self.all: list[Any] = []
        self.alive: list[Any] = []
        self.done: Counter[str] = Counter()
        self.kill = given.kill

    def read(self) -> Counter[tuple[int, int]]:
        """How often each record was read."""
        return Counter((one[1], one[2]) for each in self.all for one in [*each.records])

    def join(self) -> None:
        kind = self.rng.choice(self.kinds)
        made: Any
        if kind == "apache":
            made = apaches(self.folder, self.where, TOPIC, TOPIC, self.rng.randint(1, 3))
        else:
            made = Ours(self.where, TOPIC, {TOPIC: self.rng.randint(1, 3)})
        self.all.append(made)
        self.alive.append(made)
        self.done[f"{kind} joined"] += 1

    def leave(self) -> None:
        member = self.alive.pop(self.rng.randrange(len(self.alive)))
        member.stop()
        self.done[f"{_kind(member)} left"] += 1

    def die(self) -> None:
        member = self.rng.choice(self.alive)
        if isinstance(member, Ours):
            store = member._connector._tree.store
            end_session(Ensemble(self.where[0]), store.credentials)
        else:
            self.alive.remove(member)
            member.kill()
        self.done[f"{_kind(member)} died"] += 1

    def step(self) -> None:
        acts = [self.join] * (len(self.alive) < MOST) * 2
        acts += [self.leave] * (len(self.alive) > FEWEST)
        acts += [self.die] * (self.kill and len(self.alive) > FEWEST)
        self.rng.choice(acts or [self.leave])()


def _kind(member: object) -> str:
    return "krust" if isinstance(member, Ours) else "apache"


def play(folder: Path, where: Where, given: argparse.Namespace) -> bool:
    """One run; False: a check failed."""
    create(where[1], TOPIC, PARTITIONS)
    tree = KazooClient(where[0])
    tree.start()
    chaos, flow = Chaos(folder, where, given), Flow(where[1])
    until = time.monotonic() + given.seconds
    try:
        flow.start()
        for _ in range(FEWEST):
            chaos.join()
        while time.monotonic() < until:
            chaos.step()
            time.sleep(chaos.rng.uniform(0.2, 2))  # a random moment between two faults
        flow.ended.set()
        flow.join()
        quiet = time.monotonic() + QUIET_S
        right = False
        while time.monotonic() < quiet and not right:
            time.sleep(0.2)
            whole = len(chaos.read()) == flow.count
            right = whole and shared(tree, TOPIC, TOPIC, PARTITIONS)
    finally:
        flow.ended.set()
        for member in chaos.alive:
            member.stop()
        tree.stop()
        tree.close()
    read = chaos.read()
    summary = {"seed": given.seed, "records": flow.count, "never": flow.count - len(read)}
    again = sum(read.values()) - len(read)
    rest = {"again": again, "right": right, **chaos.done}
    print(json.dumps({**summary, **rest}))
    return right


def main() -> None:
    """One run, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kinds", default="apache,krust")
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="krust-chaos-"))
    with peer.running(folder / "zk") as ensemble:
        connect = f"{ensemble.connect}/k"
        flags = ("--zookeeper", connect, "--node-id", "7")
        with ServedBroker(folder / "data", *flags, options={OFFSETS_FACTOR: 1}) as broker:
            right = play(folder, (connect, broker.bootstrap), given)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
