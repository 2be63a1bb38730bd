"""What a cluster of three brokers on one ZooKeeper costs with 3,000 partitions.

Prints one line a figure: topics made and known everywhere, the controller at rest, Metadata of all
as bytes on a socket, a broker's restart, the office after its holder was killed (counted from the
end of its session), a rolling restart under an idempotent producer: failures, losses, longest gap.
Needs Java; ZooKeeper's jars come from Maven.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.brokers import Cluster, until
from tests.peers import zookeeper as peer

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS, PARTITIONS = 30, 100
ALL = TOPICS * PARTITIONS
IDLE_S = 10
ASKED = 200


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "zk").mkdir()
        with (
            peer.running(folder / "zk") as ensemble,
            Cluster(folder, f"{ensemble.connect}/k") as cluster,
        ):
            create(cluster)
            rest(cluster)
            metadata(cluster)
            restart(cluster)
            office(cluster)
            rolling(cluster)


def say(what: str, value: float, unit: str) -> None:
    print(f"{what:<58} {value:8.2f} {unit}", flush=True)


def led(cluster: Cluster, number: int) -> int:
    """How many partitions have a leader, as a broker says."""
    topics = cluster.view(number).get("topics", ())
    return sum(each["leader_id"] >= 0 for topic in topics for each in topic["partitions"])


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def create(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    began = time.monotonic()
    made = admin.create_topics([NewTopic(f"t{n}", PARTITIONS, 1) for n in range(TOPICS)])
    for each in made.values():
        each.result(60)
    say("3,000 partitions made", time.monotonic() - began, "s")
    until(lambda: all(led(cluster, number) == ALL for number in cluster.brokers))
    say("and known to every broker", time.monotonic() - began, "s")


def rest(cluster: Cluster) -> None:
    stat = Path(f"/proc/{cluster.brokers[cluster.controller].pid}/stat")

    def used_s() -> float:
        fields = stat.read_text().split()
        return (int(fields[13]) + int(fields[14])) / 100

    before = used_s()
    time.sleep(IDLE_S)
    say("the controller at rest", (used_s() - before) / IDLE_S * 100, "% of a core")


def metadata(cluster: Cluster) -> None:
    body = struct.pack(">hhih", 3, 8, 1, -1) + struct.pack(">i???", -1, False, False, False)
    took_ms = []
    with socket.create_connection(cluster.brokers[2].address) as line:
        for _ in range(ASKED):
            began = time.monotonic()
            line.sendall(struct.pack(">i", len(body)) + body)
            left = 4 + int.from_bytes(line.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL), "big")
            while left:
                left -= len(line.recv(min(left, 1 << 20)))
            took_ms.append((time.monotonic() - began) * 1000)
    say("Metadata of all topics, p50", sorted(took_ms)[ASKED // 2], "ms")


def restart(cluster: Cluster) -> None:
    say("a broker with 1,000 of them stops", seconds(lambda: cluster.stop(3)), "s")

    def back() -> None:
        cluster.start(3)
        until(lambda: all(led(cluster, number) == ALL for number in cluster.brokers))

    say("and is back, leading", seconds(back), "s")


def office(cluster: Cluster) -> None:
    held = cluster.controller
    cluster.kill(held)
    until(lambda: held not in cluster.ids())
    began = time.monotonic()

    def known() -> bool:
        new = cluster.controller
        views = [cluster.view(number).get("controller_id") for number in cluster.brokers]
        return new not in (-1, held) and set(views) == {new}

    until(known)
    say("a new controller, known to all, after the session's end", time.monotonic() - began, "s")
    cluster.start(held)
    until(lambda: all(led(cluster, number) == ALL for number in cluster.brokers))


def rolling(cluster: Cluster) -> None:
    last: dict[int, float] = {}
    gaps: dict[int, float] = {}
    failed: list[str] = []
    acknowledged = 0
    stops = threading.Event()

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        if error is not None:
            failed.append(str(error))
            return
        acknowledged += 1
        now, partition = time.monotonic(), message.partition()
        gaps[partition] = max(gaps.get(partition, 0.0), now - last.get(partition, now))
        last[partition] = now

    settings = {"bootstrap.servers": cluster.bootstrap(), "enable.idempotence": True}
    producer = Producer({**settings, "linger.ms": 5, "log_level": 0})

    def load() -> None:
        number = 0
        while not stops.is_set():
            for partition in range(PARTITIONS):
                producer.produce("t0", str(number), partition=partition, on_delivery=delivered)
                number += 1
            producer.poll(0.05)
        producer.flush(60)

    thread = threading.Thread(target=load)
    thread.start()
    restarts = []
    for number in (1, 2, 3):
        time.sleep(1)
        restarts.append(seconds(lambda n=number: (cluster.stop(n), cluster.start(n))))
        until(lambda: all(led(cluster, each) == ALL for each in cluster.brokers))
    time.sleep(1)
    stops.set()
    thread.join()
    read = len(set(cluster.consume("t0", acknowledged, "bench")))
    say("rolling restart: slowest restart of a broker", max(restarts), "s")
    say("longest time that a partition acknowledged nothing", max(gaps.values()), "s")
    say("deliveries that failed", len(failed), "")
    say("acknowledged records that are not there", acknowledged - read, f"of {acknowledged}")


if __name__ == "__main__":
    main()
