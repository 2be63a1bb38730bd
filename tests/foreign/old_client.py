"""A client of an older environment, run as a child: its packages come first on PYTHONPATH.

One environment holds one version of a package, so old ones are in `.venv/old/NAME-VERSION`.

old_client.py PACKAGE DIALECT write BOOTSTRAP TOPIC CODEC   < JSON lines [key, value], base64
old_client.py PACKAGE DIALECT read BOOTSTRAP TOPIC COUNT    > the same
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

WAIT_S = 60


def kafka_python_write(settings: dict[str, Any], topic: str, codec: str, rows: Any) -> None:
    from kafka import KafkaProducer

    compression = None if codec == "none" else codec
    producer = KafkaProducer(compression_type=compression, linger_ms=5, **settings)
    sent = [producer.send(topic, key=key, value=value, partition=0) for key, value in rows]
    for one in sent:
        one.get(WAIT_S)
    producer.close(WAIT_S)


def kafka_python_read(settings: dict[str, Any], topic: str, count: int) -> Any:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(group_id=None, consumer_timeout_ms=WAIT_S * 1000, **settings)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    for _, message in zip(range(count), consumer, strict=False):
        yield message.key, message.value
    consumer.close()


def pykafka_write(settings: dict[str, Any], topic: str, codec: str, rows: Any) -> None:
    from pykafka import KafkaClient
    from pykafka.common import CompressionType

    client = KafkaClient(**settings)
    compression = getattr(CompressionType, codec.upper())
    with client.topics[topic].get_sync_producer(
        compression=compression, max_queued_messages=100, linger_ms=5
    ) as producer:
        for key, value in rows:
            producer.produce(value, partition_key=key)


def pykafka_read(settings: dict[str, Any], topic: str, count: int) -> Any:
    from pykafka import KafkaClient

    client = KafkaClient(**settings)
    consumer = client.topics[topic].get_simple_consumer(
        consumer_timeout_ms=WAIT_S * 1000, auto_commit_enable=False
    )
    for _ in range(count):
        message = consumer.consume()
        yield message.partition_key, message.value
    consumer.stop()


def main(package: str, dialect: str, verb: str, bootstrap: str, topic: str, last: str) -> None:
    """Run one verb of one package."""
    if package.startswith("pykafka"):
        write, read = pykafka_write, pykafka_read
        settings: dict[str, Any] = {"hosts": bootstrap, "broker_version": dialect}
    else:
        write, read = kafka_python_write, kafka_python_read
        version = tuple(int(part) for part in dialect.split("."))
        settings = {"bootstrap_servers": bootstrap, "api_version": version}
        settings["retry_backoff_ms"] = 10
    if verb == "write":
        rows = [
            tuple(part if part is None else base64.b64decode(part) for part in json.loads(line))
            for line in sys.stdin
        ]
        write(settings, topic, last, rows)
        return
    for row in read(settings, topic, int(last)):
        coded = [part if part is None else base64.b64encode(part).decode() for part in row]
        print(json.dumps(coded), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
