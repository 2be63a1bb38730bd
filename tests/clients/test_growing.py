"""Topics that grow while a producer writes to them, on krust and on Kafka alike."""

from __future__ import annotations

import asyncio

import pytest

import krust
from krust import _krust
from krust.errors import KafkaError
from tests.clients.conftest import read
from tests.waiting import until


def grow(bootstrap: str, topic: str, total: int) -> None:
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_partitions(topic, total)


def test_a_new_partition_is_found_when_it_is_written_to(bootstrap: str, single: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for total in range(2, 5):
            producer.produce(single, b"old", partition=0)
            grow(bootstrap, single, total)
            producer.produce(single, b"new", partition=total - 1)
        assert producer.partitions(single) == 4
        producer.flush()
    assert [record.value for record in read(bootstrap, single, 0)] == [b"old"] * 3
    for partition in range(1, 4):
        assert [record.value for record in read(bootstrap, single, partition)] == [b"new"]


def test_the_producer_without_a_thread_finds_a_new_partition(bootstrap: str, single: str) -> None:
    producer = _krust.Producer(bootstrap)

    def send(partition: int) -> None:
        producer.send(single, [(None, b"x", [], partition, None)])

    send(0)
    grow(bootstrap, single, 2)
    send(1)
    with pytest.raises(KafkaError, match="no partition 2"):
        send(2)
    producer.flush()
    assert len(read(bootstrap, single, 0)) == len(read(bootstrap, single, 1)) == 1


def test_a_missing_partition_is_refused_each_time(bootstrap: str, single: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap, metadata_max_age_ms=0) as producer:
        for partition in (1, 1, 7, -2):
            with pytest.raises(KafkaError, match=f"has no partition {partition}") as caught:
                producer.produce(single, b"x", partition=partition)
            assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"
        producer.produce(single, b"y")
    assert [record.value for record in read(bootstrap, single)] == [b"y"]


def test_an_asynchronous_producer_finds_a_new_partition(bootstrap: str, single: str) -> None:
    async def run() -> None:
        async with krust.AsyncProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send(single, b"old", partition=0)
            grow(bootstrap, single, 3)
            where = await producer.send(single, b"new", partition=2)
            assert (where.partition, where.offset) == (2, 0)
            with pytest.raises(KafkaError, match="no partition 3"):
                await producer.send(single, b"no", partition=3)

    asyncio.run(run())


def test_new_partitions_are_used_once_metadata_has_expired(bootstrap: str, single: str) -> None:
    keys = [b"%d" % number for number in range(50)]
    with krust.Producer(
        bootstrap_servers=bootstrap, metadata_max_age_ms=200, linger_ms=1
    ) as producer:
        producer.send(single, b"first", key=b"k").result(60_000)
        grow(bootstrap, single, 4)

        def is_known() -> bool:
            producer.send(single, b"x").result(60_000)
            return producer.partitions(single) == 4

        until(is_known)
        placed = {key: producer.send(single, b"x", key=key).result(60_000) for key in keys}
        assert {where.partition for where in placed.values()} == {0, 1, 2, 3}
        free = {producer.send(single, b"x").result(60_000).partition for _ in range(50)}
        assert free == {0, 1, 2, 3}


def test_fresh_metadata_is_not_requested_again(bootstrap: str, single: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(single, b"x").result(60_000)
        grow(bootstrap, single, 2)
        for _ in range(20):
            assert producer.send(single, b"x").result(60_000).partition == 0
        assert producer.partitions(single) == 1
