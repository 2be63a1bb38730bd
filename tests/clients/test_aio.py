"""The awaitable clients on krust and on Kafka alike."""

from __future__ import annotations

import asyncio

import pytest

import krust
from krust.errors import KafkaError
from tests.clients.conftest import create
from tests.leftovers import nothing_left


def test_one_await_is_the_delivery_and_thousands_run_at_once(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with krust.AsyncProducer(bootstrap_servers=bootstrap, linger_ms=1) as producer:
            first = await producer.send(topic, b"0", partition=1, headers={"h": b"1"})
            assert (first.topic, first.partition, first.offset) == (topic, 1, 0)
            sends = [producer.send(topic, b"%d" % n, partition=1) for n in range(1, 2000)]
            assert [where.offset for where in await asyncio.gather(*sends)] == list(range(1, 2000))

    asyncio.run(run())


def test_a_full_buffer_is_waited_for_and_close_sends_what_is_left(
    bootstrap: str, single: str
) -> None:
    async def run() -> list[int]:
        producer = krust.AsyncProducer(
            bootstrap_servers=bootstrap, buffer_memory=5000, batch_size=2000, linger_ms=60_000
        )
        deliveries = [await producer.enqueue(single, bytes(100)) for _ in range(200)]
        await producer.close()
        await producer.close()
        return [(await delivery).offset for delivery in deliveries]

    assert asyncio.run(run()) == list(range(200))


def test_a_record_that_is_refused_raises_where_it_is_awaited(bootstrap: str, single: str) -> None:
    async def run() -> None:
        async with krust.AsyncProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(KafkaError) as caught:
                await producer.send(single, bytes(2_000_000))
            assert caught.value.name == "MESSAGE_TOO_LARGE"
            assert (await producer.send(single, b"small")).offset == 0

    asyncio.run(run())


def test_a_group_is_read_with_async_for_and_leaves_no_thread(bootstrap: str, topic: str) -> None:
    async def run() -> list[bytes | None]:
        async with krust.AsyncProducer(bootstrap_servers=bootstrap) as producer:
            await asyncio.gather(
                *(producer.send(topic, b"%d" % n, partition=n % 3) for n in range(30))
            )
        seen = []
        async with krust.AsyncConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 30:
                    break
            await consumer.commit()
            places = [(topic, partition) for partition in range(3)]
            assert await consumer.committed(places) == dict.fromkeys(places, 10)
        await consumer.close()
        return seen

    with nothing_left():
        assert sorted(asyncio.run(run()), key=lambda value: int(value or b"")) == [
            b"%d" % n for n in range(30)
        ]


def test_a_poll_that_is_cancelled_ends_and_the_consumer_goes_on(bootstrap: str, name: str) -> None:
    create(bootstrap, name, 1)

    async def run() -> None:
        async with (
            krust.AsyncConsumer(bootstrap_servers=bootstrap) as consumer,
            krust.AsyncProducer(bootstrap_servers=bootstrap) as producer,
        ):
            await consumer.assign([(name, 0, 0)])
            waiting = asyncio.create_task(consumer.poll(600_000))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await producer.send(name, b"after")
            while not (records := await consumer.poll(1000)):
                pass
            assert [record.value for record in records] == [b"after"]

    asyncio.run(run())
