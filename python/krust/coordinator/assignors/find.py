"""Finds assignors by name: built-in ones, those of installed packages, and `module:Class`.

A package offers an assignor in its `pyproject.toml`:

    [project.entry-points."krust.assignors"]
    by_region = "my_package.assignors:ByRegion"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.assignors import classic, even
from krust.plugins import Plugins

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import Assignor

BUILT_IN: dict[str, type[Assignor]] = {
    kind.name: kind
    for kind in (
        classic.Range,
        classic.RoundRobin,
        even.Sticky,
        even.Uniform,
        even.Weighted,
        even.RackAware,
        even.LagAware,
    )
}
"""The table of built-in assignors."""

ASSIGNORS: Plugins[Assignor] = Plugins(
    "assignor", "krust.assignors", BUILT_IN, "assign", "`name` and `assign(group, topics)`"
)
