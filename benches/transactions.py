"""What transactions cost, beside Apache Kafka 3.9.1: commits, streams, readers, memory, start.

    python benches/transactions.py [--rounds 9] [--only commits,streams,readers,memory,start]

The load is that of the `driver` program (see `peers.py`, whose rules hold here), so that what is
measured is the server. Its producers speak as a client of before KIP-890 does: AddPartitionsToTxn,
Produce, EndTxn, and 20 ms of patience while the markers of the last transaction are being written.
Servers take turns in rounds; for memory and start each has a fresh server.
Prints the figures beside what was wanted, writes `benches/results/DATE-transactions-N-cores.json`.
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

from figures import absolute, compare, load
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

SERVERS = {"krust": krust, "kafka": kafka}
_SHOWN = ("requests_s", "cpu_us_request", "p50_us", "p99_us", "end_p50_us", "refused_a_transaction")
_COMMIT_TARGETS = (Target("p50_us", "kafka", 0.5), Target("p99_us", "kafka", 1.0))
COMMITS = (
    Scenario(
        "commit of one record, one producer, 10 ms between transactions",
        ("transactions", "--connections", "1", "--requests", "300", "--pause-ms", "10"),
        shows=_SHOWN,
        targets=_COMMIT_TARGETS,
    ),
    Scenario(
        "commit of one record, one producer, one transaction after the other",
        ("transactions", "--connections", "1", "--requests", "500"),
        shows=_SHOWN,
        targets=_COMMIT_TARGETS,
    ),
    Scenario(
        "1,000 producers, one record a transaction",
        ("transactions", "--connections", "1000", "--partitions", "50", "--requests", "20000"),
        shows=_SHOWN,
        targets=(
            Target("requests_s", "kafka", 3, least=True),
            Target("cpu_us_request", "kafka", 0.3),
        ),
    ),
)
VISIBLE = Scenario(
    "from a commit to a waiting read_committed fetch",
    ("visible", "--requests", "300"),
    shows=("p50_us", "p99_us"),
)
STREAM = ("stream", "--connections", "4", "--in-flight", "5", "--batch-bytes", "65536")
STREAM_BYTES = ("--bytes", str(1 << 30))
WAYS = {"idempotent": "0", "transactions of 100 ms": "100"}
READERS = ("--every-ms", "20", "--bytes", str(256 << 20), "--rounds", "10")
OPEN = ("open", "--keep", "--connections", "50")
STORED = 100_000


@contextlib.contextmanager
def fresh(name: str, folder: Path) -> Iterator[Running]:
    """A server that runs on what `folder` holds; a krust on two cores stays on the first."""
    (folder / "ready.json").unlink(missing_ok=True)
    with SERVERS[name](folder) as it:
        if name == "krust" and os.cpu_count() == 2:
            pin(it.pid, 0)
        yield it


def commits(bench: Bench) -> dict[str, Any]:
    """Transactions of one record: of one producer, and of 1,000."""
    results = {}
    for scenario in COMMITS:
        results[scenario.name] = bench.run(scenario)
        print(show(scenario, results[scenario.name]), flush=True)
    result = results[VISIBLE.name] = bench.run(VISIBLE)
    print(show(VISIBLE, result), flush=True)
    if ours := result["medians"].get("krust"):
        absolute("ms until it is visible, the 99th percentile", ours["p99_us"] / 1e3, 20, "ms")
    return results


def streams(bench: Bench) -> dict[str, Any]:
    """4 saturating producers, in transactions of 100 ms and without any, by turns."""
    print("4 producers of 64 KiB batches, 5 in flight: MB/s, and CPU-s of the broker a GB")
    results: dict[str, Any] = {}
    for name, at in bench.servers.items():
        taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for turn in range(bench.rounds + 1):
            for way, every_ms in WAYS.items():
                topic = ("--topic", f"stream-{turn}-{os.urandom(3).hex()}")
                sample = drive(at, (*STREAM, *STREAM_BYTES, "--every-ms", every_ms, *topic))
                if turn > 0:
                    taken[way].append(sample)
        results[name] = {way: _median(samples) for way, samples in taken.items()}
        for way, median in results[name].items():
            print(f"    {name:<10}{way:<24}{median['mb_s']:10.1f}{median['cpu_s_gb']:10.3f}")
    if "krust" in results:
        plain, transactional = (results["krust"][way]["mb_s"] for way in WAYS)
        compare("rate in transactions", transactional, plain, 0.95, at_least=True)
    return results


def readers(bench: Bench) -> dict[str, Any]:
    """read_committed beside read_uncommitted, of one topic with transactions, a tenth aborted."""
    scenario = Scenario(
        "CPU-s of the broker a GB that is read, read_committed and read_uncommitted",
        ("fetch-isolated", *STREAM[1:], *READERS),
        shows=("cpu_s_gb", "uncommitted_cpu_s_gb", "mb_s", "uncommitted_mb_s"),
    )
    result = bench.run(scenario)
    print(show(scenario, result), flush=True)
    if ours := result["medians"].get("krust"):
        compare("read_committed's CPU", ours["cpu_s_gb"], ours["uncommitted_cpu_s_gb"], 1.05)
    return {scenario.name: result}


def memory(bench: Bench) -> dict[str, Any]:
    """Resident memory of 10,000 open transactions."""
    results: dict[str, Any] = {}
    for name in SERVERS:
        try:
            with _folder(bench) as folder, fresh(name, folder) as running:
                time.sleep(2)  # its start is over
                results[name] = drive(running, (*OPEN, "--requests", "10000"))
        except (AbsentError, RuntimeError) as error:
            print(f"    {name:<10}n/a: {error}", flush=True)
    print("10,000 open transactional ids: MB above an idle broker")
    for name, sample in results.items():
        print(f"    {name:<10}{sample['resident_above_idle'] / 1e6:8.1f}")
    if "krust" in results:
        absolute("memory", results["krust"]["resident_above_idle"] / 1e6, 100, "MB")
    return results


def start(bench: Bench) -> dict[str, Any]:
    """From the start of a process to all transactional ids, 100,000 and none, by turns."""
    results: dict[str, Any] = {}
    for name in SERVERS:
        times: dict[str, list[float]] = {"with ids": [], "without": []}
        with _folder(bench) as stored, _folder(bench) as empty:
            with fresh(name, stored) as running:
                drive(running, (*OPEN, "--commits", "--requests", str(STORED)))
            with fresh(name, empty) as running:
                drive(running, (*OPEN, "--commits", "--requests", "1"))
            for turn in range(2 * min(bench.rounds, 3)):
                for how, folder, count in (("with ids", stored, STORED), ("without", empty, 1)):
                    began = time.monotonic()
                    with fresh(name, folder) as running:
                        drive(running, ("listed", "--keep", "--requests", str(count)))
                        times[how].append(time.monotonic() - began)
                        if turn % 2 and name == "krust":
                            os.kill(running.pid, signal.SIGKILL)
        results[name] = {how: statistics.median(samples) for how, samples in times.items()}
        print(f"{name}: s from its start to the list of {STORED:,} ids, and of one", flush=True)
        print(f"    {results[name]['with ids']:.3f}  {results[name]['without']:.3f}", flush=True)
    absolute("from the start to the list", results["krust"]["with ids"], 3, "s")
    return results


def _folder(bench: Bench) -> contextlib.AbstractContextManager[Path]:
    return _paths(bench.folder)


@contextlib.contextmanager
def _paths(parent: Path) -> Iterator[Path]:
    # A Kafka that is slow to stop still writes there.
    with tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _median(samples: list[dict[str, float]]) -> dict[str, float]:
    return {
        key: statistics.median(sample[key] for sample in samples)
        for key, value in samples[0].items()
        if isinstance(value, int | float)
    }


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "commits": commits,
    "streams": streams,
    "readers": readers,
    "memory": memory,
    "start": start,
}
ALONE = ("memory", "start")
"""parts that start servers of their own"""


def main() -> None:
    """Measure what was asked for; see the docstring of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    names = given.only.split(",")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), given.rounds)
        with contextlib.ExitStack() as stack:
            if any(name not in ALONE for name in names):
                bench.start(stack, list(SERVERS))
            for name in names:
                if name not in ALONE:
                    figures[name] = PARTS[name](bench)
        for name in names:
            if name in ALONE:
                figures[name] = PARTS[name](bench)
    print(load())
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    report = {"date": today, "machine": machine(), "rounds": given.rounds, "figures": figures}
    path = given.results / f"{today}-transactions-{os.cpu_count()}-cores.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
