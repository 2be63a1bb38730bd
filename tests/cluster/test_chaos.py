"""Rounds of faults against three brokers and their three ZooKeepers while records flow.

KRUST_CLUSTER_ROUNDS: how many (20); KRUST_CLUSTER_SEED: which. A failure says its seed and faults.
Proxies between brokers and ZooKeeper cut a connection after a write was done and before its answer.
ZooKeeper's own log shows that there were never two controllers (`history.py`). From 100 rounds on
ZooKeeper is away for a minute once in each hundred, and brokers have to be back 5 seconds after it;
with fewer rounds the time is only printed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from krust._krust import Client
from krust.errors import KrustError
from tests.cluster.brokers import Cluster
from tests.cluster.history import CREATE, read, two_controllers
from tests.peers import zookeeper as peer
from tests.peers.cutting import Cutter, cutter
from tests.waiting import until

pytestmark = pytest.mark.java

SESSION_MS = 1500
BACK_S = 5.0
LONG = 100
ROUNDS = int(os.environ.get("KRUST_CLUSTER_ROUNDS", "20"))
SEED = int(os.environ.get("KRUST_CLUSTER_SEED", "0")) or random.randrange(1, 10**9)


class Load:
    """A producer that never stops; keeps the acknowledged and the failed records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[str] = set()
        self.failed: list[str] = []
        self._topic = topic
        self._stops = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        settings |= {"delivery.timeout.ms": 120_000, "log_level": 0}
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stops.is_set():
            for _ in range(5):
                self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.01)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value().decode())
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()
        self._producer.flush(120)


class Faults:
    """Faults of brokers and ZooKeeper; after each one all of them run again."""

    def __init__(
        self, cluster: Cluster, ensemble: peer.Ensemble, cutters: list[Cutter], load: Load
    ) -> None:
        self._cluster, self._ensemble, self._cutters = cluster, ensemble, cutters
        self._load = load
        self._chance = random.Random(SEED)
        self.back_s: list[float] = []
        """how long after ZooKeeper all brokers were back"""

    def schedule(self) -> Iterator[str]:
        """One fault after the other, every kind in each 20; yields its name."""
        kinds: list[Callable[[int], None]] = [self.goes]
        kinds.extend([self.kills] * 5 + [self.stops] * 2 + [self.stands_still] * 3)
        kinds.extend([self.loses_its_leader] * 4)
        kinds.extend([self.loses_an_answer] * 5)
        for number in range(ROUNDS):
            if number % len(kinds) == 0:
                self._chance.shuffle(kinds)
            kind = self.goes_for_a_minute if number % LONG == LONG - 1 else kinds[number % 20]
            broker = self._chance.choice([self._cluster.controller, 1, 2, 3])
            if self._chance.random() < 0.3:
                self.loses_an_answer(broker)
            if broker in self._cluster.brokers:
                kind(broker)
            yield f"{kind.__name__} {broker}"

    def kills(self, number: int) -> None:
        self._cluster.kill(number)
        if self._chance.random() < 0.5:  # late enough to be missed
            until(lambda: number not in self._cluster.ids())
        self._cluster.start_again(number)

    def stops(self, number: int) -> None:
        self._cluster.stop(number)
        self._cluster.start_again(number)

    def stands_still(self, number: int) -> None:
        self._cluster.pause(number)
        until(lambda: number not in self._cluster.ids())
        self._cluster.resume(number)

    def loses_an_answer(self, _: int) -> None:
        """The next write through each proxy is done, and its connection ends before the answer."""
        for each in self._cutters:
            each.at = "answer"

    def disarm(self) -> None:
        """Stop losing answers."""
        for each in self._cutters:
            each.at = None

    def loses_its_leader(self, _: int) -> None:
        """One of ZooKeeper's servers dies, and the others elect another leader."""
        leader = self._ensemble.leader
        leader.kill()
        self._comes_back()
        leader.start()

    def goes(self, number: int, least_s: float = 0.0) -> None:
        """All servers die, for longer than a session lasts and `least_s`; leaders serve on."""
        for each in self._ensemble.servers:
            each.kill()
        log = self._cluster.brokers[number].stderr
        before, served = log().count("silent for as long"), len(self._load.acknowledged)
        until(lambda: log().count("silent for as long") > before)
        until(lambda: len(self._load.acknowledged) > served)
        time.sleep(least_s)  # the fault itself: ZooKeeper is away for so long
        for each in self._ensemble.servers:
            each.launch()
        self._comes_back()
        for each in self._ensemble.servers:
            each.wait()

    def goes_for_a_minute(self, number: int) -> None:
        self.goes(number, 60.0)

    def _comes_back(self) -> None:
        """Wait for ZooKeeper, then for the brokers; how long that took."""
        until(lambda: any(each.leads for each in self._ensemble.servers))
        there = time.monotonic()
        settled(self._cluster)
        self.back_s.append(time.monotonic() - there)


def settled(cluster: Cluster) -> None:
    """All brokers run, and know each other, one controller and every leader."""

    def one() -> bool:
        views = [cluster.view(number) for number in (1, 2, 3)]
        if not all(views) or cluster.controller == -1:
            return False
        leaders = [
            [each["leader_id"] for topic in view["topics"] for each in topic["partitions"]]
            for view in views
        ]
        same = {view["controller_id"] for view in views} == {cluster.controller}
        return same and all(-1 not in each for each in leaders)

    cluster.repair()
    until(one)


def names(cluster: Cluster, number: int) -> set[str]:
    return {each["name"] for each in cluster.view(number).get("topics", ())}


def retention(cluster: Cluster, topic: str) -> str | None:
    asked = {"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    try:
        answer = Client(cluster.bootstrap()).request("DescribeConfigs", {"resources": [asked]})
    except KrustError:
        return None
    return str(answer["results"][0]["configs"][0]["value"])


@pytest.mark.timeout(60 + 40 * ROUNDS)
def test_random_faults_lose_no_acknowledged_record_and_no_topic(tmp_path: Path) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    (tmp_path / "zk").mkdir()
    happened: list[str] = []
    with ExitStack() as stack:
        ensemble = stack.enter_context(peer.running(tmp_path / "zk", 3))
        proxies = [stack.enter_context(cutter(each.address)) for each in ensemble.servers]
        through = ",".join(address for _, address in proxies)
        settings: dict[str, Any] = {"zookeeper.session.timeout.ms": SESSION_MS}
        cluster = stack.enter_context(
            Cluster(tmp_path, f"{ensemble.connect}/k", through=f"{through}/k", **settings)
        )
        cluster.create("flow", 6)
        load = Load(cluster.bootstrap(), "flow")
        until(lambda: load.acknowledged)
        faults = Faults(cluster, ensemble, [each for each, _ in proxies], load)
        made = {"flow"}
        try:
            for number, fault in enumerate(faults.schedule()):
                happened.append(fault)
                settled(cluster)
                cluster.create(f"made-{number}", 3, **{"retention.ms": str(60_000 + number)})
                faults.disarm()
                made.add(f"made-{number}")
                settled(cluster)
                until(lambda: all(names(cluster, each) >= made for each in (1, 2, 3)))
        finally:
            load.stop()
            cuts = sum(each.cuts for each, _ in proxies)
            print(f"seed {SEED}: {Counter(each.split()[0] for each in happened)}, {cuts} answers")
            print(f"lost; back {max(faults.back_s, default=0.0):.1f} s after ZooKeeper at most")
        assert load.failed == [], (SEED, happened)
        for number in range(ROUNDS):
            until(partial(lambda n: retention(cluster, f"made-{n}") == str(60_000 + n), number))
        read_back = Counter(cluster.consume("flow", len(load.acknowledged), "all"))
        assert read_back == Counter(load.acknowledged), (SEED, happened)
        one_controller_at_a_time(tmp_path / "zk", cluster)
        assert ROUNDS < LONG or max(faults.back_s) <= BACK_S, (SEED, faults.back_s)


def one_controller_at_a_time(folder: Path, cluster: Cluster) -> None:
    """ZooKeeper's own log, which has every election, shows one controller at a time."""
    changes = read(folder)
    assert two_controllers(changes, "/k") == [], SEED
    made = [each for change in changes for each in change.writes if each.kind == CREATE]
    assert [each.path for each in made].count("/k/controller") == cluster.epoch, SEED
