"""The bank and the copy (`tests/faults/exactly_once.py`) on three brokers, under every fault.

Replication factor 3 and min.insync.replicas 2, of the internal topics too. While the faults of a
round happen to brokers, links, disks and ZooKeeper, clients are killed and superseded. At the end
the three replicas have the same bytes.
KRUST_TXN_RUNS: how many runs; without it there is none. Every other one is in flush mode `ack`.
KRUST_TXN_ROUNDS: how many rounds in each (3).
KRUST_TXN_SEED: which, in the first; the next one has the next seed.
KRUST_TXN_VERSION: the level of transaction.version, if it is not the default.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.faults import BROKERS, Faults, all_in_sync, log_bytes, three
from tests.faults import exactly_once
from tests.faults.exactly_once import TOPICS, Workload
from tests.faults.exactly_once_client import PARTITIONS
from tests.peers import zookeeper as peer
from tests.waiting import until

RUNS = int(os.environ.get("KRUST_TXN_RUNS", "0"))
ROUNDS = int(os.environ.get("KRUST_TXN_ROUNDS", "3"))
SEED = int(os.environ.get("KRUST_TXN_SEED", "0")) or random.randrange(1, 10**9)
SETTINGS: dict[str, Any] = {
    **exactly_once.BROKER,
    "zookeeper.session.timeout.ms": 1500,
    "replica.lag.time.max.ms": 3000,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}
INTERNAL = ("__transaction_state", "__consumer_offsets")


@pytest.mark.java
@pytest.mark.timeout(300 + 100 * ROUNDS)
@pytest.mark.parametrize("run", range(RUNS))
def test_sums_stay_and_each_input_is_copied_once_whatever_fails(tmp_path: Path, run: int) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    mode, seed = ("async", "ack")[run % 2], SEED + run
    more: dict[str, Any] = {"many_cuts": mode == "ack", "seed": seed}
    settings = {**SETTINGS, "krust.flush.mode": mode}
    workload: Workload | None = None

    def written() -> int:
        return workload.told() if workload else 0

    began = time.monotonic()
    with three(tmp_path, (*TOPICS, *INTERNAL), settings, written=written, **more) as running:
        cluster, faults = running
        for topic in TOPICS:
            cluster.create(topic, PARTITIONS)
        until(lambda: all_in_sync(cluster, TOPICS))
        workload = Workload(cluster.bootstrap(), tmp_path, seed)
        happened: list[str] = []
        try:
            workload.progress()
            happen(faults, workload, happened)
            workload.progress()
            workload.check()
        except BaseException:
            print(seed, mode, happened, faults.begun, workload.diagnosis())
            raise
        finally:
            workload.close()
        until(lambda: all_in_sync(cluster, TOPICS))
        for number in BROKERS:
            cluster.stop(number)
        for name in (f"{topic}-{each}" for topic in TOPICS for each in range(PARTITIONS)):
            copies = {log_bytes(cluster.folder(each) / name) for each in BROKERS}
            assert len(copies) == 1, (seed, happened, name)
    seconds = round(time.monotonic() - began)
    print(f"seed {seed}, {mode}, {seconds} s: {dict(faults.executed)}, {workload.summary()}")


def happen(faults: Faults, workload: Workload, happened: list[str]) -> None:
    """Let rounds of faults happen, and things to clients meanwhile."""
    over = threading.Event()

    def clients_end() -> None:
        while not over.is_set():
            for kind in workload.kinds():
                workload.progress()
                kind()

    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(clients_end)
        try:
            happened.extend(faults.rounds(ROUNDS))
        finally:
            over.set()
        ends.result()
