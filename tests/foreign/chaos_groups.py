"""Groups of every kind of client come and go for minutes, under kill -9 of members and broker.

    python -m tests.foreign.chaos_groups [--seconds 300] [--seed N] [--keep FOLDER]

A broker, a producer that never stops, and per group two to four members of changing kinds. Every
few seconds one joins, leaves, dies or freezes for longer than its session; now and then the broker
dies and comes back, in either mode. Then the faults stop, the members read the rest, and
group_checks.py checks all outputs. Exit code 1: a check failed, and FOLDER has the outputs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.foreign import group_checks
from tests.foreign.members import (
    CONSUMER_KINDS,
    JAVA_KINDS,
    PARTITIONS,
    PYTHON_KINDS,
    Member,
    make,
)
from tests.peers import kafka
from tests.ports import free_port
from tests.serving import ServedBroker

COOPERATIVE = ("confluent-cooperative", "java-3.9.1-cooperative", "java-4.3.0-cooperative")
EAGER = (*(kind for kind in PYTHON_KINDS if kind not in COOPERATIVE), *JAVA_KINDS)
FEWEST, MOST = 2, 4
SESSION_MS = 6000
FROZEN_S = 1.5 * SESSION_MS / 1000
PRODUCED_A_SECOND = 20
QUIET_S = 180
SHOWN = 90
OPTIONS: dict[str, object] = {
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.migration.policy": "bidirectional",
}
WEIGHTS = {"join": 5, "leave": 3, "kill": 4, "freeze": 1, "broker": 2}


class Group:
    """One group, its topic of the same name, and all members that it ever had."""

    def __init__(self, name: str, kinds: tuple[str, ...]) -> None:
        self.name, self.kinds = name, kinds
        self.all: list[Member] = []
        self.alive: list[Member] = []
        self.acknowledged: Counter[int] = Counter()

    def outputs(self) -> list[list[dict[str, Any]]]:
        return [list(member.reports) for member in self.all]

    def committed(self, bootstrap: str) -> dict[int, int]:
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": self.name})
        try:
            wanted = [TopicPartition(self.name, number) for number in range(PARTITIONS)]
            found = reader.committed(wanted, QUIET_S)
            return {each.partition: max(each.offset, 0) for each in found}
        finally:
            reader.close()


class Producing(threading.Thread):
    """Writes to every partition in turn until it is stopped; survives kills of the broker."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topics = bootstrap, topics
        self.over = threading.Event()
        self.ends: dict[str, Counter[int]] = {topic: Counter() for topic in topics}

    def run(self) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "message.timeout.ms": 0, "log_level": 0})
        number = 0
        while not self.over.wait(1 / PRODUCED_A_SECOND):
            for topic in self.topics:
                partition = number % PARTITIONS
                producer.produce(
                    topic, str(number), partition=partition, on_delivery=self._delivered
                )
            producer.poll(0)
            number += 1
        assert producer.flush(QUIET_S) == 0

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        ends = self.ends[message.topic()]
        ends[message.partition()] = max(ends[message.partition()], message.offset() + 1)


class Chaos:
    """The broker, the groups, and their history."""

    def __init__(self, folder: Path, rng: random.Random, only: list[str] | None) -> None:
        self.folder, self.rng = folder, rng
        self.broker = ServedBroker(folder / "data", options=OPTIONS, port=free_port())
        self.bootstrap = self.broker.bootstrap
        kinds = {
            "eager": EAGER,
            "cooperative": COOPERATIVE,
            "consumer": CONSUMER_KINDS,
            "converting": (
                *CONSUMER_KINDS,
                "java-3.9.1",
                "java-4.3.0-cooperative",
                "confluent-range",
            ),
        }
        if why := kafka.missing():
            print(f"no members in Java: {why}")
            kinds = {n: tuple(k for k in ks if "java" not in k) for n, ks in kinds.items()}
        self.groups = [Group(name, kinds[name]) for name in only or kinds]
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        for group in self.groups:
            make(self.bootstrap, group.name)
            for _ in range(FEWEST):
                self.join(group)

    def one_event(self) -> None:
        """Apply a fault to a group or to the broker."""
        event = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if event == "broker":
            self.kill_broker()
            return
        group = self.rng.choice(self.groups)
        self.count_dead_members(group)
        if event == "join" or len(group.alive) <= FEWEST:
            event = "join" if len(group.alive) < MOST else "kill"
        {"join": self.join, "leave": self.leave, "kill": self.kill, "freeze": self.freeze}[event](
            group
        )

    def join(self, group: Group) -> None:
        member = Member(self.rng.choice(group.kinds), self.bootstrap, group.name, group.name)
        group.all.append(member)
        group.alive.append(member)
        self.count[f"joined {member.kind}"] += 1

    def leave(self, group: Group) -> None:
        member = group.alive.pop(self.rng.randrange(len(group.alive)))
        threading.Thread(target=member.leave).start()
        self.count["left"] += 1

    def kill(self, group: Group) -> None:
        group.alive.pop(self.rng.randrange(len(group.alive))).kill()
        self.count["killed"] += 1

    def freeze(self, group: Group) -> None:
        member = group.alive.pop(self.rng.randrange(len(group.alive)))
        member.freeze()

        def thaw() -> None:
            member.thaw()
            group.alive.append(member)

        threading.Timer(FROZEN_S, thaw).start()
        self.count["frozen"] += 1

    def kill_broker(self) -> None:
        """Kill the broker; every acknowledged commit is there afterwards."""
        self.broker.kill()
        for group in self.groups:
            group.acknowledged |= Counter(group_checks.acknowledged(group.outputs()))
        flags = self.rng.choice([(), ("--prod",)])
        port = self.broker.address[1]
        self.broker = ServedBroker(self.folder / "data", *flags, options=OPTIONS, port=port)
        self.count["broker killed"] += 1
        for group in self.groups:
            self.hold(group)

    def hold(self, group: Group) -> None:
        found = group.committed(self.bootstrap)
        lost = {p: (o, found[p]) for p, o in group.acknowledged.items() if found[p] < o}
        if lost:
            self.wrong.append(f"{group.name}: acknowledged, and found after a kill: {lost}")

    def count_dead_members(self, group: Group) -> None:
        """Count members whose client gave up: the broker promises them nothing."""
        for member in [each for each in group.alive if each.process.poll() is not None]:
            group.alive.remove(member)
            member.kill()
            self.count[f"gave up {member.kind}"] += 1
            print(f"{member.kind} gave up: {member.trouble.strip()[-300:]}")

    def quiet(self, ends: dict[str, Counter[int]]) -> None:
        """The remaining members read the rest."""
        time.sleep(FROZEN_S)  # members that were suspended go on within this time
        deadline = time.monotonic() + QUIET_S
        for group in self.groups:
            while not self._is_read(group, ends[group.name]):
                self.count_dead_members(group)
                while len(group.alive) < FEWEST:
                    self.join(group)
                if time.monotonic() > deadline:
                    found = group.committed(self.bootstrap)
                    self.wrong.append(f"{group.name}: read to {found} of {ends[group.name]}")
                    break
                time.sleep(0.2)

    def _is_read(self, group: Group, ends: Counter[int]) -> bool:
        done = group_checks.acknowledged(group.outputs())
        return all(done.get(partition, 0) >= end for partition, end in ends.items())

    def check_ends(self, ends: dict[str, Counter[int]]) -> None:
        for group in self.groups:
            outputs = group.outputs()
            group.acknowledged |= Counter(group_checks.acknowledged(outputs))
            self.hold(group)
            for check in (group_checks.two_owners, group_checks.went_back):
                self.wrong += [f"{group.name}: {line}" for line in check(outputs)]
            self.wrong += [f"{group.name}: {x}" for x in group_checks.by_an_old_owner(outputs)]
            self.wrong += [
                f"{group.name}: {x}" for x in group_checks.skipped(outputs, ends[group.name])
            ]
            for report in (report for reports in outputs for report in reports):
                for what in ("record", "committed", "left"):
                    self.count[f"{group.name} {what}"] += what in report
                if "refused" in report:
                    self.count[f"{group.name} refused: {report['refused'][:SHOWN]}"] += 1
            seen = {
                report["generation"]
                for reports in outputs
                for report in reports
                if "assigned" in report
            }
            self.count[f"{group.name} generations"] = len(seen)

    def end(self) -> None:
        for group in self.groups:
            for member in group.all:
                member.kill()
        self.broker.kill()

    def keep(self, folder: Path) -> None:
        for group in self.groups:
            for number, member in enumerate(group.all):
                path = folder / f"{group.name}-{number}-{member.kind}.json"
                path.write_text("".join(json.dumps(report) + "\n" for report in member.reports))
                path.with_suffix(".stderr").write_text(member.trouble)
        (folder / "broker.stderr").write_text(self.broker.stderr())


def main() -> int:
    """Run it; returns 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="chaos_groups")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--groups", nargs="*", help="these alone, of: eager, cooperative, ...")
    parser.add_argument("--keep", type=Path, default=Path("chaos-groups"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    os.environ["MEMBER_SESSION_MS"] = str(SESSION_MS)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), rng, options.groups)
        try:
            producing = Producing(chaos.bootstrap, [group.name for group in chaos.groups])
            producing.start()
            over = time.monotonic() + options.seconds
            while time.monotonic() < over:
                time.sleep(rng.uniform(0.5, 4))  # random moments between two faults
                chaos.one_event()
            producing.over.set()
            producing.join()
            chaos.quiet(producing.ends)
            chaos.check_ends(producing.ends)
        finally:
            chaos.end()
        for what, times in sorted(chaos.count.items()):
            print(f"{times:8} {what}")
        for line in chaos.wrong:
            print(f"WRONG {line}")
        if chaos.wrong:
            options.keep.mkdir(exist_ok=True)
            chaos.keep(options.keep)
    print("something was wrong" if chaos.wrong else "all held")
    return 1 if chaos.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
