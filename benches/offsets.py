"""What groups cost the broker, beside Apache Kafka 3.9.1: commits, heartbeats, rebalances, restart.

    python benches/offsets.py [--rounds 9] [--only commits,heartbeats,rebalance,restart]

The load is that of the `driver` program (see `peers.py`, whose rules hold here), so that what is
measured is the server. Commits are taken in interleaved rounds; for the others each server is
restarted, so that its memory and time are measured without other work.
Prints the figures beside what was wanted, writes `benches/results/DATE-groups-N-cores.json`.
It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers import (
    HERE,
    AbsentError,
    Bench,
    Running,
    Scenario,
    Target,
    drive,
    kafka,
    krust,
    machine,
    pin,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMITS = Scenario(
    "offset commits, one partition each, 64 in flight over 8 connections",
    ("commit", "--in-flight", "64", "--connections", "8", "--requests", "40000"),
    shows=("requests_s", "cpu_us_request", "p50_us", "p99_us"),
    targets=(
        Target("requests_s", "kafka", 2, least=True),
        Target("cpu_us_request", "kafka", 0.5),
    ),
)
DELAY = "group.initial.rebalance.delay.ms=1000"
MEMBERS = ("--members", "10000", "--groups", "100", "--connections", "1000")
SHARED = ("--members", "500", "--partitions", "5000", "--rounds", "15")
STORED = ("--topic", "stored", "--keep", "--groups", "1000", "--partitions", "1000")
RECORDS = 1_000_000
SERVERS = {"krust": krust, "kafka": kafka}
ASSIGNORS = ("range", "uniform", "sticky")


@contextlib.contextmanager
def fresh(name: str, parent: Path, *settings: str) -> Iterator[Running]:
    """A fresh server; krust with one network thread stays on its core."""
    with (
        # A Kafka that is slow to stop still writes there.
        tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as folder,
        SERVERS[name](Path(folder), DELAY, *settings) as it,
    ):
        if name == "krust" and os.cpu_count() == 2:
            pin(it.pid, 0)
        time.sleep(2)  # a JVM's start is over, and does not count as load
        yield it


def commits(parent: Path, rounds: int) -> dict[str, Any]:
    """Rounds of commits, the servers taking turns."""
    with contextlib.ExitStack() as stack:
        bench = Bench(parent, rounds)
        bench.start(stack, list(SERVERS))
        result = bench.run(COMMITS)
        print(show(COMMITS, result), flush=True)
        return result


def heartbeats(parent: Path, _: int) -> dict[str, Any]:
    """10,000 members in 100 groups over 1,000 connections, each heard every 3 s."""
    taken = _each(parent, ("heartbeat", *MEMBERS, "--every-ms", "3000", "--seconds", "30"))
    print("10,000 members in 100 groups over 1,000 connections, a heartbeat every 3 s")
    for name, sample in taken.items():
        above_mb = sample["resident_above_idle"] / 1e6
        print(f"    {name:<10}{sample['cores']:8.3f} cores {above_mb:8.1f} MB above idle")
    _say("cores", [taken["krust"]["cores"]], 0.1)
    _say("MB above idle", [taken["krust"]["resident_above_idle"] / 1e6], 100)
    return taken


def rebalance(parent: Path, _: int) -> dict[str, Any]:
    """500 members share 5,000 partitions: by the leader's range, and by krust's own assignors."""
    taken = _each(parent, ("rebalance", *SHARED))
    for assignor in ASSIGNORS:
        setting = f"krust.group.server.assignor=*={assignor}"
        with fresh("krust", parent, setting) as running:
            taken[f"krust's {assignor}"] = drive(running, ("rebalance", *SHARED))
    print("a rebalance of 500 members x 5,000 partitions, from the last join to the last sync")
    for name, sample in taken.items():
        median_s, slowest_s = sample["p50_us"] / 1e6, sample["p99_us"] / 1e6
        print(f"    {name:<18}{median_s:8.3f} s, slowest {slowest_s:.3f}")
    ours = [sample["p50_us"] / 1e6 for name, sample in taken.items() if name != "kafka"]
    _say("s, the slowest way of krust's", [max(ours)], 1.5)
    return taken


def _each(parent: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    """One run of the driver against each server, alone."""
    taken: dict[str, Any] = {}
    for name in SERVERS:
        try:
            with fresh(name, parent) as running:
                taken[name] = drive(running, arguments)
        except (AbsentError, RuntimeError) as error:
            print(f"    {name:<10}n/a: {error}", flush=True)
    return taken


def restart(parent: Path, rounds: int) -> dict[str, Any]:
    """From the start of the process to the last group's offsets, all of which are 1,000,000."""
    times: dict[str, list[float]] = {"stopped": [], "killed": []}
    with tempfile.TemporaryDirectory(dir=parent) as home:
        folder = Path(home)
        with krust(folder) as running:
            drive(running, ("fill", *STORED, "--requests", str(RECORDS)))
        for turn in range(2 * rounds):
            (folder / "ready.json").unlink(missing_ok=True)
            began = time.monotonic()
            with krust(folder) as running:
                drive(running, ("ready", *STORED))
                times["killed" if turn % 2 else "stopped"].append(time.monotonic() - began)
                if turn % 2 == 0:
                    os.kill(running.pid, signal.SIGKILL)
    print(f"a restart with {RECORDS:,} records of offsets, until every group is answered")
    for how, samples in times.items():
        _say(f"s, after it was {how}", samples, 3)
    return times


def _say(unit: str, samples: list[float], most: float) -> None:
    median = statistics.median(samples)
    word = "reached" if median <= most else "MISSED"
    print(f"    {word}: {median:.3f} {unit}, wanted at most {most:g}", flush=True)


PARTS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "commits": commits,
    "heartbeats": heartbeats,
    "rebalance": rebalance,
    "restart": restart,
}


def main() -> None:
    """Measure what was asked for; see the docstring of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name in given.only.split(","):
            figures[name] = PARTS[name](Path(folder), given.rounds)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    report = {"date": today, "machine": machine(), "rounds": given.rounds, "figures": figures}
    path = given.results / f"{today}-groups-{os.cpu_count()}-cores.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
