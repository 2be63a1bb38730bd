"""Offsets that nobody reads expire after days, with tombstones in the log, and so do empty groups.
The test moves the broker's wall clock. Expiry rounds come every 100 ms of real time; a group whose
only offset expires at once shows when a round has passed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from tests.serving import ServedBroker
from tests.three_brokers import Command
from tests.waiting import WAIT_S, until

HOUR_S = 3600
RETENTION_H = 24
OPTIONS: dict[str, object] = {
    "offsets.retention.minutes": RETENTION_H * 60,
    "offsets.retention.check.interval.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
TOPICS = ("kept", "left")
CANARY = "canary"


class TimedBroker:
    """A broker whose wall clock is set in hours from its start."""

    def __init__(self, clock: Path, data: Path) -> None:
        self.clock, self.data = clock, data
        self.preload = os.environ["LD_PRELOAD"]
        self.broker = self.start()

    def start(self) -> ServedBroker:
        os.environ["LD_PRELOAD"] = self.preload
        try:
            self.broker = ServedBroker(self.data, options=OPTIONS)
        finally:
            del os.environ["LD_PRELOAD"]
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        return self.broker

    def at(self, hours: float) -> None:
        """Set the clock and wait for a whole expiry round."""
        self.clock.write_text(str(int(hours * HOUR_S)))
        for _ in range(2):  # the first may go in a round that began before
            self.short_lived()
            until(lambda: CANARY not in self.groups())

    def short_lived(self) -> None:
        """A commit that is kept for a millisecond, as clients up to 2018 may ask for it."""
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": TOPICS[0], "partitions": [partition]}]
        body = {"group_id": CANARY, "member_id": "", "generation_id_or_member_epoch": -1}
        client = Client(self.broker.bootstrap)
        [topic] = client.request(
            "OffsetCommit", body | {"retention_time_ms": 1, "topics": topics}, 2
        )["topics"]
        assert topic["partitions"][0]["error_code"] == 0
        client.close()

    def consumer(self, group: str, **more: Any) -> Consumer:
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": group}
        return Consumer({**settings, "enable.auto.commit": False, **more})

    def commit(self, group: str, topic: str, offset: int) -> None:
        """A commit without membership."""
        consumer = self.consumer(group)
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    def member(self, group: str, topics: list[str]) -> Consumer:
        """A member that has been assigned its partitions."""
        member = self.consumer(group)
        member.subscribe(topics)
        until(lambda: (member.poll(0.05), len(member.assignment()) == len(topics))[1])
        return member

    def committed(self, group: str) -> dict[str, int]:
        """Topic -> committed offset, for topics that have one."""
        consumer = self.consumer(group)
        places = consumer.committed([TopicPartition(topic, 0) for topic in TOPICS], WAIT_S)
        consumer.close()
        return {each.topic: each.offset for each in places if each.offset >= 0}

    def groups(self) -> set[str]:
        return {each.group_id for each in self.admin.list_consumer_groups().result(WAIT_S).valid}

    def is_empty(self, group: str) -> bool:
        described = self.admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return bool(described.state == ConsumerGroupState.EMPTY)

    def records(self, group: str) -> list[tuple[str, bool]]:
        """Kind of each record of a group in the log, and whether it is a tombstone."""
        krust, found = Command(self.broker.bootstrap), []
        for log in self.data.glob("__consumer_offsets-*/*.log"):
            for batch in krust.ok("log", "dump", str(log), "--records", "--json").lines():
                decoded = [record["decoded"] for record in batch["records"]]
                found += [(it["kind"], not it["value"]) for it in decoded if it["group"] == group]
        return found


@pytest.fixture
def timed(clock: Path, tmp_path: Path) -> Iterator[TimedBroker]:
    found = TimedBroker(clock, tmp_path / "data")
    made = found.admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS])
    for each in made.values():
        each.result(WAIT_S)
    try:
        yield found
        assert found.broker.stop() == 0, found.broker.stderr()
    finally:
        if found.broker.process.poll() is None:
            found.broker.kill()


def test_a_group_that_never_had_members_goes_with_its_last_offset(timed: TimedBroker) -> None:
    timed.commit("loner", "kept", 3)
    timed.at(1)
    timed.commit("loner", "left", 4)
    timed.at(RETENTION_H - 0.1)
    assert timed.committed("loner") == {"kept": 3, "left": 4}
    timed.at(RETENTION_H + 0.1)
    assert timed.committed("loner") == {"left": 4}
    assert "loner" in timed.groups()
    timed.at(RETENTION_H + 1.1)
    assert timed.committed("loner") == {}
    assert "loner" not in timed.groups()
    assert timed.records("loner") == [("offset", False)] * 2 + [("offset", True)] * 2
    timed.broker.kill()
    timed.start()
    assert timed.committed("loner") == {}
    assert "loner" not in timed.groups()


def test_offsets_of_an_empty_group_expire_after_its_last_member_left(timed: TimedBroker) -> None:
    member = timed.member("gone", ["kept"])
    member.commit(offsets=[TopicPartition("kept", 0, 5)], asynchronous=False)
    timed.at(10 * RETENTION_H)
    assert timed.committed("gone") == {"kept": 5}, "a member reads it"
    member.close()
    until(lambda: timed.is_empty("gone"))
    timed.at(11 * RETENTION_H - 0.1)
    assert timed.committed("gone") == {"kept": 5}
    assert "gone" in timed.groups()
    timed.at(11 * RETENTION_H + 0.1)
    assert "gone" not in timed.groups()
    assert timed.committed("gone") == {}
    kinds = timed.records("gone")
    assert kinds[-2:] == [("offset", True), ("group", True)]
    timed.broker.kill()
    timed.start()
    assert timed.committed("gone") == {}
    assert "gone" not in timed.groups()


def test_a_stable_group_loses_only_offsets_of_topics_without_subscriber(timed: TimedBroker) -> None:
    timed.commit("half", "left", 7)
    member = timed.member("half", ["kept"])
    member.commit(offsets=[TopicPartition("kept", 0, 5)], asynchronous=False)
    timed.at(RETENTION_H + 0.1)
    assert timed.committed("half") == {"kept": 5}
    assert "half" in timed.groups()
    assert ("offset", True) in timed.records("half")
    member.close()


def test_an_empty_group_is_kept_while_somebody_commits(timed: TimedBroker) -> None:
    timed.commit("busy", "kept", 1)
    for day in range(1, 4):
        timed.at(day * RETENTION_H - 0.1)
        timed.commit("busy", "kept", day)
    timed.at(3 * RETENTION_H + 0.1)
    assert timed.committed("busy") == {"kept": 3}
    assert "busy" in timed.groups()
