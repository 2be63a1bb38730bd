"""The awaitable clients on krust and on Kafka alike."""

from __future__ import annotations

import asyncio

import pytest

import krust
from krust.errors import KafkaError
from tests.clients.conftest import create
from tests.leftovers import nothing_left


def test_awaiting_send_gives_the_delivery_and_thousands_run_at_once(
    bootstrap: str, topic: str
) -> None:
    async def run() -> None:
        async with krust.AsyncProducer(bootstrap_servers=bootstrap, linger_ms=1) as producer:
            first = await producer.send(topic, b"0", partition=1, headers={"h": b"1"})
            assert (first.topic, first.partition, first.offset) == (topic, 1, 0)
            sends = [producer.send(topic, b"%d" % n, partition=1) for n in range(1, 2000)]
            assert [where.offset for where in await asyncio.gather(*sends)] == list(range(1, 2000))

    asyncio.run(run())


def test_send_waits_for_a_full_buffer_and_close_sends_the_rest(bootstrap: str, single: str) -> None:
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


def test_a_consumer_is_moved_paused_and_resumed_by_await(bootstrap: str, single: str) -> None:
    async def run() -> None:
        place = (single, 0)
        async with (
            krust.AsyncProducer(bootstrap_servers=bootstrap) as producer,
            krust.AsyncConsumer(bootstrap_servers=bootstrap) as consumer,
        ):
            for number in range(5):
                await producer.send(single, b"%d" % number)
            await consumer.assign([(*place, 0)])
            assert consumer.assignment() == [place]
            assert await some(consumer) == [b"0", b"1", b"2", b"3", b"4"]
            assert await consumer.position(*place) == 5
            await consumer.seek_to_beginning()
            assert await consumer.position(*place) == 0
            await consumer.pause([place])
            assert consumer.paused() == {place}
            assert await consumer.poll(50) == []
            await consumer.resume([place])
            assert len(await some(consumer)) == 5
            await consumer.seek_to_end([place])
            assert await consumer.position(*place) == 5
            await consumer.seek(*place, 3)
            while (batch := await consumer.poll_arrow(1000, columns=["value"])) is None:
                pass
            assert len(batch) == 2
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 5}
            assert await consumer.offsets_for_times({place: 0}) == {place: 0}
            assert (await consumer.topics())[single] == 1

    with nothing_left():
        asyncio.run(run())


async def some(consumer: krust.AsyncConsumer) -> list[bytes | None]:
    while not (records := await consumer.poll(1000)):
        pass
    return [record.value for record in records]


def test_columns_of_a_cancelled_poll_come_with_the_next(bootstrap: str, single: str) -> None:
    async def run() -> None:
        async with (
            krust.AsyncConsumer(bootstrap_servers=bootstrap) as consumer,
            krust.AsyncProducer(bootstrap_servers=bootstrap) as producer,
        ):
            await producer.send(single, b"kept")
            await consumer.assign([(single, 0, 0)])
            for _ in range(5):
                waiting = asyncio.create_task(consumer.poll_arrow(600_000))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            while (batch := await consumer.poll_arrow(1000)) is None:
                pass
            assert len(batch) == 1

    asyncio.run(run())


def test_listeners_may_be_coroutines_that_await_the_consumer(bootstrap: str, topic: str) -> None:
    calls: list[tuple[str, int]] = []

    async def assigned(consumer: krust.AsyncConsumer, places: list[krust.TopicPartition]) -> None:
        await asyncio.sleep(0)
        calls.append(("assigned", len(places)))
        for place in places:
            await consumer.seek(*place, 2)
        with pytest.raises(krust.ConfigError, match="listener"):
            await consumer.poll()

    async def revoked(consumer: krust.AsyncConsumer, places: list[krust.TopicPartition]) -> None:
        calls.append(("revoked", len(places)))
        await consumer.commit({(topic, 0): 3})

    async def run() -> None:
        async with krust.AsyncProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(3):
                await producer.send(topic, b"%d" % number, partition=0)
        consumer = krust.AsyncConsumer(
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        assert consumer.subscription() == [topic]
        assert await some(consumer) == [b"2"]
        await consumer.unsubscribe()
        assert calls == [("assigned", 3), ("revoked", 3)]
        assert await consumer.committed([(topic, 0)]) == {(topic, 0): 3}
        await consumer.close()

    with nothing_left():
        asyncio.run(run())


def test_poll_raises_the_error_of_a_coroutine_listener(bootstrap: str, topic: str) -> None:
    async def assigned(*_: object) -> None:
        raise ZeroDivisionError("mine")

    async def run() -> None:
        async with krust.AsyncConsumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
            await consumer.subscribe([topic], on_assign=assigned)
            with pytest.raises(ZeroDivisionError, match="mine"):
                await some(consumer)

    with nothing_left():
        asyncio.run(run())


def test_an_async_admin_creates_and_lists_topics(bootstrap: str, name: str) -> None:
    async def run() -> None:
        async with krust.AsyncAdmin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topic(name, 2)
            assert (await admin.topics())[name] == 2
            assert await admin.list_offsets({(name, 0): "latest"}) == {(name, 0): 0}
            with pytest.raises(KafkaError) as caught:
                await admin.describe_groups([name])
            assert caught.value.name == "GROUP_ID_NOT_FOUND"
            await admin.delete_topic(name)
        await admin.close()

    with nothing_left():
        asyncio.run(run())


def test_a_closed_async_client_raises(bootstrap: str, single: str) -> None:
    async def run() -> None:
        consumer = krust.AsyncConsumer(bootstrap_servers=bootstrap)
        admin = krust.AsyncAdmin(bootstrap_servers=bootstrap)
        await consumer.assign([(single, 0)])
        for client in (consumer, admin):
            await client.close()
            await client.close()
        for call in (consumer.poll, consumer.poll_arrow, consumer.commit, admin.topics):
            with pytest.raises(krust.ConfigError, match="closed"):
                await call()

    with nothing_left():
        asyncio.run(run())
