"""Throttled clients get their throttle time, and lose no record."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.serving import ServedBroker, environment
from tests.waiting import WAIT_S, until

RATE = 250_000
"""bytes a second; with two samples of a second twice as many may come at once"""
RECORD = os.urandom(50_000)
REQUEST_MAX = 512  # bytes of a request beside its records
COUNT = 18
"""what one request or answer holds: it is beyond the rate by itself, at whatever pace clients go"""
LARGEST = 1_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker whose quotas are taken over two seconds."""
    data = tmp_path_factory.mktemp("quotas") / "data"
    with ServedBroker(data, "--prod", options={"quota.window.num": 2}) as served:
        quotas(served, "set", f"producer_byte_rate={RATE}", "--client", "loud")
        quotas(served, "set", f"consumer_byte_rate={RATE}", "--client", "greedy")
        quotas(served, "set", "connection_creation_rate=1", "--ip", "127.0.0.2")
        yield served


def quotas(broker: ServedBroker, *words: str) -> None:
    command = [sys.executable, "-m", "krust", "quotas", *words, "-b", broker.bootstrap]
    subprocess.run(command, check=True, env=environment(), timeout=WAIT_S)


@pytest.fixture(scope="module")
def topic(broker: ServedBroker) -> str:
    """A topic with as many records as one answer holds."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "free"})
    for _ in range(COUNT):
        producer.produce("filled", RECORD)
    assert producer.flush(WAIT_S) == 0
    return "filled"


def test_librdkafkas_producer_is_throttled_to_its_rate(broker: ServedBroker) -> None:
    from confluent_kafka import Producer

    throttles: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "batch.size": LARGEST,
        "linger.ms": 60_000,
        "throttle_cb": lambda event: throttles.append(event.throttle_time),
    }
    failed: list[object] = []
    for client_id in ("free", "loud"):
        producer = Producer({**settings, "client.id": client_id})
        for _ in range(COUNT):
            producer.produce("written", RECORD, on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(WAIT_S) == 0
        assert bool(any(throttles)) == (client_id == "loud")
    assert failed == [None] * 2 * COUNT
    whole_s = COUNT * len(RECORD) / RATE
    around_s = len(throttles) * (
        REQUEST_MAX / RATE + 0.001
    )  # headers count too; rounded up to 1 ms
    assert whole_s - 2.1 < sum(throttles) < whole_s + around_s


def test_librdkafkas_consumer_is_throttled_and_reads_everything(
    broker: ServedBroker, topic: str
) -> None:
    from confluent_kafka import Consumer

    throttles: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": "greedy",
        "group.id": "greedy",
        "auto.offset.reset": "earliest",
        "throttle_cb": lambda event: throttles.append(event.throttle_time),
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    offsets: list[int | None] = []
    while len(offsets) < COUNT:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        assert message.value() == RECORD
        offsets.append(message.offset())
    until(lambda: (consumer.poll(0.1), any(throttles))[1])
    consumer.close()
    assert offsets == list(range(COUNT))


def test_kafka_python_is_throttled(
    broker: ServedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    whole = {"batch_size": LARGEST, "linger_ms": 60_000}
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="loud", **whole)
    sent = [producer.send("written-too", RECORD) for _ in range(COUNT)]
    producer.flush(WAIT_S)
    assert [each.get(WAIT_S).offset for each in sent] == list(range(COUNT))
    assert "ProduceResponse throttled by broker" in caplog.text
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        client_id="greedy",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    read = [next(consumer).offset for _ in range(COUNT)]
    assert read == list(range(COUNT))
    assert "FetchResponse throttled by broker" in caplog.text
    consumer.close()


def test_connections_beyond_the_rate_of_an_address_are_closed_without_an_answer(
    broker: ServedBroker,
) -> None:
    def came() -> socket.socket:
        return socket.create_connection(broker.address, WAIT_S, ("127.0.0.2", 0))

    def is_served(connection: socket.socket) -> bool:
        try:
            connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")
            return connection.recv(8)[4:] == b"\0\0\0\x07"
        except ConnectionError:
            return False

    with ExitStack() as stack:
        first = stack.enter_context(came())
        others = (stack.enter_context(came()) for _ in itertools.count())
        until(lambda: not is_served(next(others)))
        assert is_served(first), "who came before is served on"
