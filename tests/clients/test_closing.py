"""A closed client holds no thread or descriptor, even while a program still refers to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

import krust
from krust import _krust
from krust.clients import classic
from krust.clients.classic import KeyedMessage
from krust.clients.simple import EARLIEST, FetchRequest, SimpleConsumer
from krust.errors import ConfigError
from tests.clients.test_consumer_member import serves
from tests.leftovers import nothing_left

Use = Callable[[str, str], object]


def group(bootstrap: str, topic: str, protocol: str = "classic") -> object:
    settings: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
    consumer = krust.Consumer(topic, bootstrap_servers=bootstrap, group_id=topic, **settings)
    while not consumer.poll(100):
        pass
    consumer.commit()
    assert consumer.topics()
    consumer.close()
    consumer.close()
    with pytest.raises(ConfigError, match="closed"):
        consumer.poll()
    return consumer


def consumer_group(bootstrap: str, topic: str) -> object:
    if not serves(bootstrap):
        pytest.skip("this broker has no consumer groups (KIP-848)")
    return group(bootstrap, topic, "consumer")


def admin(bootstrap: str, topic: str) -> object:
    client = krust.Admin(bootstrap_servers=bootstrap)
    assert topic in client.topics()
    assert client.committed("nobody", topic, 3) == {}
    client.close()
    client.close()
    with pytest.raises(ConfigError, match="closed"):
        client.topics()
    return client


def producer(bootstrap: str, topic: str) -> object:
    client = krust.Producer(bootstrap_servers=bootstrap)
    client.produce(topic, b"value")
    client.close()
    client.close()
    with pytest.raises(ConfigError, match="closed"):
        client.produce(topic, b"value")
    with pytest.raises(ConfigError, match="closed"):
        client.fileno()
    return client


def awaitable(bootstrap: str, topic: str) -> object:
    async def run() -> object:
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
        consumer = krust.AsyncConsumer(topic, group_id=topic, **settings)
        producer = krust.AsyncProducer(bootstrap_servers=bootstrap)
        await producer.send(topic, b"value")
        while not await consumer.poll(100):
            pass
        await producer.close()
        await consumer.close()
        return consumer, producer

    return asyncio.run(run())


def of_old(bootstrap: str, topic: str) -> object:
    writer = classic.Producer(bootstrap_servers=bootstrap)
    writer.send(KeyedMessage(topic, "key", "value"))
    writer.close()
    reader = SimpleConsumer(bootstrap)
    [first] = reader.get_offsets_before(topic, 0, EARLIEST)
    assert len(reader.fetch(FetchRequest(topic, 0, first)))
    assert reader.fetch_offsets("nobody", [(topic, 0)]) == {}
    reader.close()
    return writer, reader


def scan(bootstrap: str, topic: str) -> object:
    stream = krust.scan(topic, bootstrap=bootstrap).stream()
    assert pyarrow.table(stream).num_rows == 3
    return stream


@pytest.mark.parametrize("use", [group, consumer_group, admin, producer, awaitable, of_old, scan])
def test_a_closed_client_holds_no_thread_or_descriptor(
    bootstrap: str, topic: str, use: Use
) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as filling:
        for partition in range(3):
            filling.produce(topic, b"%d" % partition, partition=partition)
    held = []
    with nothing_left():
        held.append(use(bootstrap, topic))
    assert held


def test_a_call_on_a_closed_client_raises(bootstrap: str, topic: str) -> None:
    client, consumer = _krust.Client(bootstrap), _krust.Consumer(bootstrap)
    assert client.versions()
    for one in (client, consumer):
        one.close()
        one.close()
    with pytest.raises(ConfigError, match="this client is closed"):
        client.versions()
    with pytest.raises(ConfigError, match="this client is closed"):
        consumer.assign([(topic, 0, 0, None)])
