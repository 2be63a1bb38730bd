"""Simulation runs of three real controllers from a seed: each check holds at every step.

KRUST_CLUSTER_SEEDS: how many seeds (500); KRUST_CLUSTER_SEED: this one alone, as a failure prints
it. `simulator/checks.py` explains each check.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.controller.simulator.planted_bugs import PLANTED_BUGS
from tests.unit.controller.simulator.simulation import caching_decodes, simulate

SEEDS = int(os.environ.get("KRUST_CLUSTER_SEEDS", "500"))
ONE = os.environ.get("KRUST_CLUSTER_SEED")
COMMAND = "KRUST_CLUSTER_SEED={} python -m pytest tests/unit/controller/test_cluster_simulator.py"
CHUNKS = 10
PLANTED_SEEDS = 3000


@pytest.fixture(autouse=True)
def remembered() -> Iterator[None]:
    with caching_decodes():
        yield


@pytest.mark.timeout(0)
@pytest.mark.parametrize("chunk", range(CHUNKS) if ONE is None else [0])
def test_a_cluster_keeps_its_invariants_under_any_faults(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS) if ONE is None else [int(ONE)]:
        try:
            simulate(seed)
        except Exception as error:
            error.add_note(f"seed {seed}; again: {COMMAND.format(seed)}")
            raise


def test_a_seed_gives_the_same_run_each_time() -> None:
    for seed in range(10):
        assert simulate(seed) == simulate(seed)


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("check", "plant", "favoured"),
    PLANTED_BUGS,
    ids=[plant.__name__ for _, plant, _ in PLANTED_BUGS],
)
def test_a_planted_bug_is_found_by_its_check(
    check: str, plant: Callable[[], Any], favoured: str
) -> None:
    others = set()
    with plant():
        for seed in range(PLANTED_SEEDS):
            try:
                simulate(seed, favoured)
            except AssertionError as found:
                if str(found).startswith(check):
                    return
                others.add(str(found)[:60])
    pytest.fail(f"it lived through {PLANTED_SEEDS} seeds; others found {sorted(others)}")
