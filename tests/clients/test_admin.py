"""krust.Admin on krust and on Kafka alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import krust
from krust.clients.admin import Admin
from krust.errors import KafkaError
from tests.clients.conftest import read
from tests.waiting import until, until_is


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


def test_a_topic_is_made_grown_configured_and_deleted(admin: Admin, name: str) -> None:
    admin.create_topic(name, 2, config={"retention.ms": 60_000})
    assert admin.topics()[name] == 2
    until_is("60000", lambda: admin.config(name)["retention.ms"])
    admin.create_partitions(name, 3)
    assert admin.topics()[name] == 3
    admin.alter_config(name, {"retention.ms": None, "max.message.bytes": 5000})

    def settings() -> tuple[str | None, ...]:
        found = admin.config(name)
        return found["retention.ms"], found["max.message.bytes"]

    until_is(("604800000", "5000"), settings)
    admin.delete_topic(name)
    until(lambda: name not in admin.topics())


def test_a_topic_can_be_written_to_as_soon_as_it_was_made(
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
def test_a_refusal_has_kafkas_name(admin: Admin, name: str, order: object, refusal: str) -> None:
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


def test_groups_are_listed_with_what_they_committed_and_deleted(
    admin: Admin, bootstrap: str, topic: str
) -> None:
    with krust.Consumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        consumer.commit({(topic, 1): 7})
    assert topic in admin.groups()
    assert admin.committed(topic, topic, 3) == {(topic, 1): 7}
    admin.delete_group(topic)
    assert topic not in admin.groups()
