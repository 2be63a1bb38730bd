"""Simulation runs of the real coordinator from a seed: G1-G4 hold at every step.

Of ten seeds three are worlds of classic groups, seven of both protocols in one group.
KRUST_SIM_SEEDS: how many seeds (500); KRUST_SIM_SEED: this one alone, as a failure prints it.
"""

from __future__ import annotations

import os

import pytest

from tests.unit.coordinator.simulator import mixed, simulation

SEEDS = int(os.environ.get("KRUST_SIM_SEEDS", "500"))
ONE = os.environ.get("KRUST_SIM_SEED")
COMMAND = "KRUST_SIM_SEED={} python -m pytest tests/unit/coordinator/test_simulator.py"
CHUNKS = 10


def check(seed: int) -> str:
    simulate = simulation.simulate if seed % 10 < 3 else mixed.simulate
    try:
        digest, _ = simulate(seed)
    except Exception as error:
        error.add_note(f"seed {seed}; again: {COMMAND.format(seed)}")
        raise
    return digest


@pytest.mark.timeout(0)
@pytest.mark.parametrize("chunk", range(CHUNKS) if ONE is None else [0])
def test_invariants_hold_at_every_step(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS) if ONE is None else [int(ONE)]:
        check(seed)


def test_a_seed_gives_the_same_run_each_time() -> None:
    for seed in range(20):
        assert check(seed) == check(seed)
