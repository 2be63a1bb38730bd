"""Members of real clients join, leave and die; the group loses and repeats no record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.members import (
    CONSUMER_KINDS,
    JAVA_KINDS,
    PARTITIONS,
    PYTHON_KINDS,
    Member,
    fill,
    make,
    members,
    wait_until,
)
from tests.ports import free_port
from tests.serving import AT_ONCE, ServedBroker

KINDS = [
    pytest.param(kind, marks=[pytest.mark.java] * kind.startswith("java"))
    for kind in PYTHON_KINDS + JAVA_KINDS + CONSUMER_KINDS
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    other = os.environ.get("KRUST_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with ServedBroker(tmp_path_factory.mktemp("groups") / "data", options=AT_ONCE) as served:
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
def test_two_members_share_and_the_remaining_one_takes_over(broker: str, kind: str) -> None:
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


MIXED = [
    ("confluent-range", "kafka-python", "kafka-python-0.9"),
    pytest.param(("java-3.9.1", "java-4.3.0", "confluent-range"), marks=pytest.mark.java),
    pytest.param(("java-3.9.1", "kafka-python-0.9", "java-4.3.0"), marks=pytest.mark.java),
]


@pytest.mark.parametrize("kinds", MIXED, ids="+".join)
def test_clients_of_different_make_share_a_group(broker: str, kinds: tuple[str, ...]) -> None:
    topic = f"mixed-{'-'.join(kinds)}-{os.getpid()}"
    make(broker, topic)
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
    broker = ServedBroker(data, port=free_port())
    bootstrap, port = broker.bootstrap, broker.address[1]
    made: list[Member] = []
    try:
        make(bootstrap, topic)
        fill(bootstrap, topic, 0, 20)
        made = [Member(kind, bootstrap, "g", topic) for _ in range(2)]
        wait_until("some commits", lambda: sum(len(each.reports) for each in made) > 60)
        broker.kill()
        broker = ServedBroker(data, port=port)
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
        found = {each.partition: each.offset for each in reader.committed(wanted, 60)}
        reader.close()
        assert all(found[p] >= last[p] for p in last), (found, last)
    finally:
        for each in made:
            each.kill()
        broker.kill()
