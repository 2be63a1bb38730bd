"""A figure of a bench beside what was wanted, as a line of text, with the load of the machine."""

from __future__ import annotations

import os
from pathlib import Path

BINARIES = Path(
    os.environ.get("BENCH_BIN", Path(__file__).resolve().parents[1] / "target/release/examples")
)
"""the folder of the project's own programs"""


def load() -> str:
    """How busy the machine is."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def compare(what: str, mine: float, other: float, wanted: float, *, at_least: bool = False) -> None:
    """Print a ratio of two figures, and whether it is what was wanted."""
    ratio = mine / other
    holds = ratio >= wanted if at_least else ratio <= wanted
    sign = ">=" if at_least else "<="
    say(holds, f"{what}: {ratio:.2f} x, wanted {sign} {wanted:g}")


def absolute(what: str, value: float, wanted: float, unit: str) -> None:
    """Print a figure, and whether it is at most what was wanted."""
    say(value <= wanted, f"{what}: {value:.4g} {unit}, wanted <= {wanted:g}")


def say(holds: bool, text: str) -> None:
    """Print a verdict."""
    print(f"    {'reached' if holds else 'MISSED'}: {text}", flush=True)
