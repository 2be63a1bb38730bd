"""Rounds of faults against three brokers and their ZooKeeper while records flow.

KRUST_CLUSTER_ROUNDS: how many (1); KRUST_CLUSTER_SEED: which. A failure says its seed and faults.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from krust._krust import Client
from krust.errors import KrustError
from tests.cluster.brokers import Cluster, until
from tests.peers import zookeeper as peer

pytestmark = pytest.mark.java

ROUNDS = int(os.environ.get("KRUST_CLUSTER_ROUNDS", "1"))
SEED = int(os.environ.get("KRUST_CLUSTER_SEED", "0")) or random.randrange(1, 10**9)


class Load:
    """A producer that never stops; what was acknowledged, and what failed."""

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
    """What may happen to brokers and ZooKeeper; each ends with all of them there."""

    def __init__(self, cluster: Cluster, ensemble: peer.Ensemble, chance: random.Random) -> None:
        self._cluster, self._ensemble, self._chance = cluster, ensemble, chance

    def any(self) -> str:
        kinds = [self.kills, self.stops, self.stands_still, self.expires, self.loses_zookeeper]
        kind = self._chance.choice(kinds)
        number = self._chance.choice([self._cluster.controller, 1, 2, 3])
        if number in self._cluster.brokers:
            kind(number)
        return f"{kind.__name__} {number}"

    def kills(self, number: int) -> None:
        self._cluster.kill(number)
        if self._chance.random() < 0.5:  # late enough to be missed
            until(lambda: number not in self._cluster.ids())
        self._cluster.start(number)

    def stops(self, number: int) -> None:
        self._cluster.stop(number)
        self._cluster.start(number)

    def stands_still(self, number: int) -> None:
        self._cluster.pause(number)
        until(lambda: number not in self._cluster.ids())
        self._cluster.resume(number)

    def expires(self, number: int) -> None:
        """As above, twice in a row."""
        self.stands_still(number)
        self.stands_still(number)

    def loses_zookeeper(self, number: int) -> None:
        self._ensemble.leader.kill()
        log = self._cluster.brokers[number].stderr
        before = log().count("silent for as long")
        if self._chance.random() < 0.5:
            until(lambda: log().count("silent for as long") > before)
        self._ensemble.leader.start()
        until(lambda: self._cluster.ids() == [1, 2, 3])


def settled(cluster: Cluster) -> None:
    """All brokers are there, know each other, one controller and every leader."""

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

    cluster.mend()
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
def test_nothing_acknowledged_and_no_topic_is_lost_whatever_happens(tmp_path: Path) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    chance = random.Random(SEED)
    (tmp_path / "zk").mkdir()
    happened: list[str] = []
    with (
        peer.running(tmp_path / "zk") as ensemble,
        Cluster(tmp_path, f"{ensemble.connect}/k") as cluster,
    ):
        cluster.create("flow", 6)
        load = Load(cluster.bootstrap(), "flow")
        faults = Faults(cluster, ensemble, chance)
        made = {"flow"}
        epochs = [cluster.epoch]
        try:
            for number in range(ROUNDS):
                happened.append(faults.any())
                settled(cluster)
                cluster.create(f"made-{number}", 3, **{"retention.ms": str(60_000 + number)})
                made.add(f"made-{number}")
                epochs.append(cluster.epoch)
                settled(cluster)
                until(lambda: all(names(cluster, each) >= made for each in (1, 2, 3)))
        finally:
            load.stop()
            print(f"seed {SEED}: {Counter(each.split()[0] for each in happened)}")
        assert epochs == sorted(epochs)
        assert load.failed == [], (SEED, happened)
        assert len(load.acknowledged) > 0
        for number in range(ROUNDS):
            until(partial(lambda n: retention(cluster, f"made-{n}") == str(60_000 + n), number))
        read = Counter(cluster.consume("flow", len(load.acknowledged), "all"))
        assert read == Counter(load.acknowledged), (SEED, happened)
