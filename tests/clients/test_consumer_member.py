"""Members of consumer groups (KIP-848), on krust and on Kafka alike."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import krust
from krust import _krust
from krust.clients.consumer import Consumer
from krust.clients.consumer_member import STALE_EPOCH, UNSUPPORTED
from krust.clients.coordinator_client import refused
from krust.errors import ConfigError, KafkaError
from tests.clients.test_group import Member, fill, patient, settle, share_and_hand_over, until
from tests.proxy import Cutting, behind

CONSUMER_GROUP_HEARTBEAT = 68


def serves(bootstrap: str) -> bool:
    """Kafka 3.9 knows the request, and refuses it unless it is told otherwise."""
    empty = {"group_id": "", "member_id": "", "member_epoch": 0}
    answer = _krust.Client(bootstrap).request("ConsumerGroupHeartbeat", empty, 0)
    return bool(answer["error_code"] != UNSUPPORTED)


@pytest.fixture
def member(bootstrap: str, name: str) -> Iterator[Member]:
    """Makes members of one consumer group, and closes them."""
    if not serves(bootstrap):
        pytest.skip("this broker has no consumer groups (KIP-848)")
    with contextlib.ExitStack() as stack:

        def make(**more: object) -> Consumer:
            settings: dict[str, Any] = {
                "bootstrap_servers": bootstrap,
                "auto_offset_reset": "earliest",
                **more,
            }
            made = krust.Consumer(group_id=name, group_protocol="consumer", **settings)
            return stack.enter_context(made)

        yield make


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """Three partitions of ten records."""
    fill(bootstrap, topic)
    return topic


def test_members_take_the_brokers_assignment_and_no_record_is_lost_or_read_twice(
    bootstrap: str, filled: str, member: Member
) -> None:
    share_and_hand_over(bootstrap, filled, member)


def test_a_member_revokes_only_what_moves_and_its_listener_is_called(
    filled: str, member: Member
) -> None:
    heard: list[tuple[str, int]] = []
    one = member()
    one.subscribe(
        [filled],
        on_assign=lambda _, places: heard.append(("assigned", len(places))),
        on_revoke=lambda _, places: heard.append(("revoked", len(places))),
    )
    settle(3, one)
    two = member()
    two.subscribe([filled])
    settle(3, one, two)
    assert ("revoked", 1) in heard
    assert sum(count for what, count in heard if what == "assigned") == 3


def test_a_group_continues_at_the_position_of_a_member_that_left(
    filled: str, member: Member
) -> None:
    one = member(enable_auto_commit=False)
    one.subscribe([filled])
    settle(3, one)
    seen = until(lambda: all(one.position(filled, p) == 10 for p in range(3)), one)
    assert len(seen) <= 30
    one.commit({(filled, 0): 4, (filled, 1): 10, (filled, 2): 10})
    one.close()
    two = member()
    two.subscribe([filled])
    values = until(lambda: len(two.assignment()) == 3, two)
    while len(values) < 6:
        values += [record.value for record in two.poll(50)]
    assert Counter(values) == Counter(b"%d" % number for number in range(12, 30, 3))


def test_new_partitions_and_topics_that_a_pattern_matches_are_shared(
    bootstrap: str, topic: str, member: Member
) -> None:
    one = member(metadata_max_age_ms=50)
    one.subscribe([f"^{topic}.*"])
    settle(3, one)
    client = _krust.Client(bootstrap)
    new = {"name": f"{topic}-more", "num_partitions": 2, "replication_factor": 1}
    client.request("CreateTopics", {"topics": [new], "timeout_ms": 60_000})
    until(lambda: len(one.assignment()) == 5, one)
    more = {"topics": [{"name": topic, "count": 4, "assignments": None}], "timeout_ms": 60_000}
    client.request("CreatePartitions", more)
    until(lambda: len(one.assignment()) == 6, one)


def test_a_static_member_comes_back_to_its_share(filled: str, member: Member) -> None:
    one, two = member(group_instance_id="a"), member(group_instance_id="b")
    for consumer in (one, two):
        consumer.subscribe([filled])
    settle(3, one, two)
    held = one.assignment()
    one.close()
    again = member(group_instance_id="a")
    again.subscribe([filled])
    until(lambda: bool(again.assignment()), again, two)
    assert again.assignment() == held


def test_a_member_that_does_not_poll_leaves_and_joins_again(filled: str, member: Member) -> None:
    lost: list[int] = []
    slow, other = member(), member()
    slow.subscribe([filled], on_lost=lambda _, places: lost.append(len(places)))
    settle(3, slow)
    patient(slow, 1)
    other.subscribe([filled])
    until(lambda: len(other.assignment()) == 3, other)
    patient(slow, 600_000)
    settle(3, slow, other)
    assert lost == [3]


def test_lost_answers_cost_a_member_nothing(tmp_path: Path) -> None:
    cutting = Cutting(3, [CONSUMER_GROUP_HEARTBEAT], lambda frame: frame[:7])
    often = "group.consumer.heartbeat.interval.ms=100"
    with behind(tmp_path, cutting, "-o", often, "-o", "num.partitions=3") as bootstrap:
        fill(bootstrap, "orders")
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
        with krust.Consumer(
            "orders", group_id="g", group_protocol="consumer", **settings
        ) as consumer:
            values = until(lambda: cutting.cuts > 3 and len(consumer.assignment()) == 3, consumer)
            while len(values) < 30:
                values += [record.value for record in consumer.poll(50)]
    assert Counter(values) == Counter(b"%d" % number for number in range(30))


def test_an_automatic_commit_with_a_stale_epoch_is_repeated_with_the_next(
    filled: str, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = member(auto_commit_interval_ms=1)
    one.subscribe([filled])
    values = until(lambda: len(one.assignment()) == 3, one)
    member_of, committer = one._member, one._committer
    assert member_of is not None
    assert committer is not None

    def stale(*_: object) -> None:
        raise refused(STALE_EPOCH, "commit")

    with monkeypatch.context() as patch:
        patch.setattr(member_of, "wait_for_new_epoch", lambda _: False)
        patch.setattr(committer, "commit", stale)
        with pytest.raises(KafkaError, match="stale member epoch"):
            one.commit({(filled, 0): 1})
        while len(values) < 30:
            values += [record.value for record in one.poll(20)]
    assert Counter(values) == Counter(b"%d" % number for number in range(30))


def test_a_setting_of_the_broker_is_refused_in_a_client() -> None:
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms"):
        krust.Consumer(
            bootstrap_servers="localhost:1",
            group_id="g",
            group_protocol="consumer",
            session_timeout_ms=6000,
        )
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor"):
        krust.Consumer(bootstrap_servers="localhost:1", group_id="g", group_remote_assignor="range")


def test_a_broker_without_consumer_groups_is_a_clear_error(
    bootstrap: str, topic: str, name: str
) -> None:
    if serves(bootstrap):
        pytest.skip("this broker has consumer groups")
    consumer = krust.Consumer(
        topic, bootstrap_servers=bootstrap, group_id=name, group_protocol="consumer"
    )
    with consumer, pytest.raises(ConfigError, match="no consumer groups"):
        until(lambda: False, consumer)
