"""Runs of the throughput benches, compared: pure functions over what pytest-benchmark writes.

Two runs differ by the machine and by what else ran there, so each figure is taken as a multiple of
the calibration loop of its own run. Not promised: that such a loop tells how busy a disk was.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Figures = dict[str, dict[str, float]]


class Compared(NamedTuple):
    """One bench in two runs."""

    name: str
    seconds: float
    ratio: float | None
    """Its multiple of the loop by the baseline's; None: the baseline has no such bench."""

    def verdict(self, tolerance: float) -> str:
        """The meaning of the ratio, if runs of one build differ by up to `tolerance`."""
        if self.ratio is None:
            return "new"
        if self.ratio > 1 + tolerance:
            return "slower"
        return "faster" if self.ratio < 1 / (1 + tolerance) else "same"


def summary(run: dict[str, Any]) -> dict[str, Any]:
    """The part of a run that is kept: the medians, without the machine's description.

    run  what `--benchmark-json` wrote; a summary is its own summary
    """
    if "figures" in run:
        return run
    figures = {
        each["name"].removeprefix("test_"): {
            "seconds": each["stats"]["median"],
            "records": each["extra_info"].get("records", 0),
            "bytes": each["extra_info"].get("bytes", 0),
        }
        for each in run["benchmarks"]
    }
    calibration = run["calibration_s"]
    return {"peer": run["peer"], "calibration_s": calibration, "figures": figures}


def compare(run: dict[str, Any], baseline: dict[str, Any]) -> list[Compared]:
    """Each bench of `run` beside the same of `baseline`, in the order of `run`.

    raises  ValueError: a run without a calibration
    """
    ours, theirs = summary(run), summary(baseline)
    loop, their_loop = ours["calibration_s"], theirs["calibration_s"]
    if loop <= 0 or their_loop <= 0:
        raise ValueError("a run has no calibration loop")
    found = []
    for name, figure in ours["figures"].items():
        before = theirs["figures"].get(name)
        ratio = None
        if before is not None and before["seconds"] > 0:
            ratio = (figure["seconds"] / loop) / (before["seconds"] / their_loop)
        found.append(Compared(name, figure["seconds"], ratio))
    return found
