"""Runs of the throughput benches are compared as multiples of their own calibration loops."""

from __future__ import annotations

from typing import Any

import pytest

from benches.ratios import compare, summary
from benches.report import plot, table


def run(calibration_s: float, **medians: float) -> dict[str, Any]:
    """What pytest-benchmark writes, as far as it is read."""
    benchmarks = [
        {
            "name": f"test_{name}",
            "stats": {"median": median},
            "extra_info": {"records": 1000, "bytes": 100_000},
        }
        for name, median in medians.items()
    ]
    return {"calibration_s": calibration_s, "peer": "krust", "benchmarks": benchmarks}


def test_a_slower_machine_changes_no_ratio() -> None:
    before, after = run(0.01, produce=0.2, fetch=0.1), run(0.02, produce=0.4, fetch=0.2)
    assert [each.ratio for each in compare(after, before)] == pytest.approx([1, 1])


def test_a_slowdown_beyond_the_machines_is_reported() -> None:
    before = run(0.01, produce=0.2, fetch=0.2, joins=0.2)
    after = run(0.02, produce=0.6, fetch=0.2, joins=0.41, commits=1)
    found = compare(after, summary(before))
    assert {each.name: each.verdict(0.25) for each in found} == {
        "produce": "slower",
        "fetch": "faster",
        "joins": "same",
        "commits": "new",
    }
    assert [each.ratio for each in found] == [pytest.approx(1.5), 0.5, pytest.approx(1.025), None]


def test_a_summary_contains_no_data_of_the_machine() -> None:
    full = run(0.01, produce=0.2) | {"machine_info": {"node": "somewhere"}}
    kept = summary(full)
    assert kept == summary(kept)
    assert "machine_info" not in kept


def test_a_run_without_its_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="calibration"):
        compare(run(0, produce=1), run(1, produce=1))


def test_the_table_and_the_plot_show_each_bench() -> None:
    kept = summary(run(0.01, produce=0.2, fetch=0.1))
    shown = table(kept, compare(kept, kept))
    assert "| produce | 200.00 | 5,000 | 0.5 | 20.000 | 1.00 x, same |" in shown
    assert plot(kept).count("/s</text>") == 2
