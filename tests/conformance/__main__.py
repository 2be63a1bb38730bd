"""Run foreign suites against krust and compare the results with earlier ones.

    python -m tests.conformance [SUITE ...] [--accept] [--brokers N] [--listener PROTOCOL]

A suite whose programs are absent is skipped with the reason, and so is one whose clients cannot be
told to use the listener (`LISTENERS` of the suite; without it, PLAINTEXT alone). `passed/SUITE.txt`
lists what has passed; a test that is in it and fails makes the run fail (exit 1); `--accept` adds
new ones to it. The list only grows. What passes on one broker passes on N over a ZooKeeper, but for
the suite's `ONE_BROKER`: tests that are about there being one. `NO_TLS` cannot use TLS.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import time
from pathlib import Path

from tests import certificates
from tests.conformance.access import PROTOCOLS
from tests.conformance.broker import serving
from tests.peers import zookeeper

SUITES = ("kafka_python", "java_tools", "franz_go", "rdkafka", "arroyo", "consumer_groups")
PASSED = Path(__file__).parent / "passed"
CACHE = Path(os.environ.get("CONFORMANCE_CACHE", ".venv/conformance")).absolute()


def main() -> int:
    """Run what the command line names; the exit code."""
    parser = argparse.ArgumentParser(prog="conformance")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--accept", action="store_true", help="add newly passed tests to the list")
    parser.add_argument("--brokers", type=int, default=1, help="so many, over a ZooKeeper")
    parser.add_argument("--listener", choices=PROTOCOLS, default="PLAINTEXT", help="its protocol")
    options = parser.parse_args()
    lost = [test for name in options.suites or SUITES for test in _suite(name, options)]
    for test in lost:
        print(f"passed before, fails now: {test}")
    return 1 if lost else 0


def _suite(name: str, options: argparse.Namespace) -> list[str]:
    brokers, protocol = int(options.brokers), str(options.listener)
    suite = importlib.import_module(f"tests.conformance.suites.{name}")
    if missing := [program for program in suite.NEEDS if shutil.which(program) is None]:
        print(f"{name}: skipped, no {' and no '.join(missing)} on this machine")
        return []
    if protocol not in getattr(suite, "LISTENERS", ("PLAINTEXT",)):
        print(f"{name}: skipped, its clients cannot be told to use {protocol}")
        return []
    if reason := certificates.missing():
        print(f"{name}: skipped, {reason}")
        return []
    if brokers > 1 and (reason := zookeeper.missing()):
        print(f"{name}: skipped, {reason}")
        return []
    cache = CACHE / name
    if not (cache / "ready").exists():
        cache.mkdir(parents=True, exist_ok=True)
        suite.prepare(cache)
        (cache / "ready").touch()
    begin = time.monotonic()
    apart = set(getattr(suite, "ONE_BROKER", ())) if brokers > 1 else set()
    apart |= set(getattr(suite, "NO_TLS", ())) if protocol.endswith("SSL") else set()
    port = getattr(suite, "PORT", 0)
    with serving(suite.SETTINGS, protocol=protocol, port=port, brokers=brokers) as access:
        outcomes: dict[str, bool] = suite.run(cache, access)
    outcomes = {test: passed for test, passed in outcomes.items() if test not in apart}
    return _compare(name, outcomes, time.monotonic() - begin, options.accept, apart)


def _compare(
    name: str, outcomes: dict[str, bool], seconds: float, accept: bool, apart: set[str]
) -> list[str]:
    kept = PASSED / f"{name}.txt"
    listed = set(kept.read_text().split("\n")) - {""} if kept.exists() else set()
    before = listed - apart
    now = {test for test, passed in outcomes.items() if passed}
    for test in sorted(set(outcomes) - now):
        print(f"{name}: failed {test}")
    print(f"{name}: {len(now)} passed, {len(outcomes) - len(now)} failed, {seconds:.0f} s")
    if new := now - before:
        print(f"{name}: {len(new)} passed for the first time{'' if accept else ' (--accept)'}")
        if accept:
            kept.write_text("".join(f"{test}\n" for test in sorted(listed | now)))
    return sorted(before - now)


if __name__ == "__main__":
    sys.exit(main())
