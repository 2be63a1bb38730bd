"""Groups of real clients: they share a topic, come, go and die, and lose and repeat nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serving import Served

MEMBER = Path(__file__).with_name("member.py")
KINDS = ("confluent-range", "confluent-cooperative", "kafka-python", "kafka-python-0.9", "aiokafka")
PARTITIONS = 6
PATIENCE_S = 60


class Member:
    """A process in a group, and what it has said so far."""

    def __init__(self, kind: str, bootstrap: str, group: str, topic: str) -> None:
        self.said: list[dict[str, list[int]]] = []
        self.changed = threading.Condition()
        command = [sys.executable, str(MEMBER), kind, bootstrap, group, topic]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.said.append(json.loads(line))
                self.changed.notify_all()

    def owned(self) -> set[int]:
        """The partitions it has now, as far as it said."""
        owned: set[int] = set()
        for fact in list(self.said):
            owned |= set(fact.get("assigned", ()))
            owned -= set(fact.get("revoked", ()))
        return owned

    def places(self, what: str) -> list[tuple[int, int]]:
        """Partition and offset of its records or commits, in order."""
        return [(fact[what][0], fact[what][1]) for fact in list(self.said) if what in fact]

    def offsets(self, what: str) -> dict[int, list[int]]:
        """The offsets of its records or commits by partition, in order."""
        found = defaultdict(list)
        for partition, offset in self.places(what):
            found[partition].append(offset)
        return found

    def leave(self) -> None:
        """Have it leave its group and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._end()

    def kill(self) -> None:
        """End it without warning."""
        self.process.kill()
        self.process.wait()
        self._end()

    def _end(self) -> None:
        self.reader.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def members(*made: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for each in made:
            each.kill()


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def fill(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Records with numbers for values, `count` to each partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        for partition in range(PARTITIONS):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def make(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    other = os.environ.get("KRUST_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with Served(tmp_path_factory.mktemp("groups") / "data") as served:
        yield served.bootstrap


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_member_reads_all_and_its_successor_reads_on(broker: str, kind: str) -> None:
    topic = f"lone-{kind}-{os.getpid()}"
    make(broker, topic)
    fill(broker, topic, 0, 3)
    first = Member(kind, broker, topic, topic)
    with members(first):
        wait_until("all is read", lambda: sum(map(len, first.offsets("committed").values())) == 18)
        first.leave()
    fill(broker, topic, 3, 2)
    second = Member(kind, broker, topic, topic)
    with members(second):
        wait_until("the rest", lambda: sum(map(len, second.offsets("committed").values())) >= 12)
        second.leave()
    assert all(offsets == [3, 4] for offsets in second.offsets("record").values())


@pytest.mark.parametrize("kind", KINDS)
def test_two_share_and_the_one_who_stays_takes_over(broker: str, kind: str) -> None:
    topic = f"two-{kind}-{os.getpid()}"
    make(broker, topic)
    one, two = (Member(kind, broker, topic, topic) for _ in range(2))
    everything = set(range(PARTITIONS))
    with members(one, two):
        wait_until(
            "each has half",
            lambda: (
                len(one.owned()) == len(two.owned()) == 3
                and one.owned() | two.owned() == everything
            ),
        )
        two.leave()
        wait_until("one has all", lambda: one.owned() == everything)
        one.leave()


def test_a_member_that_dies_loses_its_partitions_to_the_others(broker: str) -> None:
    topic = f"dies-{os.getpid()}"
    make(broker, topic)
    one, two = (Member("confluent-range", broker, topic, topic) for _ in range(2))
    with members(one, two):
        wait_until("each has half", lambda: len(one.owned()) == len(two.owned()) == 3)
        two.kill()
        wait_until("one has all", lambda: one.owned() == set(range(PARTITIONS)))


def test_clients_of_different_make_share_a_group(broker: str) -> None:
    topic = f"mixed-{os.getpid()}"
    make(broker, topic)
    kinds = ("confluent-range", "kafka-python", "kafka-python-0.9")
    mixed = [Member(kind, broker, topic, topic) for kind in kinds]
    with members(*mixed):
        wait_until(
            "each has two",
            lambda: (
                [len(each.owned()) for each in mixed] == [2, 2, 2]
                and set.union(*(each.owned() for each in mixed)) == set(range(PARTITIONS))
            ),
        )


@pytest.mark.parametrize("kind", ["confluent-range", "confluent-cooperative", "kafka-python"])
def test_a_broker_killed_under_its_groups_loses_no_commit(tmp_path: Path, kind: str) -> None:
    data, topic = tmp_path / "data", "t"
    broker = Served(data)
    bootstrap, port = broker.bootstrap, broker.address[1]
    made: list[Member] = []
    try:
        make(bootstrap, topic)
        fill(bootstrap, topic, 0, 20)
        made = [Member(kind, bootstrap, "g", topic) for _ in range(2)]
        wait_until("some commits", lambda: sum(len(each.said) for each in made) > 60)
        broker.kill()
        broker = Served(data, port=port)
        fill(bootstrap, topic, 20, 5)
        wait_until(
            "all is read",
            lambda: (
                {(p, o) for each in made for p, os in each.offsets("record").items() for o in os}
                == {(p, o) for p in range(PARTITIONS) for o in range(25)}
            ),
        )
        last = dict.fromkeys(range(PARTITIONS), 0)
        for each in made:
            for partition, offsets in each.offsets("committed").items():
                last[partition] = max(last[partition], *offsets)
        for each in made:
            each.leave()
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
        wanted = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        found = {each.partition: each.offset for each in reader.committed(wanted, 20)}
        reader.close()
        assert all(found[p] >= last[p] for p in last), (found, last)
    finally:
        for each in made:
            each.kill()
        broker.kill()
