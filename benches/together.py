"""How often two consumers of a new group that start together make more than one generation.

    python benches/together.py [--rounds 40]

Two confluent-kafka consumers, each in a thread, subscribe at the same moment; a fresh group each
round. krust runs in dev mode, Apache Kafka 3.9.1 with group.initial.rebalance.delay.ms=0, and they
take turns. It is no test: it reports when krust does so more often than Kafka.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from groups import PARTITIONS, PATIENCE_S, TOPIC, embedded, fill, kafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition


class Member(threading.Thread):
    """A consumer that remembers each of its assignments."""

    def __init__(self, bootstrap: str, group_id: str, start: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.assigned: list[int] = []
        self.ends = threading.Event()
        self._options = {"bootstrap.servers": bootstrap, "group.id": group_id}
        self._start = start

    def run(self) -> None:
        """Subscribe, poll until it is to end, leave."""
        from confluent_kafka import Consumer

        consumer = Consumer(self._options)
        self._start.wait()
        consumer.subscribe([TOPIC], on_assign=self._assign)
        while not self.ends.is_set():
            consumer.poll(0.02)
        consumer.close()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append(len(partitions))


def made_two_generations(bootstrap: str) -> bool:
    """One round: whether one of two members was assigned more than once."""
    start = threading.Barrier(2)
    group_id = uuid.uuid4().hex
    members = [Member(bootstrap, group_id, start) for _ in range(2)]
    for member in members:
        member.start()
    end = time.monotonic() + PATIENCE_S

    def shared() -> bool:
        last = [member.assigned[-1] for member in members if member.assigned]
        return len(last) == len(members) and all(last) and sum(last) == PARTITIONS

    while not shared() and time.monotonic() < end:
        time.sleep(0.005)
    for member in members:
        member.ends.set()
    for member in members:
        member.join(PATIENCE_S)
    return any(len(member.assigned) > 1 for member in members)


def main() -> None:
    """Run the rounds by turns, print how many of each made two generations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {}
        for name, begin in (("krust", embedded), ("kafka 3.9.1", kafka)):
            home = Path(folder) / name.replace(" ", "-")
            home.mkdir()
            servers[name] = stack.enter_context(begin(home)).bootstrap
            fill(servers[name])
        twice = dict.fromkeys(servers, 0)
        for turn in range(rounds + 1):
            for name, bootstrap in servers.items():
                is_twice = made_two_generations(bootstrap)
                twice[name] += is_twice and turn > 0  # the first round makes the offsets topic
        for name, count in twice.items():
            print(f"{name:<12} two generations in {count} of {rounds} rounds")


if __name__ == "__main__":
    main()
