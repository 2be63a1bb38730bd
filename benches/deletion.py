"""How long a group waits while 1,000 partitions are deleted.

    python benches/deletion.py [--partitions 1000] [--topics 1] [--seconds 3]

One member joins its group again and again, each time with an append to the group's log; another
client commits offsets. Meanwhile a third one deletes topics whose partitions hold records. Prints
milliseconds before the deletion and from its start on; the worst wait should stay below 20 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from krust import Producer
from krust._krust import Client
from tests.serving import ServedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "deletion-bench"
OPTIONS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}


class Repeated(threading.Thread):
    """A request, over and over, with the milliseconds of each."""

    def __init__(self, request: Callable[[], dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        self._request = request
        self.took_ms: list[float] = []
        self.stops = threading.Event()

    def run(self) -> None:
        while not self.stops.is_set():
            began = time.perf_counter()
            self._request()
            self.took_ms.append((time.perf_counter() - began) * 1000)
            time.sleep(0.0005)

    def taken(self) -> list[float]:
        """The milliseconds since the last call, sorted."""
        taken, self.took_ms = self.took_ms, []
        return sorted(taken)


def joining(bootstrap: str) -> Callable[[], dict[str, Any]]:
    """JoinGroup by the only member of a group."""
    client = Client(bootstrap, {"request.timeout.ms": 60_000})
    asked = {"key": GROUP, "key_type": 0}
    until(lambda: client.request("FindCoordinator", asked, 1)["error_code"] == 0)
    body: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    body["member_id"] = client.request("JoinGroup", body, 3)["member_id"]
    return lambda: client.request("JoinGroup", body, 3)


def committing(bootstrap: str) -> Callable[[], dict[str, Any]]:
    """OffsetCommit by a client that is no member."""
    client = Client(bootstrap, {"request.timeout.ms": 60_000})
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    body = {
        "group_id": f"{GROUP}-commits",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [{"name": "t0", "partitions": [partition]}],
    }
    return lambda: client.request("OffsetCommit", body, 2)


def fill(bootstrap: str, topics: int, partitions: int) -> None:
    """Create the topics and write a record to each partition."""
    settings = {"num_partitions": partitions, "replication_factor": 1, "assignments": []}
    asked = [{"name": f"t{number}", **settings, "configs": []} for number in range(topics)]
    message = {"topics": asked, "timeout_ms": 60_000, "validate_only": False}
    Client(bootstrap, {"request.timeout.ms": 60_000}).request("CreateTopics", message, 4)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for topic in range(topics):
            for partition in range(partitions):
                producer.produce(f"t{topic}", b"x" * 1000, partition=partition)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        ServedBroker(Path(name) / "data", options=OPTIONS) as one,
    ):
        fill(one.bootstrap, args.topics, args.partitions // args.topics)
        runs = {"JoinGroup": Repeated(joining(one.bootstrap))}
        runs["OffsetCommit"] = Repeated(committing(one.bootstrap))
        for run in runs.values():
            run.start()
        time.sleep(args.seconds)
        before = {name: run.taken() for name, run in runs.items()}
        names = [f"t{number}" for number in range(args.topics)]
        client = Client(one.bootstrap, {"request.timeout.ms": 60_000})
        began = time.perf_counter()
        client.request("DeleteTopics", {"topic_names": names, "timeout_ms": 60_000}, 3)
        deleted_ms = (time.perf_counter() - began) * 1000
        time.sleep(args.seconds)
        for run in runs.values():
            run.stops.set()
            run.join()
    print(f"{args.partitions} partitions in {args.topics} topics, deleted in {deleted_ms:.0f} ms")
    for name, run in runs.items():
        for when, took_ms in (("before", before[name]), ("beside", run.taken())):
            p50, p99 = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
            print(f"{name:<12} {when} p50 {p50:6.2f}  p99 {p99:6.2f}  worst {took_ms[-1]:6.2f} ms")


if __name__ == "__main__":
    main()
