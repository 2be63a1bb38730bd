"""A run of the throughput benches as a table and a plot.

    python benches/report.py RUN.json [--baseline FILE] [--save FILE] [--docs FOLDER]

RUN is what `pytest benches --benchmark-json RUN.json` wrote. Prints the table, with the ratio to
the baseline where there is one. --save keeps what a later run is compared with; --docs writes
throughput.md and throughput.svg. The exit code is always 0: it reports a slower bench and does not
fail.
"""

from __future__ import annotations

import argparse
import json
import sys
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches.ratios import Compared, compare, summary

BASELINE = Path(__file__).with_name("results") / "throughput.json"
TOLERANCE = 0.25
"""Runs of one build on a shared machine differ by up to this part."""
SVG, FONT = "http://www.w3.org/2000/svg", 'font-family="sans-serif" font-size="12"'
ROW, LEFT, WIDTH = 20, 300, 900
ABOUT = """# Throughput

`make bench-throughput` measured this on 2 shared cores. Each line is one bench: its parameters in
brackets (record size, codec, acks, number of clients), the median time of a round, and the rates.
Use the figures to compare builds, brokers and settings. `loops` is the time as a multiple of a
calibration loop of the same run; compare runs by it. A client checks and unpacks the batches that
it reads. If members that join together make two generations, they wait for a heartbeat (3 s).
`pytest benches --bootstrap HOST:PORT` measures any broker.

![records a second](throughput.svg)

"""


def rates(figure: dict[str, float]) -> tuple[str, str]:
    """Records and megabytes a second."""
    seconds, records, size = figure["seconds"], figure["records"], figure["bytes"]
    return (
        f"{records / seconds:,.0f}" if records else "-",
        f"{size / seconds / 1e6:,.1f}" if size else "-",
    )


def table(run: dict[str, Any], compared: list[Compared]) -> str:
    """The run in Markdown."""
    lines = [
        "| bench | ms a round | records/s | MB/s | loops | beside the baseline |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for each in compared:
        figure = run["figures"][each.name]
        loops = each.seconds / run["calibration_s"]
        beside = each.verdict(TOLERANCE)
        if each.ratio is not None:
            beside = f"{each.ratio:.2f} x, {beside}"
        cells = (each.name, f"{each.seconds * 1000:,.2f}", *rates(figure), f"{loops:.3f}", beside)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(run: dict[str, Any]) -> str:
    """Records a second of each bench that has records, as bars of a logarithmic scale."""
    speeds = {
        name: figure["records"] / figure["seconds"]
        for name, figure in run["figures"].items()
        if figure["records"]
    }
    decades = max((len(str(int(speed))) for speed in speeds.values()), default=1)
    scale = (WIDTH - LEFT - 100) / decades
    height = ROW * (len(speeds) + 2)
    parts = [
        f'<svg xmlns="{SVG}" {FONT} width="{WIDTH}" height="{height}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for decade in range(decades + 1):
        x = LEFT + decade * scale
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{ROW}" y2="{height}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="14" text-anchor="middle">{10**decade:,}</text>')
    for at, (name, speed) in enumerate(speeds.items(), start=1):
        wide = scale * _log10(speed)
        y = at * ROW + 4
        parts += [
            f'<text x="{LEFT - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{ROW - 6}" fill="#3b7dd8"/>',
            f'<text x="{LEFT + wide + 4:.1f}" y="{y + 12}">{speed:,.0f}/s</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _log10(speed: float) -> float:
    from math import log10

    return max(0.0, log10(speed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    run = summary(json.loads(given.run.read_text()))
    if given.save:
        given.save.write_text(json.dumps(run, indent=1) + "\n")
    known = json.loads(given.baseline.read_text()) if given.baseline.exists() else run
    text = table(run, compare(run, known))
    print(f"{run['peer']}, calibration loop {run['calibration_s'] * 1000:.2f} ms\n\n{text}", end="")
    if given.docs:
        (given.docs / "throughput.md").write_text(ABOUT + text)
        (given.docs / "throughput.svg").write_text(plot(run))


if __name__ == "__main__":
    main()
