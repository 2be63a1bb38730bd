"""Group commit beside the disk it waits for; recovery; lookups. One run, rounds taken in turns.

    python benches/flush.py [--rounds 7] [--dir FOLDER] [--only flush|recovery] [--sync-ms N]

`krust.flush.mode=ack`: N closed-loop producers of one record a request, acks=1, against N /
(fdatasync + round trip), both measured in the same rounds: fdatasync of N small appends to a file
beside the log, a round trip apart, right before and right after the producers; the round trip by
one producer against a broker that does not wait for the disk. The program also prints the ratio of
the medians of times, because other work on the machine spoils rates first. Disks that others use
change within seconds: a round counts only where the broker's own syncs took as long as those beside
it, within a third. If fdatasync takes less than 1 ms, the ratio means nothing, and the program says
so. `--sync-ms` makes each sync take so much longer, of the broker and of the probe alike; with
`--dir /dev/shm` that is a disk whose sync takes just so long, always. The brokers are the `core`
program. PEERS_BIN is the folder of the programs (default target/release/examples). It is no test:
it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
BINARIES = Path(os.environ.get("PEERS_BIN", HERE.parent / "target/release/examples"))
LOADS = ((1, 1, 0.9), (8, 1, 0.8), (64, 1, 0.8), (64, 8, None))
"""producers, partitions, what is wanted of the ratio"""
RECORD = 100
BATCH = 176  # bytes of a batch with one such record, about
SECONDS = 1.5
FLOOR_MS = 1.0
SAME = 1.34
"""how far two times of one disk may lie apart"""
FEWEST = 3
"""rounds that a verdict wants"""
PROBE_S = 0.3


class Round(NamedTuple):
    """The result of one round."""

    ratio: float
    rate: float
    sync_s: float
    trip_s: float
    own_s: float
    """a sync of the broker, on average"""
    typical: float
    """the ratio by medians: (sync + round trip) / latency of a producer"""

    def counts(self) -> bool:
        """Whether the disk was equally fast for the broker and the probe."""
        return 1 / SAME <= self.own_s / self.sync_s <= SAME


class Core(NamedTuple):
    """A running broker, and the cost of its syncs."""

    process: subprocess.Popen[str]
    port: int

    def syncs(self) -> dict[str, int]:
        """Count and nanoseconds so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: dict[str, int] = json.loads(self.process.stdout.readline())
        return answer


def core(stack: ExitStack, folder: Path, flush: str, sync_ms: int) -> Core:
    """Start a broker that goes with the stack."""
    folder.mkdir()
    command = [BINARIES / "core", "--dir", folder, "--flush", flush, "--sync-ms", str(sync_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    assert process.stdin is not None
    assert process.stdout is not None
    stack.callback(process.stdin.close)
    return Core(process, json.loads(process.stdout.readline())["port"])


def drive(it: Core, producers: int, partitions: int, requests: int) -> dict[str, Any]:
    """One round of load."""
    command = [
        *(BINARIES / "driver", "produce-crowd", "--bootstrap", f"127.0.0.1:{it.port}"),
        *("--pid", str(it.process.pid), "--acks", "1", "--record-bytes", str(RECORD)),
        *("--connections", str(producers), "--partitions", str(partitions)),
        *("--requests", str(max(requests, producers))),
    ]
    finished = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def fdatasync_s(folder: Path, appends: int, sync_ms: int, trip_s: float) -> list[float]:
    """Seconds of syncs after so many appends each, as a flush of the log makes them, a round trip
    apart."""
    file = os.open(folder / "probe", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        took: list[float] = []
        until, at = time.perf_counter() + PROBE_S, 0
        while time.perf_counter() < until or len(took) < 10:
            time.sleep(trip_s)
            for _ in range(appends):
                os.pwrite(file, b"p" * BATCH, at)
                at += BATCH
            began = time.perf_counter()
            if sync_ms:
                time.sleep(sync_ms / 1000)
            os.fdatasync(file)
            took.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return took


def one_round(
    waits: Core, floor: Core, parent: Path, load: tuple[int, int], sync_ms: int
) -> tuple[Round, str]:
    """One load beside the disk; returns its report."""
    producers, partitions = load
    trip = drive(floor, 1, 1, 2000)
    trip_s = 1 / trip["requests_s"]
    took = fdatasync_s(parent, producers, sync_ms, trip_s)
    expected = producers / (statistics.mean(took) + trip_s)
    before = waits.syncs()
    run = drive(waits, producers, partitions, int(expected * SECONDS))
    after = waits.syncs()
    took += fdatasync_s(parent, producers, sync_ms, trip_s)
    sync_s = statistics.median(took)
    ideal = producers / (sync_s + trip_s)
    syncs = max(after["syncs"] - before["syncs"], 1)
    own_s = (after["ns"] - before["ns"]) / syncs / 1e9
    typical = (sync_s + trip["p50_us"] / 1e6) / (run["p50_us"] / 1e6)
    found = Round(run["requests_s"] / ideal, run["requests_s"], sync_s, trip_s, own_s, typical)
    report = (
        f"  {producers} producers, {partitions} partitions: {found.rate:.0f}/s, "
        f"{found.ratio:.2f} of {ideal:.0f}/s, {run['requests'] * 1.2 / syncs:.1f} answers a sync, "
        f"p99 {run['p99_us'] / 1000:.1f} ms; a sync {own_s * 1e3:.2f} ms, of the probe "
        f"{sync_s * 1e3:.2f}{'' if found.counts() else ': does not count'}"
    )
    return found, report


def group_commit(parent: Path, rounds: int, sync_ms: int) -> None:
    """Rates against what disk and round trip allow."""
    found: dict[tuple[int, int], list[Round]] = {}
    with ExitStack() as stack:
        waits = core(stack, parent / "ack", "ack", sync_ms)
        floor = core(stack, parent / "async", "async", sync_ms)
        for _ in range(rounds):
            for producers, partitions, _wanted in LOADS:
                load = (producers, partitions)
                each, report = one_round(waits, floor, parent, load, sync_ms)
                found.setdefault(load, []).append(each)
                print(report, flush=True)
        final = waits.syncs()
    for producers, partitions, wanted in LOADS:
        print(verdict((producers, partitions), found[producers, partitions], wanted))
    print(
        f"syncs of that broker: {final['syncs']}, mean {final['ns'] / final['syncs'] / 1e6:.2f} ms,"
        f" longest {final['longest_ns'] / 1e6:.1f} ms"
    )


def verdict(load: tuple[int, int], found: list[Round], wanted: float | None) -> str:
    """Of the rounds of one load."""
    counted = [each for each in found if each.counts()] or found
    ratio, rate, sync_s, trip_s, _own, typical = map(statistics.median, zip(*counted, strict=True))
    verdict = "reported" if wanted is None else f"wanted {wanted}: "
    if wanted is not None:
        verdict += "met" if ratio >= wanted else "missed"
    same = sum(each.counts() for each in found)
    if sync_s * 1000 < FLOOR_MS:
        verdict = f"fdatasync takes less than {FLOOR_MS:.0f} ms here: no verdict"
    elif same < FEWEST:
        verdict = f"the disk was the same for both in {same} rounds of {len(found)}: no verdict"
    ratios = sorted(each.ratio for each in counted)
    return (
        f"{load[0]} producers, {load[1]} partitions: {rate:.0f}/s, {ratio:.2f} "
        f"({ratios[0]:.2f}-{ratios[-1]:.2f} in {same} of {len(found)} rounds) of producers / "
        f"(fdatasync {sync_s * 1000:.2f} ms + round trip {trip_s * 1e6:.0f} us), by the medians "
        f"of times {typical:.2f}; {verdict}"
    )


def recovery(parent: Path, rounds: int) -> None:
    """Start after a crash, lookups."""
    command = [BINARIES / "recovery", "--dir", parent, "--rounds", str(rounds)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(finished.stdout)
    print(
        f"recovery of {found['mb']} MB: {found['recovery_s']:.3f} s, {found['ratio']:.2f} of "
        f"reading and checking it once ({found['read_and_checksum_s']:.3f} s); wanted 1.5"
    )
    for what, prefix in (("1.1 KB", ""), ("17 KB", "large_")):
        index, whole, read, timed = (
            found[f"{prefix}{name}_ns"] / 1000 for name in ("index", "offset", "pread", "timestamp")
        )
        print(
            f"lookup among 1,000 segments of batches of {what}: by offset {whole:.2f} us "
            f"(wanted 1), of which the read is {read:.2f}; the index alone {index:.2f}; "
            f"by time {timed:.2f} (wanted 20)"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", type=Path, help="where the logs lie (default: a temporary place)")
    parser.add_argument("--sync-ms", type=int, default=0, help="make syncs take longer")
    parser.add_argument("--only", choices=("flush", "recovery"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        if given.only != "flush":
            recovery(Path(folder), given.rounds)
        if given.only != "recovery":
            group_commit(Path(folder), given.rounds, given.sync_ms)


if __name__ == "__main__":
    main()
