"""krust.Admin on krust and on Kafka alike."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import krust
from krust.clients.admin import Admin
from krust.errors import KafkaError
from tests.clients.conftest import read
from tests.clients.test_consumer_member import serves
from tests.waiting import until, until_is


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


def test_a_topic_is_created_grown_configured_and_deleted(admin: Admin, name: str) -> None:
    admin.create_topic(name, 2, config={"segment.ms": 60_000})
    assert admin.topics()[name] == 2
    until_is("60000", lambda: admin.config(name)["segment.ms"])
    admin.create_partitions(name, 3)
    assert admin.topics()[name] == 3
    admin.alter_config(name, {"segment.ms": None, "max.message.bytes": 5000})

    def settings() -> tuple[str | None, ...]:
        found = admin.config(name)
        return found["segment.ms"], found["max.message.bytes"]

    until_is(("604800000", "5000"), settings)
    admin.delete_topic(name)
    until(lambda: name not in admin.topics())


def test_a_topic_takes_records_as_soon_as_it_is_created(
    admin: Admin, bootstrap: str, name: str
) -> None:
    admin.create_topic(name, 1)
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        assert producer.send(name, b"x").result(60_000).offset == 0


@pytest.mark.parametrize(
    ("order", "refusal"),
    [
        (lambda admin, name: admin.delete_topic(name), "UNKNOWN_TOPIC_OR_PARTITION"),
        (lambda admin, name: admin.create_topic(name, 0), "INVALID_PARTITIONS"),
        (lambda admin, name: admin.create_topic("no/name", 1), "INVALID_TOPIC_EXCEPTION"),
        (lambda admin, name: admin.delete_group(name), "GROUP_ID_NOT_FOUND"),
    ],
)
def test_a_refusal_has_kafkas_error_name(
    admin: Admin, name: str, order: object, refusal: str
) -> None:
    assert callable(order)
    with pytest.raises(KafkaError) as caught:
        order(admin, name)
    assert caught.value.name == refusal
    assert not caught.value.retriable or refusal == "UNKNOWN_TOPIC_OR_PARTITION"


def test_records_are_deleted_up_to_an_offset(admin: Admin, bootstrap: str, single: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.produce(single, b"%d" % number)
    assert admin.delete_records(single, 0, 4) == 4
    with pytest.raises(KafkaError) as caught:
        read(bootstrap, single)
    assert caught.value.name == "OFFSET_OUT_OF_RANGE"


def test_groups_are_listed_with_their_offsets_and_deleted(
    admin: Admin, bootstrap: str, topic: str
) -> None:
    with krust.Consumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        consumer.commit({(topic, 1): 7})
    assert topic in admin.groups()
    assert admin.committed(topic, topic, 3) == {(topic, 1): 7}
    admin.delete_group(topic)
    assert topic not in admin.groups()


def test_offsets_are_listed_by_time(admin: Admin, bootstrap: str, topic: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.produce(topic, b"x", partition=0, timestamp_ms=1_000_000 + number * 1000)
    at = (topic, 0)
    assert admin.list_offsets({at: "earliest", (topic, 1): "latest"}) == {at: 0, (topic, 1): 0}
    assert admin.list_offsets({at: "latest"}) == {at: 10}
    assert admin.list_offsets({at: 1_003_001}) == {at: 4}
    assert admin.list_offsets({at: datetime.fromtimestamp(1003, UTC)}) == {at: 3}
    assert admin.list_offsets({at: 2_000_000}) == {at: None}
    assert admin.list_offsets({}) == {}
    wrong: Any
    for wrong in (-1, "soon", 1.5, None, True):
        with pytest.raises(krust.ConfigError):
            admin.list_offsets({at: wrong})
    with pytest.raises(KafkaError):
        admin.list_offsets({(f"{topic}-none", 0): "latest"})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_with_its_members(
    admin: Admin, bootstrap: str, topic: str, protocol: str
) -> None:
    if protocol == "consumer" and not serves(bootstrap):
        pytest.skip("this broker has no consumer groups (KIP-848)")
    with krust.Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, group_protocol=protocol
    ) as consumer:
        while len(consumer.assignment()) < 3:
            consumer.poll(100)
        until(lambda: admin.describe_groups([topic])[topic].state == "Stable")
        group = admin.describe_groups([topic])[topic]
        [member] = group.members
        assert (group.group_id, group.type) == (topic, protocol)
        assert group.assignor
        assert member.subscribed == [topic]
        assert member.assigned == [(topic, partition) for partition in range(3)]
    until(lambda: admin.describe_groups([topic])[topic].state == "Empty")
    with pytest.raises(KafkaError) as caught:
        admin.describe_groups([f"{topic}-none"])
    assert caught.value.name == "GROUP_ID_NOT_FOUND"
