"""Transactions of other people's clients: what a read_committed reader sees, and who is fenced."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 30
ENDS = ("commit", "abort", "commit")
EXPECTED = [f"{number}-{each}".encode() for number in (0, 2) for each in range(3)]

_IDS = itertools.count()


def transactional_id() -> str:
    """An id that nothing else uses."""
    return f"id-{next(_IDS)}"


def librdkafka(bootstrap: str, **options: object) -> Producer:
    """A producer of librdkafka that may begin transactions."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id()} | options
    )
    producer.init_transactions(WAIT_S)
    return producer


def values(number: int) -> list[bytes]:
    """The records of a transaction."""
    return [f"{number}-{each}".encode() for each in range(3)]


def with_librdkafka(bootstrap: str, topic: str) -> None:
    """Three transactions of librdkafka."""
    producer = librdkafka(bootstrap)
    for number, end in enumerate(ENDS):
        producer.begin_transaction()
        for value in values(number):
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(WAIT_S)


def with_kafka_python(bootstrap: str, topic: str) -> None:
    """The same of kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id())
    try:
        producer.init_transactions()
        for number, end in enumerate(ENDS):
            producer.begin_transaction()
            for value in values(number):
                producer.send(topic, value)
            producer.flush(WAIT_S)
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
    finally:
        producer.close()


def with_aiokafka(bootstrap: str, topic: str) -> None:
    """The same of aiokafka."""
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id()
        )
        await producer.start()
        try:
            for number, end in enumerate(ENDS):
                await producer.begin_transaction()
                for value in values(number):
                    await producer.send_and_wait(topic, value)
                await (
                    producer.commit_transaction()
                    if end == "commit"
                    else producer.abort_transaction()
                )
        finally:
            await producer.stop()

    asyncio.run(run())


def read(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    """The first `count` records, and any that follow within a poll."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reads", "isolation.level": isolation}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []

        def poll() -> bool:
            found.extend(m.value() for m in consumer.consume(100, 0.2) if m.error() is None)
            return len(found) >= count

        until(poll)
        poll()
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("write", [with_librdkafka, with_kafka_python, with_aiokafka])
def test_readers_of_committed_records_see_whole_transactions_only(
    bootstrap: str, topic: str, write: Callable[[str, str], None]
) -> None:
    write(bootstrap, topic)
    assert read(bootstrap, topic, "read_committed", len(EXPECTED)) == EXPECTED
    everything = [value for number in range(len(ENDS)) for value in values(number)]
    assert read(bootstrap, topic, "read_uncommitted", len(everything)) == everything


def test_a_second_producer_with_the_same_id_fences_the_first(bootstrap: str, topic: str) -> None:
    name = transactional_id()
    first = librdkafka(bootstrap, **{"transactional.id": name})
    first.begin_transaction()
    first.produce(topic, b"lost")
    assert first.flush(WAIT_S) == 0
    second = librdkafka(bootstrap, **{"transactional.id": name})
    with pytest.raises(KafkaException) as failure:
        first.commit_transaction(WAIT_S)
    assert failure.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"kept")
    second.commit_transaction(WAIT_S)
    assert read(bootstrap, topic, "read_committed", 1) == [b"kept"]


def test_offsets_move_with_a_commit_and_stay_with_an_abort(bootstrap: str, topic: str) -> None:
    with_librdkafka(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"copies-{topic}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = librdkafka(bootstrap)
    try:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.2) is not None)
        position = consumer.position(consumer.assignment())

        def committed() -> int:
            (at,) = consumer.committed(consumer.assignment(), WAIT_S)
            return int(at.offset)

        def send_and(end: Callable[[float], Any]) -> int:
            producer.begin_transaction()
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(position, group, WAIT_S)
            end(WAIT_S)
            return committed()

        assert send_and(producer.abort_transaction) < 0
        assert send_and(producer.commit_transaction) == position[0].offset
    finally:
        consumer.close()


def test_one_transaction_spans_fifty_partitions_of_every_codec(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"wide-{transactional_id()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 50, 1)])[topic].result(WAIT_S)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = librdkafka(bootstrap, **{"compression.type": codec})
        producer.begin_transaction()
        for partition in range(50):
            producer.produce(topic, codec.encode() * 50, partition=partition)
        producer.commit_transaction(WAIT_S)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "w", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(50)])
        found: list[bytes] = []

        def poll() -> bool:
            found.extend(m.value() for m in consumer.consume(500, 0.2) if m.error() is None)
            return len(found) >= 250

        until(poll)
        assert len(found) == 250
    finally:
        consumer.close()
