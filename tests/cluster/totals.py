"""Sum what runs of `test_replicated_chaos.py` did: `python -m tests.cluster.totals FILE`.

Each line of the file is one run. Only what happened is counted.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path


def main(file: str) -> None:
    """Print the totals of a file, for each flush mode and for both."""
    runs = [json.loads(line) for line in Path(file).read_text().splitlines()]
    for mode in ("ack", "async", "both"):
        chosen = [each for each in runs if mode in (each["mode"], "both")]
        if not chosen:
            continue
        numbers: Counter[str] = Counter()
        groups: dict[str, Counter[str]] = {}
        for run in chosen:
            for name in ("seconds", "seconds_of_faults", "kills", "power_cuts"):
                numbers[name] += run[name]
            for name in ("executed", "acknowledged", "given_up", "broken"):
                groups.setdefault(name, Counter()).update(run[name])
        acknowledged = groups["acknowledged"].total()
        print(f"flush mode {mode}: {len(chosen)} runs, {acknowledged:,} acknowledged records")
        print("  " + ", ".join(f"{name} {total:,.0f}" for name, total in numbers.items()))
        for name, group in groups.items():
            print(f"  {name}: " + ", ".join(f"{kind} {n:,}" for kind, n in sorted(group.items())))
    for name, reason in sorted({pair for each in runs for pair in each["not_run"].items()}):
        print(f"not run: {name}: {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
