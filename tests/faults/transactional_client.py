"""A transactional producer of confluent-kafka, and a process that has one: it is killed by tests.

    python -m tests.faults.transactional_client BOOTSTRAP TRANSACTIONAL_ID NUMBER

It sends transaction NUMBER, prints `sent` when all records have arrived, and commits when it is
told to by a line on its standard input.
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer

TOPIC = "t"
PARTITIONS = 4
EACH = 8
"""records of a transaction, evenly over the partitions"""
WAIT_S = 60


def transactional(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    """A producer that may begin transactions."""
    options = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    more = {"log_level": 0, "reconnect.backoff.max.ms": 100, "transaction.timeout.ms": timeout_ms}
    producer = Producer({**options, **more})
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Producer, number: int) -> None:
    """Begin a transaction and send its records."""
    producer.begin_transaction()
    for each in range(EACH):
        producer.produce(TOPIC, f"{number}".encode(), partition=each % PARTITIONS)


def main() -> None:
    bootstrap, transactional_id, number = sys.argv[1:]
    producer = transactional(bootstrap, transactional_id)
    send(producer, int(number))
    producer.flush(WAIT_S)
    print("sent", flush=True)
    sys.stdin.readline()
    producer.commit_transaction(WAIT_S)


if __name__ == "__main__":
    main()
