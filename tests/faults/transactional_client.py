"""Transactional producers of two libraries, and a process that has one: it is killed by tests.

    python -m tests.faults.transactional_client LIBRARY BOOTSTRAP TRANSACTIONAL_ID NUMBER

It sends transaction NUMBER, prints `sent` when all records have arrived, and commits when it is
told to by a line on its standard input.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TypeAlias

from confluent_kafka import Producer

import krust
from krust.errors import KrustError

LIBRARIES = ("confluent", "krust")
TOPIC = "t"
PARTITIONS = 4
EACH = 8
"""records of a transaction, evenly over the partitions"""
WAIT_S = 60


class KrustProducer:
    """krust's producer with the calls of confluent-kafka's."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._producer = krust.Producer(settings)
        self.begin_transaction = self._producer.begin_transaction

    def init_transactions(self, wait_s: float) -> None:
        self._producer.init_transactions()

    def produce(self, topic: str, value: bytes, partition: int) -> None:
        self._producer.produce(topic, value, partition=partition)

    def flush(self, wait_s: float) -> None:
        self._producer.flush(wait_s * 1000)

    def commit_transaction(self, wait_s: float) -> None:
        self._producer.commit_transaction()

    def abort_transaction(self, wait_s: float) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        """Give up what is open; another producer may have its id already."""
        with suppress(KrustError):
            self._producer.close()


AnyProducer: TypeAlias = Producer | KrustProducer


def transactional(
    library: str, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
) -> AnyProducer:
    """A producer that may begin transactions."""
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
    }
    producer: AnyProducer
    if library == "krust":
        producer = KrustProducer(settings)
    else:
        producer = Producer({**settings, "log_level": 0, "reconnect.backoff.max.ms": 100})
    producer.init_transactions(WAIT_S)
    return producer


def close(producer: AnyProducer) -> None:
    """End a producer; librdkafka's ends by itself."""
    if isinstance(producer, KrustProducer):
        producer.close()


def send(producer: AnyProducer, number: int) -> None:
    """Begin a transaction and send its records."""
    producer.begin_transaction()
    for each in range(EACH):
        producer.produce(TOPIC, f"{number}".encode(), partition=each % PARTITIONS)


def main() -> None:
    library, bootstrap, transactional_id, number = sys.argv[1:]
    producer = transactional(library, bootstrap, transactional_id)
    send(producer, int(number))
    producer.flush(WAIT_S)
    print("sent", flush=True)
    sys.stdin.readline()
    producer.commit_transaction(WAIT_S)
    close(producer)


if __name__ == "__main__":
    main()
