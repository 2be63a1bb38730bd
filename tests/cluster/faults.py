"""Faults of three brokers, of their links, disks and ZooKeeper, one or several at a time.

A kind of fault is a context: it begins, lasts while the context is open, and has ended afterwards,
with every broker running. What a machine does not grant is in `not_run`, with the reason.
`executed` counts each kind that happened; `kills` and `power_cuts` count brokers.
Promised: a broker is hit by one fault of brokers at a time.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests import disks as file_systems
from tests.cluster import network as links
from tests.cluster.brokers import Cluster
from tests.cluster.disks import Disks, three_disks
from tests.cluster.network import Network
from tests.peers import zookeeper as peer
from tests.waiting import until

BROKERS = (1, 2, 3)
MORE = 20
"""records of one writer that show that writing goes on"""
LASTS_S = float(os.environ.get("KRUST_REPLICATED_LASTS_S", "1.5"))
"""how long the faults of a round last at most; a single one lasts until others have written"""


class FaultKind(NamedTuple):
    """A kind of fault.

    of         what it hits; links, ZooKeeper, disks and power are hit once in a round
    takes      how many brokers it takes
    goes_on    whether records are acknowledged while it lasts, if nothing else is wrong
    """

    of: str
    takes: int
    goes_on: bool
    begin: Callable[[], AbstractContextManager[None]]

    @property
    def name(self) -> str:
        return self.begin.__name__


class Faults:
    """All kinds of faults that the machine grants.

    network, disks   of the brokers; a text says why there are none
    written          how many records one writer was acknowledged so far
    in_sync          whether every replica is in sync
    many_cuts        whether the power of two and three brokers is cut at once
    """

    def __init__(
        self,
        cluster: Cluster,
        ensemble: peer.Ensemble,
        network: Network | str,
        disks: Disks | str,
        *,
        written: Callable[[], int],
        in_sync: Callable[[], bool],
        many_cuts: bool,
        seed: int,
    ) -> None:
        self._cluster, self._network, self._disks = cluster, network, disks
        (self._zookeeper,) = ensemble.servers
        self._written, self._in_sync = written, in_sync
        self._chance = random.Random(seed)
        self._busy: set[int] = set()
        self._controller = -1
        self.executed: Counter[str] = Counter()
        self.begun = ""
        """the last kind that began"""
        self.kills = self.power_cuts = 0
        self.seconds = 0.0
        """how long there was a fault, or a replica that was not in sync yet"""
        self.not_run: dict[str, str] = {}
        self.kinds = [
            FaultKind("broker", 1, True, self.kills_one),
            FaultKind("broker", 1, True, self.kills_one_again_at_its_start),
            FaultKind("broker", 2, False, self.kills_two),
            FaultKind("broker", 3, False, self.kills_all),
            FaultKind("broker", 1, True, self.stops_one),
            FaultKind("broker", 1, True, self.suspends_one),
            FaultKind("zookeeper", 0, True, self.kills_zookeeper),
            FaultKind("zookeeper", 0, True, self.suspends_zookeeper),
        ]
        links = [
            FaultKind("links", 0, True, self.cuts_a_pair),
            FaultKind("links", 0, True, self.cuts_one_way),
            FaultKind("links", 0, True, self.isolates_one),
            FaultKind("links", 0, True, self.cuts_one_from_zookeeper),
            FaultKind("links", 0, True, self.cuts_all_from_zookeeper),
        ]
        ours = [
            FaultKind("disks", 1, True, self.fills_a_disk),
            FaultKind("power", 1, True, self.cuts_the_power_of_one),
        ]
        if many_cuts:
            ours.append(FaultKind("power", 2, False, self.cuts_the_power_of_two))
            ours.append(FaultKind("power", 3, False, self.cuts_the_power_of_all))
        for kinds, granted in ((links, network), (ours, disks)):
            if isinstance(granted, str):
                self.not_run |= {each.name: granted for each in kinds}
            else:
                self.kinds += kinds

    def rounds(self, count: int) -> Iterator[str]:
        """Let so many rounds of faults happen; yields the names of each round's.

        All kinds happen in the first ten rounds, and then each kind equally often.
        """
        waiting: list[FaultKind] = []
        for number in range(count):
            if not waiting:
                waiting = self._chance.sample(self.kinds, len(self.kinds))
            most = self._chance.choice([1, 1, 2, 2, 3])
            if number < 10:
                most = max(most, -(-len(waiting) // (10 - number)))
            chosen: list[FaultKind] = []
            for kind in list(waiting):
                if len(chosen) < most and _fits(kind, chosen):
                    chosen.append(kind)
                    waiting.remove(kind)
            self._happen(chosen)
            yield " and ".join(each.name for each in chosen)

    def _happen(self, kinds: list[FaultKind]) -> None:
        """Let these happen at once. Those of ZooKeeper and links end first: a start needs both."""
        began = time.monotonic()
        self._controller = self._cluster.controller  # ZooKeeper may be gone when a broker is chosen
        with ExitStack() as brokers, ExitStack() as around:
            for kind in kinds:
                self.begun = kind.name
                (brokers if kind.takes else around).enter_context(kind.begin())
                self.executed[kind.name] += 1
            ends = time.monotonic() + self._chance.uniform(0, LASTS_S)
            if len(kinds) == 1 and kinds[0].goes_on:
                self._others_write()
            time.sleep(max(0.0, ends - time.monotonic()))
        self._busy.clear()
        until(lambda: self._cluster.ids() == list(BROKERS))  # views may be older than the faults
        self._cluster.repair()
        until(self._in_sync)
        self.seconds += time.monotonic() - began

    def _others_write(self) -> None:
        before = self._written()
        until(lambda: self._written() > before + MORE)

    def _take(self, count: int = 1) -> list[int]:
        """Brokers that no other fault has; one is more often the controller."""
        free = [each for each in BROKERS if each not in self._busy]
        taken = self._chance.sample(free, count)
        if count == 1 and self._controller in free and self._chance.random() < 0.3:
            taken = [self._controller]
        self._busy.update(taken)
        return taken

    # -- brokers

    @contextmanager
    def _killed(self, count: int) -> Iterator[list[int]]:
        numbers = self._take(count)
        for number in numbers:
            self._cluster.kill(number)
            self.kills += 1
        yield numbers
        for number in self._chance.sample(numbers, len(numbers)):
            self._cluster.start_again(number)

    @contextmanager
    def kills_one(self) -> Iterator[None]:
        with self._killed(1):
            yield

    @contextmanager
    def kills_one_again_at_its_start(self) -> Iterator[None]:
        with self._killed(1) as (number,):
            yield
        self._cluster.kill(number)
        self.kills += 1
        self._cluster.start_again(number)

    @contextmanager
    def kills_two(self) -> Iterator[None]:
        with self._killed(2):
            yield

    @contextmanager
    def kills_all(self) -> Iterator[None]:
        with self._killed(3):
            yield

    @contextmanager
    def stops_one(self) -> Iterator[None]:
        (number,) = self._take()
        self._cluster.stop(number)
        yield
        self._cluster.start_again(number)

    @contextmanager
    def suspends_one(self) -> Iterator[None]:
        (number,) = self._take()
        self._cluster.pause(number)
        try:
            yield
        finally:
            self._cluster.resume(number)

    # -- ZooKeeper

    @contextmanager
    def kills_zookeeper(self) -> Iterator[None]:
        self._zookeeper.kill()
        yield
        self._zookeeper.start()

    @contextmanager
    def suspends_zookeeper(self) -> Iterator[None]:
        self._zookeeper.pause()
        try:
            yield
        finally:
            self._zookeeper.resume()

    # -- links

    @contextmanager
    def _cut(self, cut: Callable[[Network], None]) -> Iterator[None]:
        assert isinstance(self._network, Network)
        cut(self._network)
        try:
            yield
        finally:
            self._network.heal()

    @contextmanager
    def cuts_a_pair(self) -> Iterator[None]:
        pair = self._chance.sample(BROKERS, 2)
        with self._cut(lambda network: network.cut(*pair)):
            yield

    @contextmanager
    def cuts_one_way(self) -> Iterator[None]:
        pair = self._chance.sample(BROKERS, 2)
        with self._cut(lambda network: network.cut_one_way(*pair)):
            yield

    @contextmanager
    def isolates_one(self) -> Iterator[None]:
        number = self._chance.choice(BROKERS)
        with self._cut(lambda network: network.isolate(number)):
            yield

    @contextmanager
    def cuts_one_from_zookeeper(self) -> Iterator[None]:
        number = self._chance.choice(BROKERS)
        with self._cut(lambda network: network.cut_from_zookeeper(number)):
            yield

    @contextmanager
    def cuts_all_from_zookeeper(self) -> Iterator[None]:
        with self._cut(Network.cut_all_from_zookeeper):
            yield

    # -- disks

    @contextmanager
    def fills_a_disk(self) -> Iterator[None]:
        assert isinstance(self._disks, Disks)
        (number,) = self._take()
        with self._disks.full(number):
            yield

    @contextmanager
    def _without_power(self, count: int) -> Iterator[None]:
        assert isinstance(self._disks, Disks)
        numbers = self._take(count)
        self._disks.cut({each: self._cluster.brokers.pop(each) for each in numbers})
        self.power_cuts += count
        yield
        for number in self._chance.sample(numbers, count):
            self._cluster.start_again(number)

    @contextmanager
    def cuts_the_power_of_one(self) -> Iterator[None]:
        with self._without_power(1):
            yield

    @contextmanager
    def cuts_the_power_of_two(self) -> Iterator[None]:
        with self._without_power(2):
            yield

    @contextmanager
    def cuts_the_power_of_all(self) -> Iterator[None]:
        with self._without_power(3):
            yield


@contextmanager
def three(
    folder: Path, topics: Collection[str], settings: dict[str, Any], **more: Any
) -> Iterator[tuple[Cluster, Faults]]:
    """Three brokers with these settings, and all faults of them that the machine grants.

    A fault has ended when every replica of the topics is in sync.
    """
    with ExitStack() as stack:
        network = links.missing() or stack.enter_context(links.namespaces())
        disks = file_systems.missing("ext4") or stack.enter_context(three_disks(folder))
        (folder / "zk").mkdir()
        ensemble = stack.enter_context(peer.running(folder / "zk", 1, "clientPortAddress=0.0.0.0"))
        if not isinstance(network, str):
            host = f"{network.zookeeper_host}:{ensemble.servers[0].port}"
            settings = settings | {"through": f"{host}/r", "network": network}
        if not isinstance(disks, str):
            settings = settings | {"disks": disks}
        connect = f"{ensemble.connect}/r"
        cluster = stack.enter_context(Cluster(folder, connect, replicas=3, **settings))
        in_sync = partial(all_in_sync, cluster, topics)
        yield cluster, Faults(cluster, ensemble, network, disks, in_sync=in_sync, **more)


def all_in_sync(cluster: Cluster, topics: Collection[str]) -> bool:
    """Whether every broker names every replica of these topics in sync."""
    for number in BROKERS:
        found = {
            each["name"]: each["partitions"] for each in cluster.view(number).get("topics", ())
        }
        for topic in topics:
            parts = found.get(topic, [])
            if not parts or any(sorted(each["isr_nodes"]) != list(BROKERS) for each in parts):
                return False
    return True


def log_bytes(folder: Path) -> bytes:
    """All batches of a partition, whatever segments they are in."""
    return b"".join(each.read_bytes() for each in sorted(folder.glob("*.log")))


def _fits(kind: FaultKind, chosen: list[FaultKind]) -> bool:
    """Whether a kind may happen beside others: once for each thing, and within three brokers."""
    once = kind.of == "broker" or kind.of not in {each.of for each in chosen}
    return once and kind.takes + sum(each.takes for each in chosen) <= len(BROKERS)
