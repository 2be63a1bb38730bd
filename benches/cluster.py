"""What a cluster of three brokers on one ZooKeeper costs with 3,000 partitions.

Prints one line a figure: topics made and known everywhere, the controller at rest, Metadata of all
as bytes on a socket, a broker's restart, a new controller after the old one was killed (from the
end of its session), a rolling restart under an idempotent producer: failures, losses, longest gap.
Metadata is asked by turns with three brokers of Kafka 3.9.1 on the same ZooKeeper, after WARM
requests for Java to get going; `--only metadata` is that alone. `--only leaders`: the time of
JoinGroup at the controller while 3,000 partitions change leaders, and before that.
Needs Java; ZooKeeper's jars come from Maven.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from tests.cluster.brokers import Cluster, until
from tests.peers import kafka
from tests.peers import zookeeper as peer

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS, PARTITIONS = 30, 100
ALL = TOPICS * PARTITIONS
IDLE_S = 10
ASKED = 200
WARM = 2000
JOINING_S = 4
KAFKA = "3.9.1"


def main() -> None:
    if sys.argv[1:] == ["--only", "leaders"]:
        leaders()
        return
    only = sys.argv[1:] == ["--only", "metadata"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "zk").mkdir()
        with (
            peer.running(folder / "zk") as ensemble,
            Cluster(folder, f"{ensemble.connect}/k") as cluster,
        ):
            create(cluster)
            if not only:
                rest(cluster)
            metadata(cluster, folder, ensemble.connect)
            if only:
                return
            restart(cluster)
            new_controller(cluster)
            rolling(cluster)


def leaders() -> None:
    """JoinGroup of one member, over and over, while a broker that leads 3,000 partitions dies."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "zk").mkdir()
        settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 6}
        with (
            peer.running(folder / "zk") as ensemble,
            Cluster(folder, f"{ensemble.connect}/k", **settings) as cluster,
        ):
            held = cluster.controller
            victim, third = (number for number in cluster.brokers if number != held)
            replicas = {str(index): [victim, held, third] for index in range(ALL)}
            topic = {"version": 2, "partitions": replicas}
            moving = {"adding_replicas": {}, "removing_replicas": {}}
            cluster.tree.create("/brokers/topics/moved", json.dumps(topic | moving).encode())
            until(lambda: led(cluster, held, by=victim) == ALL)
            member = GroupMember(cluster, held)
            before_ms = member.joins()
            cluster.kill(victim)
            cluster.missed(victim)
            during_ms = member.joins()
            moved = led(cluster, held, by=held) + led(cluster, held, by=third)
            assert moved >= ALL, f"{moved} of {ALL} leaders changed"
    for when, took_ms in (("before", before_ms), ("while 3,000 leaders change", during_ms)):
        say(f"JoinGroup {when}, p50", took_ms[len(took_ms) // 2], "ms")
        say(f"JoinGroup {when}, worst of {len(took_ms)}", took_ms[-1], "ms")


class GroupMember:
    """The only member of a group that a broker coordinates; it joins again and again."""

    def __init__(self, cluster: Cluster, coordinator: int) -> None:
        bootstrap = cluster.bootstrap(coordinator)
        self._client = Client(bootstrap, {"request.timeout.ms": 30_000})
        names = (f"g{number}" for number in range(100))
        group = next(name for name in names if self._coordinator(name) == coordinator)
        self._join = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        self._join["member_id"] = self._client.request("JoinGroup", self._join, 3)["member_id"]

    def _coordinator(self, group: str) -> int:
        """The node that coordinates a group, once there is one."""
        found: list[int] = []

        def is_found() -> bool:
            asked = {"key": group, "key_type": 0}
            answer = self._client.request("FindCoordinator", asked, 1)
            found.append(answer["node_id"])
            return bool(answer["error_code"] == 0)

        until(is_found)
        return found[-1]

    def joins(self) -> list[float]:
        """The milliseconds of each JoinGroup in some seconds, sorted."""
        took_ms: list[float] = []
        end = time.monotonic() + JOINING_S
        while time.monotonic() < end:
            began = time.perf_counter()
            answer = self._client.request("JoinGroup", self._join, 3)
            took_ms.append((time.perf_counter() - began) * 1000)
            assert answer["error_code"] == 0, answer
            time.sleep(0.0005)
        return sorted(took_ms)


def say(what: str, value: float, unit: str) -> None:
    print(f"{what:<58} {value:8.2f} {unit}", flush=True)


def led(cluster: Cluster, number: int, by: int | None = None) -> int:
    """How many partitions have a leader, or this one, by a broker's metadata."""
    topics = cluster.view(number).get("topics", ())
    leaders_of = [each["leader_id"] for topic in topics for each in topic["partitions"]]
    return sum(leader >= 0 if by is None else leader == by for leader in leaders_of)


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
    time.sleep(IDLE_S)  # the interval that is measured
    say("the controller at rest", (used_s() - before) / IDLE_S * 100, "% of a core")


def metadata(cluster: Cluster, folder: Path, zookeeper: str) -> None:
    """krust's and Kafka's, one after the other each time."""
    settings = {"zookeeper.session.timeout.ms": 4000}
    with ExitStack() as stack:
        lines = {"krust": stack.enter_context(Line(cluster.brokers[2].address))}
        if reason := kafka.missing():
            print(f"no Kafka beside it: {reason}")
        else:
            theirs = kafka.several(KAFKA, folder / "kafka", 3, f"{zookeeper}/kafka", settings)
            places = stack.enter_context(theirs)
            made = filled(places)
            host, _, port = places[1].rpartition(":")
            lines[f"Kafka {KAFKA}"] = stack.enter_context(Line((host, int(port))))
            say(f"Kafka {KAFKA}: 3,000 partitions made, known to every broker", made, "s")
        for line in lines.values():
            for _ in range(WARM):
                line.metadata()
        took_ms: dict[str, list[float]] = {name: [] for name in lines}
        for _ in range(ASKED):
            for name, line in lines.items():
                took_ms[name].append(seconds(line.metadata) * 1000)
        p50_ms = {name: sorted(took)[ASKED // 2] for name, took in took_ms.items()}
        for name, p50 in p50_ms.items():
            say(f"{name}: Metadata of all topics, p50", p50, "ms")
            say(f"{name}: bytes of it", lines[name].size / 1024, "KiB")
        ours, *other = p50_ms.values()
        for each in other:
            say("krust's beside Kafka's", ours / each, "x")


def filled(places: list[str]) -> float:
    """Make the same topics in a Kafka, and wait until every broker knows them."""
    admin = AdminClient({"bootstrap.servers": ",".join(places)})
    began = time.monotonic()
    made = admin.create_topics(
        [NewTopic(f"t{n}", PARTITIONS, 1) for n in range(TOPICS)], operation_timeout=60
    )
    for each in made.values():
        each.result(120)

    def led_at(place: str) -> int:
        seen = AdminClient({"bootstrap.servers": place}).list_topics(timeout=30).topics.values()
        return sum(each.leader >= 0 for topic in seen for each in topic.partitions.values())

    until(lambda: all(led_at(place) == ALL for place in places))
    return time.monotonic() - began


class Line:
    """A connection that asks for Metadata of all topics, version 8."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self.size = 0
        body = struct.pack(">hhih", 3, 8, 1, -1) + struct.pack(">i???", -1, False, False, False)
        self._frame = struct.pack(">i", len(body)) + body

    def metadata(self) -> None:
        """Ask, and read the answer to its end."""
        self._socket.sendall(self._frame)
        head = self._socket.recv(4, socket.MSG_WAITALL)
        self.size = left = int.from_bytes(head, "big")
        while left:
            left -= len(self._socket.recv(min(left, 1 << 20)))

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def restart(cluster: Cluster) -> None:
    say("a broker with 1,000 of them stops", seconds(lambda: cluster.stop(3)), "s")

    def back() -> None:
        cluster.start(3)
        until(lambda: all(led(cluster, number) == ALL for number in cluster.brokers))

    say("and is back, leading", seconds(back), "s")


def new_controller(cluster: Cluster) -> None:
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
        time.sleep(1)  # the load runs undisturbed between two restarts
        restarts.append(seconds(lambda n=number: (cluster.stop(n), cluster.start(n))))
        until(lambda: all(led(cluster, each) == ALL for each in cluster.brokers))
    time.sleep(1)  # and after the last
    stops.set()
    thread.join()
    read = len(set(cluster.consume("t0", acknowledged, "bench")))
    say("rolling restart: slowest restart of a broker", max(restarts), "s")
    say("longest time that a partition acknowledged nothing", max(gaps.values()), "s")
    say("deliveries that failed", len(failed), "")
    say("acknowledged records that are not there", acknowledged - read, f"of {acknowledged}")


if __name__ == "__main__":
    main()
