"""Rounds of faults against three brokers with replicated topics while four client libraries write.

Replication factor 3, min.insync.replicas 2, acks=all, idempotent producers. In each round one to
three faults (`faults.py`) happen at once; then all brokers run again and every replica comes back
in sync. At the end each acknowledged record is at its offset, none is there twice, the offsets are
dense, and the three replicas have the same bytes. With `krust.flush.mode=ack` the power of all
brokers is cut at once; by default that of one in a round (docs/operations.md promises no more).
KRUST_REPLICATED_ROUNDS: how many rounds (10 in flush mode `ack`, half as many by default).
KRUST_REPLICATED_SEED: which.
KRUST_REPLICATED_LASTS_S: how long the faults of a round last at most (1.5).
KRUST_REPLICATED_BURST: how many records a fast writer sends at a time.
KRUST_REPLICATED_TOTALS: the file to which each run adds a line (`totals.py` sums them).
A failure names its seed and its faults, and keeps the partitions of all brokers.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from krust._krust import Client
from tests.cluster.brokers import Cluster
from tests.cluster.faults import BROKERS, Faults, all_in_sync, log_bytes, three
from tests.cluster.replicated import WRITERS, Ledger
from tests.peers import zookeeper as peer
from tests.waiting import until

pytestmark = pytest.mark.java

SESSION_MS = 1500
PARTITIONS = 3
ROUNDS = int(os.environ.get("KRUST_REPLICATED_ROUNDS", "10"))
SEED = int(os.environ.get("KRUST_REPLICATED_SEED", "0")) or random.randrange(1, 10**9)
BURST = int(os.environ.get("KRUST_REPLICATED_BURST", "20"))
TOTALS = os.environ.get("KRUST_REPLICATED_TOTALS", "")
SETTINGS: dict[str, Any] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 3000,
    "log.segment.bytes": 1 << 20,
    "offsets.topic.num.partitions": 3,
}


@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("mode", ["ack", "async"])
def test_no_fault_loses_or_doubles_an_acknowledged_record(tmp_path: Path, mode: str) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    rounds = ROUNDS if mode == "ack" else ROUNDS // 2
    ledgers = {name: Ledger(name, PARTITIONS) for name in WRITERS}
    with three(
        tmp_path,
        WRITERS,
        SETTINGS | {"krust.flush.mode": mode},
        written=lambda: len(ledgers["confluent"]),
        many_cuts=mode == "ack",
        seed=SEED,
    ) as (cluster, faults):
        for topic in ledgers:
            cluster.create(topic, PARTITIONS, **{"min.insync.replicas": "2"})
        until(lambda: all_in_sync(cluster, WRITERS))
        happened, began = [f"seed {SEED}, {mode}"], time.monotonic()
        writers = [
            writer(name, cluster.bootstrap(), ledgers[name], BURST)
            for name, writer in WRITERS.items()
        ]
        try:
            until(lambda: all(ledgers.values()))
            happened.extend(faults.rounds(rounds))
        except BaseException:
            print(happened, faults.begun)
            raise
        finally:
            for writer in writers:
                writer.stop()
        seconds = time.monotonic() - began
        broken = [each for one in ledgers.values() for each in one.check(cluster.bootstrap())]
        record(mode, seconds, faults, ledgers, broken)
        if broken:
            keep(cluster, ledgers, tmp_path / "kept")
        assert broken == [], (happened, len(broken), broken[:8])
        for name in ("confluent", "krust"):
            failed = ledgers[name].failed
            if failed:
                print(*failed[:5], *failed[-5:], *states(cluster, name), sep="\n")
            assert failed == [], (happened, name, len(failed), failed[0], failed[-1])
        until(lambda: all_in_sync(cluster, WRITERS))
        for number in BROKERS:
            cluster.stop(number)
        for name in (f"{topic}-{each}" for topic in ledgers for each in range(PARTITIONS)):
            copies = {log_bytes(cluster.folder(each) / name) for each in BROKERS}
            assert len(copies) == 1, (happened, name)


def keep(cluster: Cluster, topics: Iterable[str], folder: Path) -> None:
    """Copy the partitions of each broker, whose disks end with the test."""
    print(f"the partitions are kept in {folder}")
    for number, topic in itertools.product(BROKERS, topics):
        for each in range(PARTITIONS):
            name = f"{topic}-{each}"
            shutil.copytree(cluster.folder(number) / name, folder / str(number) / name)


def states(cluster: Cluster, topic: str) -> Iterator[str]:
    """The partitions and the producers of a topic, as each broker describes them."""
    asked = {"topics": [{"name": topic, "partition_indexes": list(range(PARTITIONS))}]}
    for number in BROKERS:
        for each in cluster.view(number).get("topics", ()):
            if each["name"] == topic:
                yield f"broker {number}: {each['partitions']}"
        client = Client(cluster.brokers[number].bootstrap)
        yield f"broker {number}: {client.request('DescribeProducers', asked, broker=number)}"


def record(
    mode: str, seconds: float, faults: Faults, ledgers: dict[str, Ledger], broken: list[str]
) -> None:
    """Print what a run did, and add it to the totals."""
    kinds = Counter(each.partition(":")[0] for each in broken)
    line: dict[str, Any] = {
        "seed": SEED,
        "mode": mode,
        "day": time.strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
        "seconds_of_faults": round(faults.seconds, 1),
        "kills": faults.kills,
        "power_cuts": faults.power_cuts,
        "executed": faults.executed,
        "not_run": faults.not_run,
        "acknowledged": {name: len(each) for name, each in ledgers.items()},
        "given_up": {name: len(each.failed) for name, each in ledgers.items() if each.failed},
        "first_given_up": {name: each.failed[0] for name, each in ledgers.items() if each.failed},
        "broken": {kind: kinds[kind] for kind in ("lost", "doubled", "unknown", "gap")},
    }
    text = json.dumps(line)
    print(text)
    if TOTALS:
        with Path(TOTALS).open("a") as file:
            file.write(f"{text}\n")
