"""How much misbehaving assignors slow down other clients' Produce and Fetch.

    python benches/assignors.py [--rounds 40] [--requests 400]

A broker, and groups that rebalance ten times a second each, for which krust assigns by an assignor
that works, sleeps a second, or raises for ever; beside them the same groups with their leaders
assigning, and no groups at all. Meanwhile clients produce one record a request, with and without a
waiting fetch. The 99th percentile counts, as a ratio to that of the leaders. The contenders take
turns, in one run of many short rounds; beside the median of the rounds stands the lower quartile,
which says more where the machine has other work. It is no test: it reports a missed target and does
not fail. PEERS_BIN is the folder of the project's own programs (default target/release/examples).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers import Running, _child, _wait_for, drive

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS, A_SECOND = 4, 10
WANTED = 1.5
HERE = Path(__file__).resolve().parent
KINDS = {
    "no groups": "",
    "leaders assign": "",
    "works": "assignors:Works",
    "sleeps a second": "assignors:Sleeps",
    "raises for ever": "assignors:Raises",
}
LOOKS = (statistics.median, lambda found: statistics.quantiles(found, n=4)[0])
AGAINST = "leaders assign"
LOADS = {
    "produce": ("produce-small", "--in-flight", "1", "--rate", "500"),
    "produce to a waiting fetch": ("wait",),
}


class Works:
    """Assigns all partitions to one member."""

    name = "works"

    def assign(self, group: Any, topics: Any) -> Any:
        first = min(group.members)
        return {first: [("t", number) for number in range(topics.partitions("t"))]}


class Sleeps(Works):
    """Sleeps for a second, twenty times the deadline."""

    def assign(self, group: Any, topics: Any) -> Any:
        time.sleep(1)
        return super().assign(group, topics)


class Raises(Works):
    """Always raises."""

    def assign(self, group: Any, topics: Any) -> Any:
        raise LookupError("on purpose")


@contextlib.contextmanager
def broker(folder: Path, assignor: str) -> Iterator[Running]:
    """`krust serve` in dev mode."""
    folder.mkdir()
    ready, log = folder / "ready", folder / "stderr"
    command = [sys.executable, "-m", "krust", "serve", "--port", "0", "--data-dir", f"{folder}/d"]
    command += ["--ready-file", str(ready)]
    if assignor:
        command += ["-o", f"krust.group.server.assignor=churn-*={assignor}"]
    where = {**os.environ, "PYTHONPATH": str(HERE)}
    with _child(command, log, stdout=subprocess.DEVNULL, env=where) as process:
        _wait_for(ready.exists, process, log)
        import json

        details = json.loads(ready.read_text())
        yield Running(details["bootstrap"], details["pid"])


def churn(bootstrap: str) -> None:
    """Members of separate groups join again with new subscriptions, until standard input ends."""
    import select

    from krust._krust import Client
    from krust.coordinator.consumer_protocol import Subscription, write_subscription

    client = Client(bootstrap)
    topic = {"name": "t", "num_partitions": 12, "replication_factor": 1}
    with contextlib.suppress(Exception):
        client.request("CreateTopics", {"topics": [topic], "timeout_ms": 5000})
    members = dict.fromkeys((f"churn-{number}" for number in range(GROUPS)), "")
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        begun = time.monotonic()
        number += 1
        for group, member in members.items():
            subscription = write_subscription(Subscription(("t",), b"%d" % number))
            body = {
                "group_id": group,
                "member_id": member,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 30_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": subscription}],
            }
            joined = client.request("JoinGroup", body, 3)
            members[group] = joined["member_id"]
            share = [{"member_id": joined["member_id"], "assignment": b""}]
            body = {"group_id": group, "generation_id": joined["generation_id"]}
            body |= {"member_id": joined["member_id"], "assignments": share}
            client.request("SyncGroup", body, 3)
        print(number, flush=True)
        time.sleep(max(0.0, begun + 1 / A_SECOND - time.monotonic()))


@contextlib.contextmanager
def churning(bootstrap: str) -> Iterator[None]:
    """A process that does so while the block runs; its groups are there when the block begins."""
    command = [sys.executable, __file__, "--churn", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.communicate()


def main() -> None:
    """Take turns, print medians of the 99th percentiles."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--churn")
    given = parser.parse_args()
    if given.churn:
        churn(given.churn)
        return
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        homes = {kind: Path(folder) / f"{n}" for n, kind in enumerate(KINDS)}
        at = {kind: stack.enter_context(broker(homes[kind], KINDS[kind])) for kind in KINDS}
        for turn in range(given.rounds + 1):
            for kind, running in at.items():
                quiet = kind == "no groups"
                with contextlib.nullcontext() if quiet else churning(running.bootstrap):
                    for load, mode in LOADS.items():
                        arguments = [*mode, "--requests", str(given.requests)]
                        result = drive(running, [*arguments, "--topic", f"b{turn}"])
                        if turn:
                            taken.setdefault((load, kind), []).append(result["p99_us"])
    for load in LOADS:
        print(f"{load}: p99, median and quartile (wanted: at most {WANTED} x)")
        beside = [look(taken[load, AGAINST]) for look in LOOKS]
        for kind in KINDS:
            found = [look(taken[load, kind]) for look in LOOKS]
            shown = [
                f"{one:9.0f} us {one / other:6.2f} x"
                for one, other in zip(found, beside, strict=True)
            ]
            print(f"    {kind:<16} {'   '.join(shown)}")


if __name__ == "__main__":
    main()
