"""Each client writes RECORDS to a topic and reads them back, on the listener that its settings say.

For tests of what listeners ask of clients: a client that is refused raises. Settings have the names
of the client's own project.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

import krust

WAIT_S, WAIT_MS = 60, 60_000
RECORDS = [b"small", b"x" * 300_000]


def confluent(settings: Mapping[str, object], topic: str) -> list[bytes]:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    refused: list[object] = []
    watched = {"error_cb": refused.append, "message.timeout.ms": WAIT_MS}
    producer = Producer({**settings, **watched})
    for value in RECORDS:
        producer.produce(topic, value, partition=0)
    while producer.flush(0.1):
        if refused:
            raise KafkaException(refused[0])
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def kafka_python(settings: Mapping[str, Any], topic: str) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    settings = {**settings, "retry_backoff_ms": 10}
    producer = KafkaProducer(**settings, enable_idempotence=False, max_block_ms=5_000)
    try:
        for one in [producer.send(topic, value, partition=0) for value in RECORDS]:
            one.get(WAIT_S)
    finally:
        producer.close(0)
    consumer = KafkaConsumer(**settings, group_id=None, consumer_timeout_ms=WAIT_MS)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    found = [message.value for _, message in zip(RECORDS, consumer, strict=False)]
    consumer.close()
    return found


def aiokafka(settings: Mapping[str, object], topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            for value in RECORDS:
                await producer.send_and_wait(topic, value, partition=0)
        finally:
            await producer.stop()
        async with AIOKafkaConsumer(**settings, group_id=None) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            return [(await consumer.getone()).value for _ in RECORDS]

    return asyncio.run(asyncio.wait_for(run(), WAIT_S))


def kcat(settings: Mapping[str, object], topic: str) -> list[bytes]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed (Debian: apt install kcat)")
    words = dict(settings)
    common = ["kcat", "-b", str(words.pop("bootstrap.servers")), "-t", topic, "-p", "0"]
    common += [word for key, value in words.items() for word in ("-X", f"{key}={value}")]
    for value in RECORDS:
        ran([*common, "-P", "-X", "message.timeout.ms=5000"], value)
    out = ran([*common, "-C", "-o", "0", "-c", str(len(RECORDS)), "-q", "-f", "%s\n"], b"")
    return out.split(b"\n")[:-1]


def ran(command: list[str], stdin: bytes) -> bytes:
    """What a program prints; ConnectionError: it failed."""
    run = subprocess.run(command, input=stdin, capture_output=True, timeout=WAIT_S, check=False)
    if run.returncode:
        raise ConnectionError(run.stderr.decode())
    return run.stdout


def own(settings: Mapping[str, object], topic: str) -> list[bytes]:
    settings = {**settings, "request.timeout.ms": 5_000}
    with krust.Producer(settings, delivery_timeout_ms=5_000) as producer:
        for value in RECORDS:
            producer.send(topic, value, partition=0).result(WAIT_MS)
    with krust.Consumer(settings) as consumer:
        consumer.assign([(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < len(RECORDS):
            found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
    return found
