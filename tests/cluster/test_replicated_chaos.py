"""Rounds of faults against three brokers with replicated topics while three client libraries write.

Replication factor 3, min.insync.replicas 2, acks=all, idempotent producers. In each round brokers
are killed, stopped or suspended, ZooKeeper is gone, or links between them are cut; then all of them
run again and every replica comes back in sync. At the end each acknowledged record is at its
offset, none is there twice, the offsets are dense, and the three replicas have the same bytes.
KRUST_REPLICATED_ROUNDS: how many rounds (10 of processes, half as many of links).
KRUST_REPLICATED_SEED: which. KRUST_REPLICATED_BURST: how many records a writer sends at a time.
A failure names its seed and its faults.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.brokers import Cluster
from tests.cluster.network import Network, missing, namespaces
from tests.cluster.replicated import WRITERS, Ledger
from tests.peers import zookeeper as peer
from tests.waiting import until

pytestmark = pytest.mark.java

SESSION_MS = 1500
PARTITIONS = 3
BROKERS = (1, 2, 3)
ROUNDS = int(os.environ.get("KRUST_REPLICATED_ROUNDS", "10"))
SEED = int(os.environ.get("KRUST_REPLICATED_SEED", "0")) or random.randrange(1, 10**9)
BURST = int(os.environ.get("KRUST_REPLICATED_BURST", "3"))
SETTINGS: dict[str, Any] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 3000,
    "log.segment.bytes": 1 << 20,
    "offsets.topic.num.partitions": 3,
}


class Faults:
    """Faults of brokers and their ZooKeeper; each one ends with all of them running."""

    def __init__(self, cluster: Cluster, ensemble: peer.Ensemble, written: Callable[[], int]):
        self._cluster, self._ensemble, self._written = cluster, ensemble, written
        self._chance = random.Random(SEED)

    def kinds(self) -> list[Callable[[], None]]:
        """Every kind of fault, as often as it happens in so many rounds."""
        kinds = [self.kills_one] * 4 + [self.kills_two, self.kills_all, self.stops_one]
        return [*kinds, self.suspends_one, self.suspends_one, self.loses_zookeeper]

    def schedule(self, rounds: int) -> Iterator[str]:
        """One fault after the other; yields its name."""
        kinds = self.kinds()
        for number in range(rounds):
            if number % len(kinds) == 0:
                self._chance.shuffle(kinds)
            kind = kinds[number % len(kinds)]
            kind()
            yield kind.__name__

    def _victim(self) -> int:
        """A leader, the controller, or any broker."""
        leaders = [each for each in self._cluster.leaders("confluent", 1) if each > 0]
        chosen = self._chance.choice([*leaders[:1], self._cluster.controller, *BROKERS])
        return chosen if chosen in self._cluster.brokers else 1

    def kills_one(self) -> None:
        number = self._victim()
        self._cluster.kill(number)
        if self._chance.random() < 0.7:
            self._others_write()
        self._cluster.start_again(number)

    def kills_two(self) -> None:
        numbers = self._chance.sample(BROKERS, 2)
        for number in numbers:
            self._cluster.kill(number)
        for number in numbers:
            self._cluster.start_again(number)

    def kills_all(self) -> None:
        for number in BROKERS:
            self._cluster.kill(number)
        for number in self._chance.sample(BROKERS, len(BROKERS)):
            self._cluster.start_again(number)

    def stops_one(self) -> None:
        number = self._victim()
        self._cluster.stop(number)
        self._others_write()
        self._cluster.start_again(number)

    def suspends_one(self) -> None:
        number = self._victim()
        self._cluster.pause(number)
        until(lambda: number not in self._cluster.ids())
        self._others_write()
        self._cluster.resume(number)

    def loses_zookeeper(self) -> None:
        (server,) = self._ensemble.servers
        server.kill()
        self._others_write()
        server.start()

    def _others_write(self) -> None:
        """Wait until records are acknowledged without the one that is away."""
        before = self._written()
        until(lambda: self._written() > before + 20)


class LinkFaults(Faults):
    """Faults of the links between brokers and to ZooKeeper; each one ends with all links whole."""

    def __init__(self, network: Network, *rest: Any) -> None:
        super().__init__(*rest)
        self._network = network

    def kinds(self) -> list[Callable[[], None]]:
        kinds: list[Callable[[], None]] = [self.cuts_a_pair, self.cuts_one_way, self.isolates_one]
        return [*kinds, self.cuts_from_zookeeper, self.kills_one_behind_a_cut]

    def cuts_a_pair(self) -> None:
        self._network.cut(*self._chance.sample(BROKERS, 2))
        self._others_write()
        self._network.heal()

    def cuts_one_way(self) -> None:
        self._network.cut_one_way(*self._chance.sample(BROKERS, 2))
        self._others_write()
        self._network.heal()

    def isolates_one(self) -> None:
        number = self._victim()
        self._network.isolate(number)
        until(lambda: number not in self._cluster.ids())
        self._others_write()
        self._network.heal()

    def cuts_from_zookeeper(self) -> None:
        number = self._victim()
        self._network.cut_from_zookeeper(number)
        until(lambda: number not in self._cluster.ids())
        self._others_write()
        self._network.heal()

    def kills_one_behind_a_cut(self) -> None:
        number, other = self._chance.sample(BROKERS, 2)
        self._network.cut(number, other)
        self._cluster.kill(number)
        self._network.heal()
        self._cluster.start_again(number)


def all_in_sync(cluster: Cluster) -> bool:
    """Whether every broker names every replica of every writer's topic in sync."""
    whole = [list(BROKERS)] * PARTITIONS
    return all(cluster.in_sync(topic, each) == whole for topic in WRITERS for each in BROKERS)


def log_bytes(folder: Path) -> bytes:
    """All batches of a partition, whatever segments they are in."""
    return b"".join(each.read_bytes() for each in sorted(folder.glob("*.log")))


def write_through(
    cluster: Cluster, rounds: int, faults: Callable[[Callable[[], int]], Faults]
) -> None:
    """Let three client libraries write through faults, and compare promises, log and replicas.

    faults  makes the faults, given how many records one of the libraries was acknowledged so far
    """
    happened: list[str] = []
    ledgers = {name: Ledger(name, PARTITIONS) for name in WRITERS}
    for topic in ledgers:
        cluster.create(topic, PARTITIONS, **{"min.insync.replicas": "2"})
    until(lambda: all_in_sync(cluster))
    writers = [
        writer(name, cluster.bootstrap(), ledgers[name], BURST) for name, writer in WRITERS.items()
    ]
    try:
        until(lambda: all(ledgers.values()))
        for fault in faults(lambda: len(ledgers["confluent"])).schedule(rounds):
            happened.append(fault)
            cluster.mend()
            until(lambda: all_in_sync(cluster))
    finally:
        for writer in writers:
            writer.stop()
        written = {name: len(each) for name, each in ledgers.items()}
        print(f"seed {SEED}: {Counter(happened)}, acknowledged {written}")
    for name, ledger in ledgers.items():
        broken = ledger.check(cluster.bootstrap())
        assert broken == [], (SEED, happened, name, len(broken), broken[:8])
    assert ledgers["confluent"].failed == [], (SEED, happened)
    until(lambda: all_in_sync(cluster))
    for number in BROKERS:
        cluster.stop(number)
    for topic in ledgers:
        for partition in range(PARTITIONS):
            name = f"{topic}-{partition}"
            copies = {log_bytes(cluster.folder(each) / name) for each in BROKERS}
            assert len(copies) == 1, (SEED, happened, name)


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_no_fault_of_brokers_loses_or_doubles_an_acknowledged_record(tmp_path: Path) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    (tmp_path / "zk").mkdir()
    with (
        peer.running(tmp_path / "zk") as ensemble,
        Cluster(tmp_path, f"{ensemble.connect}/r", replicas=3, **SETTINGS) as cluster,
    ):
        write_through(cluster, ROUNDS, lambda written: Faults(cluster, ensemble, written))


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_no_cut_link_loses_or_doubles_an_acknowledged_record(tmp_path: Path) -> None:
    if reason := peer.missing() or missing():
        pytest.skip(reason)
    (tmp_path / "zk").mkdir()
    with (
        namespaces() as network,
        peer.running(tmp_path / "zk", 1, "clientPortAddress=0.0.0.0") as ensemble,
    ):
        port = ensemble.servers[0].port
        through = f"{network.zookeeper_host}:{port}/n"
        with Cluster(
            tmp_path,
            f"{ensemble.connect}/n",
            through=through,
            replicas=3,
            network=network,
            **SETTINGS,
        ) as cluster:
            write_through(
                cluster,
                ROUNDS // 2,
                lambda written: LinkFaults(network, cluster, ensemble, written),
            )
