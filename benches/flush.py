"""Group commit beside the disk it waits for; recovery; lookups. One run, rounds taken in turns.

    python benches/flush.py [--rounds 7] [--dir FOLDER]

`krust.flush.mode=ack`: N closed-loop producers of one record a request, acks=1, against
N / (fdatasync + round trip), both measured in the same rounds: fdatasync of N small appends to a
file beside the log, the round trip by one producer against a broker that does not wait for the
disk. Where fdatasync takes less than 1 ms the ratio says nothing: it is said. `--sync-ms` makes
each sync take so much longer, of the broker and of the probe: the logic, not the disk, is measured.
The brokers are the `core` program. PEERS_BIN is where the programs lie (default
target/release/examples). No test: nothing fails when a target is missed, it is said.
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


class Core(NamedTuple):
    """A broker that runs, and what its syncs have cost."""

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
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def fdatasync_s(folder: Path, appends: int, sync_ms: int) -> float:
    """Median seconds of a sync after so many appends, as a flush of the log makes it."""
    file = os.open(folder / "probe", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        took = []
        for turn in range(60):
            for one in range(appends):
                os.pwrite(file, b"p" * BATCH, (turn * appends + one) * BATCH)
            began = time.perf_counter()
            if sync_ms:
                time.sleep(sync_ms / 1000)
            os.fdatasync(file)
            took.append(time.perf_counter() - began)
    finally:
        os.close(file)
    return statistics.median(took)


def group_commit(parent: Path, rounds: int, sync_ms: int) -> None:
    """Rates against what disk and round trip allow."""
    found: dict[tuple[int, int], list[tuple[float, float, float, float]]] = {}
    with ExitStack() as stack:
        waits = core(stack, parent / "ack", "ack", sync_ms)
        floor = core(stack, parent / "async", "async", sync_ms)
        for _ in range(rounds):
            for producers, partitions, _wanted in LOADS:
                sync_s = fdatasync_s(parent, producers, sync_ms)
                trip_s = 1 / drive(floor, 1, 1, 2000)["requests_s"]
                ideal = producers / (sync_s + trip_s)
                before = waits.syncs()
                run = drive(waits, producers, partitions, int(ideal * SECONDS))
                syncs = waits.syncs()["syncs"] - before["syncs"]
                each = (run["requests_s"] / ideal, run["requests_s"], sync_s, trip_s)
                found.setdefault((producers, partitions), []).append(each)
                answered = run["requests"] * 1.2 / max(syncs, 1)
                print(
                    f"  {producers} producers, {partitions} partitions: {run['requests_s']:.0f}/s, "
                    f"{each[0]:.2f} of {ideal:.0f}/s, {answered:.1f} answers a sync, "
                    f"p99 {run['p99_us'] / 1000:.1f} ms",
                    flush=True,
                )
        final = waits.syncs()
    for producers, partitions, wanted in LOADS:
        ratio, rate, sync_s, trip_s = map(
            statistics.median, zip(*found[producers, partitions], strict=True)
        )
        verdict = "reported" if wanted is None else f"wanted {wanted}: "
        if wanted is not None:
            verdict += "met" if ratio >= wanted else "missed"
        if sync_s * 1000 < FLOOR_MS:
            verdict = f"fdatasync takes less than {FLOOR_MS:.0f} ms here: no verdict"
        print(
            f"{producers} producers, {partitions} partitions: {rate:.0f}/s, {ratio:.2f} of "
            f"producers / (fdatasync {sync_s * 1000:.2f} ms + round trip {trip_s * 1e6:.0f} us); "
            f"{verdict}"
        )
    print(
        f"syncs of that broker: {final['syncs']}, mean {final['ns'] / final['syncs'] / 1e6:.2f} ms,"
        f" longest {final['longest_ns'] / 1e6:.1f} ms"
    )


def recovery(parent: Path, rounds: int) -> None:
    """Start after a crash, lookups."""
    command = [BINARIES / "recovery", "--dir", parent, "--rounds", str(rounds)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(said.stdout)
    print(
        f"recovery of {found['mb']} MB: {found['recovery_s']:.3f} s, {found['ratio']:.2f} of "
        f"reading and checking it once ({found['read_and_checksum_s']:.3f} s); wanted 1.5"
    )
    print(
        f"lookup among 1,000 segments: offset {found['offset_ns'] / 1000:.2f} us, of which a read "
        f"is {found['pread_ns'] / 1000:.2f} (wanted 1), time {found['timestamp_ns'] / 1000:.2f} us "
        "(wanted 20)"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", type=Path, help="where the logs lie (default: a temporary place)")
    parser.add_argument("--sync-ms", type=int, default=0, help="make syncs take longer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        recovery(Path(folder), given.rounds)
        group_commit(Path(folder), given.rounds, given.sync_ms)


if __name__ == "__main__":
    main()
