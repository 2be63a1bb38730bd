"""The bank and the copy (`exactly_once.py`) on one broker that is killed, as its clients are.

KRUST_TXN_RUNS: how many runs (1), each with a broker of its own.
KRUST_TXN_ROUNDS: how many things happen in each (3).
KRUST_TXN_SEED: which, in the first; the next one has the next seed.
KRUST_TXN_VERSION: the level of transaction.version, if it is not the default.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.exactly_once import BROKER, TOPICS, Workload
from tests.faults.exactly_once_client import PARTITIONS
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

RUNS = int(os.environ.get("KRUST_TXN_RUNS", "1"))
ROUNDS = int(os.environ.get("KRUST_TXN_ROUNDS", "3"))
SEED = int(os.environ.get("KRUST_TXN_SEED", "0")) or random.randrange(1, 10**9)


@pytest.mark.timeout(max(300, ROUNDS * 60))
@pytest.mark.parametrize("run", range(RUNS))
def test_sums_stay_and_each_input_is_copied_once_whoever_is_killed(
    tmp_path: Path, run: int
) -> None:
    port, seed = free_port(), SEED + run
    broker = ServedBroker(tmp_path / "data", options=BROKER, port=port)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in TOPICS]).values():
        made.result(WAIT_S)
    workload = Workload(broker.bootstrap, tmp_path, seed)

    def kills_the_broker() -> None:
        nonlocal broker
        broker.kill()
        broker = ServedBroker(tmp_path / "data", options=BROKER, port=port)

    try:
        kinds = [kills_the_broker, *workload.kinds()]
        for number in range(ROUNDS):
            workload.progress()
            kinds[number % len(kinds)]()
        workload.progress()
        workload.check()
    except BaseException:
        print(seed, workload.diagnosis())
        raise
    finally:
        workload.close()
        broker.kill()
    print(f"seed {seed}: {ROUNDS} faults, {workload.summary()}")
