"""Attack a broker with every API and version, beside clients that behave well, and time them.

    python -m tests.attack [API ...] [--kinds same,bomb] [--sizes 64K,1M,4M] [--versions some]

Each API gets its own broker. A row is one attack: the most memory that it added to the broker, the
memory five seconds after the attacker left, and the longest wait of a neighbour. A row over a bound
names the bound, and the exit code is then 1.

    memory   at most 8 MiB or 16 times the frame, and 64 MiB above the pool; given back in 5 s
    time     of the neighbours of an API: p99 20 ms, worst 100 ms, of the policy's 200 ms; each may
             be as much above that as the neighbours' own p99 before the attack began
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.attack.frames import Attack, attacks
from tests.attack.layouts import Layout, layouts
from tests.attack.wire import prepare, send_attack, served, versions
from tests.serving import ServedBroker
from tests.waiting import until

MIB = 1 << 20
SIZES = {"64K": 64 << 10, "1M": MIB, "4M": 4 * MIB}
PATIENCE_S, BACK_S, FLOOR_S = 5.0, 5.0, 2.0
LEAST_MEMORY, PER_BYTE = 8 * MIB, 16
P99_MS, WORST_MS, POLICY_WORST_MS = 20.0, 100.0, 200.0
OPTIONS: dict[str, object] = {"auto.create.topics.enable": "false"}


class Neighbours:
    """The process of well-behaved clients."""

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.neighbours", host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def period(self) -> dict[str, list[float]]:
        """The measurements since the last call, in milliseconds by kind."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        found: dict[str, list[float]] = json.loads(self.process.stdout.readline())["taken"]
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


@dataclass
class Row:
    """The result of one attack."""

    attack: Attack
    peak: int
    left: int
    answer: str
    seconds: float
    worst: dict[str, float]
    over: list[str] = field(default_factory=list)

    def text(self) -> str:
        attack, kind = self.attack, max(self.worst, key=self.worst.__getitem__, default="-")
        name = f"{attack.layout.name} v{attack.version}"
        worst = f"{kind} {self.worst.get(kind, 0):.0f} ms"
        return (
            f"{name:<28} {attack.kind:<10} {attack.place:<36} {attack.size / MIB:6.2f} MiB"
            f"  +{self.peak / MIB:6.1f} MiB, left {self.left / MIB:6.1f}"
            f"  {self.seconds:6.2f} s  {worst:<18} {self.answer:<14} {', '.join(self.over)}"
        ).rstrip()


class Target:
    """A broker under attack, and its neighbours."""

    def __init__(self, directory: Path) -> None:
        self.broker = ServedBroker(directory, options=OPTIONS)
        self.topic_id = prepare(self.broker.address)
        self.neighbours = Neighbours(self.broker.address)
        begun: set[str] = set()

        def have_all_begun() -> bool:
            kinds = self.neighbours.period()
            begun.update(kind for kind, taken in kinds.items() if taken)
            return len(begun) == len(kinds)

        until(have_all_begun)
        time.sleep(FLOOR_S)  # their waits without an attack are measured for so long
        taken = [each for kind in self.neighbours.period().values() for each in kind]
        self.floor_ms = quantile(taken, 0.99)
        self.taken: list[float] = []

    def status(self, name: str) -> int:
        """A line of the process's status, in bytes."""
        text = Path(f"/proc/{self.broker.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith(name + ":"))
        return int(line.split()[1]) * 1024

    def run(self, attack: Attack) -> Row:
        """Attack once, measure, and check the result."""
        before = self.status("VmRSS")
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        self.neighbours.period()
        began = time.monotonic()
        answer = send_attack(self.broker.address, attack.frames(), attack.times, PATIENCE_S)
        seconds = time.monotonic() - began
        time.sleep(0.02)
        waits = self.neighbours.period()
        peak = self.status("VmHWM") - before
        deadline = time.monotonic() + BACK_S
        while (left := self.status("VmRSS") - before) > LEAST_MEMORY:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for kind, late in self.neighbours.period().items():
            waits[kind] += late
        worst = {kind: max(taken) for kind, taken in waits.items() if taken}
        self.taken += [each for taken in waits.values() for each in taken]
        row = Row(attack, peak, left, answer, seconds, worst)
        row.over = over(row, self.floor_ms)
        return row

    def close(self) -> None:
        self.neighbours.close()
        self.broker.kill()


def over(row: Row, floor_ms: float) -> list[str]:
    """The bounds that an attack went over."""
    found = []
    if row.peak > max(LEAST_MEMORY, PER_BYTE * row.attack.size):
        found.append("memory")
    if row.left > LEAST_MEMORY:
        found.append("kept")
    bounds = dict.fromkeys(row.worst, WORST_MS) | {"policy": POLICY_WORST_MS}
    late = [kind for kind, worst in row.worst.items() if worst > bounds[kind] + floor_ms]
    return found + [f"worst {kind}" for kind in late]


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def chosen(options: argparse.Namespace, address: tuple[str, int]) -> Iterator[tuple[Layout, range]]:
    ranges = served(address)
    for key, (first, last) in ranges.items():
        layout = layouts()[key]
        if not options.apis or layout.name in options.apis:
            yield layout, range(first, last + 1)


def attack_api(layout: Layout, range_: range, options: argparse.Namespace) -> list[Row]:
    """Every attack by one API, on its own broker."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        target = Target(Path(directory) / "data")
        try:
            some = versions(layout, range_[0], range_[-1])
            for version in some if options.versions == "some" else range_:
                for size in options.sizes.split(","):
                    for attack in attacks(layout, version, SIZES[size], target.topic_id):
                        if options.kinds and attack.kind not in options.kinds.split(","):
                            continue
                        rows.append(target.run(attack))
                        if rows[-1].over or options.verbose:
                            print(rows[-1].text(), flush=True)
                        if layout.name.startswith(("Delete", "Stop")):
                            target.topic_id = prepare(target.broker.address)
            p99 = quantile(target.taken, 0.99)
            mark = "  OVER" if p99 > P99_MS + target.floor_ms else ""
            print(
                f"{layout.name}: {len(rows)} attacks, {sum(bool(row.over) for row in rows)} over; "
                f"neighbours' p99 {p99:.1f} ms, before {target.floor_ms:.1f} ms{mark}",
                flush=True,
            )
        except (OSError, StopIteration, AssertionError) as error:
            output = target.broker.stderr()[-2000:]
            print(f"{layout.name}: the broker is gone: {error!r}\n{output}", flush=True)
        finally:
            with contextlib.suppress(Exception):
                target.close()
    return rows


def main() -> int:
    """Run the attacks of the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="attack")
    parser.add_argument(
        "apis", nargs="*", metavar="API", help="Kafka's names; all if none is given"
    )
    parser.add_argument("--kinds", help="of same, distinct, colliding, longest, ...")
    parser.add_argument("--sizes", default="64K,1M,4M")
    parser.add_argument("--versions", choices=("some", "all"), default="all")
    parser.add_argument("--verbose", action="store_true", help="print what stays in its bounds too")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedBroker(Path(directory) / "data") as broker,
    ):
        todo = list(chosen(options, broker.address))
    rows = [row for layout, range_ in todo for row in attack_api(layout, range_, options)]
    bad = sum(bool(row.over) for row in rows)
    print(f"{len(rows)} attacks, {bad} over a bound")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
