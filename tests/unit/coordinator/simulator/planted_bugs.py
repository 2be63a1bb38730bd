"""The simulator's own test: it plants a bug in the policy and runs seeds until the check that is
meant for the bug finds it. The product contains no hook for that.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.coordinator.simulator.checks import Violation

SEEDS = 300
Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]


class PlantedBugs:
    """The bugs for one kind of simulation, which `simulate` makes from a seed."""

    def __init__(self, simulate: Callable[[int], object]) -> None:
        self._simulate = simulate
        self.bugs: list[tuple[str, Bug]] = []

    def caught_by(self, check: str) -> Callable[[Bug], None]:
        """Plant a bug, and name the check that has to find it."""

        def plant(bug: Bug) -> None:
            self.bugs.append((check, bug))

        return plant

    def each(self) -> pytest.MarkDecorator:
        """The parameters `check` and `bug` of a test."""
        names = [bug.__name__ for _, bug in self.bugs]
        return pytest.mark.parametrize(("check", "bug"), self.bugs, ids=names)

    def must_find(self, check: str, bug: Bug) -> None:
        """Fail if a bug's own check does not find it."""
        others = set()
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            for seed in range(SEEDS):
                try:
                    self._simulate(seed)
                except Violation as found:
                    if found.check == check:
                        return
                    others.add(found.check)
        pytest.fail(f"{bug.__name__} lived through {SEEDS} seeds; others found {sorted(others)}")
