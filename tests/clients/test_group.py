"""Members of classic groups, eager and cooperative, on krust and on Kafka alike."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import krust
from krust.clients.consumer import Consumer
from krust.coordinator.assignors.assignor import GroupAssignment, GroupSpec, TopicDescriber
from krust.errors import KafkaError
from tests.clients.conftest import create
from tests.leftovers import nothing_left

Member = Callable[..., Consumer]


@pytest.fixture
def member(bootstrap: str, name: str) -> Iterator[Member]:
    """Makes members of one group, and closes them."""
    with contextlib.ExitStack() as stack:

        def make(**more: object) -> Consumer:
            settings: dict[str, Any] = {
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 100,
                **more,
            }
            return stack.enter_context(
                krust.Consumer(bootstrap_servers=bootstrap, group_id=name, **settings)
            )

        yield make


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """Three partitions of ten records."""
    fill(bootstrap, topic)
    return topic


def fill(bootstrap: str, topic: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(30):
            producer.produce(topic, b"%d" % number, partition=number % 3)


def until(check: Callable[[], bool], *members: Consumer) -> list[bytes | None]:
    """Poll the members in turn until something holds; what they read."""
    values: list[bytes | None] = []
    while not check():
        for one in members:
            values += [record.value for record in one.poll(20)]
    return values


def settle(count: int, *members: Consumer) -> None:
    """Poll until every member has something, and they have so many partitions together."""
    until(
        lambda: len(places(*members)) == count and all(one.assignment() for one in members),
        *members,
    )


def patient(member: Consumer, max_poll_ms: int) -> None:
    """From now on a member may stay away from `poll` for so long.

    At first it may for long, whatever a busy machine does: only where a test wants it to have
    stayed away for too long is it little.
    """
    assert member._member is not None
    member._member.config = member._member.config._replace(max_poll_ms=max_poll_ms)


def places(*members: Consumer) -> list[tuple[str, int]]:
    return sorted(place for one in members for place in one.assignment())


def share_and_hand_over(bootstrap: str, topic: str, member: Callable[[], Consumer]) -> None:
    """One has all, two share, one has all again: each record is read, and once."""
    everything = [(topic, partition) for partition in range(3)]
    one = member()
    one.subscribe([topic])
    values = until(lambda: one.assignment() == everything, one)
    while len(values) < 30:
        values += [record.value for record in one.poll(20)]
    two = member()
    two.subscribe([topic])
    values += until(lambda: places(one, two) == everything and bool(two.assignment()), one, two)
    assert sorted((len(one.assignment()), len(two.assignment()))) == [1, 2]
    fill(bootstrap, topic)
    while len(values) < 60:
        values += [record.value for record in one.poll(20) + two.poll(20)]
    assert Counter(values) == {b"%d" % number: 2 for number in range(30)}
    two.close()
    values += until(lambda: one.assignment() == everything, one)
    assert len(values) == 60


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_second_member_takes_half_and_no_record_is_lost_or_read_twice(
    bootstrap: str, filled: str, member: Member, strategy: str
) -> None:
    share_and_hand_over(bootstrap, filled, lambda: member(partition_assignment_strategy=strategy))


def test_eager_members_revoke_everything_and_cooperative_members_only_what_moves(
    filled: str, member: Member
) -> None:
    for strategy, given_back in (("range", 3), ("cooperative-sticky", 1)):
        revoked: list[int] = []
        one = member(partition_assignment_strategy=strategy)

        def on_revoke(
            _: Consumer, places: list[krust.TopicPartition], to: list[int] = revoked
        ) -> None:
            to.append(len(places))

        one.subscribe([filled], on_revoke=on_revoke)
        settle(3, one)
        two = member(partition_assignment_strategy=strategy)
        two.subscribe([filled])
        settle(3, one, two)
        assert revoked[0] == given_back
        one.close()
        two.close()


def test_listeners_hear_of_assigned_and_revoked_partitions_and_may_seek(
    filled: str, member: Member
) -> None:
    heard: list[tuple[str, list[tuple[str, int]]]] = []
    one = member()

    def assigned(consumer: Consumer, places: list[krust.TopicPartition]) -> None:
        heard.append(("assigned", sorted(places)))
        for place in places:
            consumer.seek(*place, 8)

    def revoked(consumer: Consumer, places: list[krust.TopicPartition]) -> None:
        heard.append(("revoked", sorted(places)))

    one.subscribe([filled], on_assign=assigned, on_revoke=revoked)
    values = until(lambda: len(one.assignment()) == 3, one)
    while len(values) < 6:
        values += [record.value for record in one.poll(20)]
    assert sorted(values, key=lambda value: int(value or b"")) == [b"%d" % n for n in range(24, 30)]
    one.unsubscribe()
    everything = [(filled, partition) for partition in range(3)]
    assert heard == [("assigned", everything), ("revoked", everything)]
    assert one.assignment() == []


def test_close_commits_the_position_and_the_next_member_continues_there(
    filled: str, member: Member
) -> None:
    one = member(max_poll_records=7)
    one.subscribe([filled])
    read = [record.value for record in _some(one)]
    one.close()
    two = member()
    two.subscribe([filled])
    while len(read) < 30:
        read += [record.value for record in two.poll(100)]
    assert Counter(read) == {b"%d" % number: 1 for number in range(30)}


def _some(consumer: Consumer) -> list[krust.Record]:
    while not (records := consumer.poll(100)):
        pass
    return records


def test_a_member_that_leaves_is_removed_at_once_and_leaves_no_thread(
    bootstrap: str, filled: str, member: Member
) -> None:
    with nothing_left():
        before = set(threading.enumerate())
        one = member()
        one.subscribe([filled])
        until(lambda: len(one.assignment()) == 3, one)
        assert len(set(threading.enumerate()) - before) == 1
        one.close()
    two = member()
    two.subscribe([filled])
    until(lambda: len(two.assignment()) == 3, two)


def test_a_member_that_does_not_poll_loses_its_partitions_and_its_listener_is_called(
    filled: str, member: Member
) -> None:
    lost: list[int] = []
    one = member()
    one.subscribe([filled], on_lost=lambda _, places: lost.append(len(places)))
    until(lambda: len(one.assignment()) == 3, one)
    patient(one, 1)
    two = member()
    two.subscribe([filled])
    until(lambda: len(two.assignment()) == 3, two)
    with pytest.raises(KafkaError):
        one.commit({(filled, 0): 1})
    until(lambda: bool(lost), one)
    assert lost == [3]


def test_a_static_member_returns_to_its_assignment_without_a_rebalance(
    filled: str, member: Member
) -> None:
    revoked: list[object] = []
    one = member(group_instance_id="one")
    two = member(group_instance_id="two")
    one.subscribe([filled], on_revoke=lambda *what: revoked.append(what))
    two.subscribe([filled])
    settle(3, one, two)
    had = two.assignment()
    revoked.clear()
    two.close()
    again = member(group_instance_id="two")
    again.subscribe([filled])
    until(lambda: again.assignment() == had, again)
    assert not revoked


def test_a_pattern_subscribes_to_topics_created_later(
    bootstrap: str, name: str, member: Member
) -> None:
    one = member(metadata_max_age_ms=100)
    one.subscribe([f"^{name}-.*"])
    one.poll(0)
    for count, suffix in enumerate("ab", 1):
        create(bootstrap, f"{name}-{suffix}", 1)
        settle(count, one)
    assert one.assignment() == [(f"{name}-a", 0), (f"{name}-b", 0)]


class Backwards:
    """All partitions to the member whose id is the last."""

    name = "backwards"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        last = max(group.members)
        return {
            last: [
                (topic, partition)
                for topic in sorted(group.members[last].topics)
                for partition in range(topics.partitions(topic))
            ]
        }


def test_a_custom_assignor_assigns_the_partitions(filled: str, member: Member) -> None:
    one = member(partition_assignment_strategy=[Backwards, "range"])
    two = member(partition_assignment_strategy=[Backwards(), "range"])
    for each in (one, two):
        each.subscribe([filled])
    until(lambda: sorted((len(one.assignment()), len(two.assignment()))) == [0, 3], one, two)


def test_a_member_shares_a_group_with_other_clients(
    bootstrap: str, filled: str, member: Member
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": filled,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 100,
        }
    )
    one = member(partition_assignment_strategy="cooperative-sticky")
    try:
        other.subscribe([filled])
        one.subscribe([filled])
        while len(one.assignment()) + len(other.assignment()) != 3 or not (
            one.assignment() and other.assignment()
        ):
            one.poll(20)
            other.poll(0.02)
    finally:
        other.close()
    until(lambda: len(one.assignment()) == 3, one)
