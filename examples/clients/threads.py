"""A writer and a reader, a thread each, on one topic for a while.

    python -m examples.clients.threads HOST:PORT [SECONDS]

The flow is kafka-python's `example.py`. Different on krust: a reader without a group says which
partitions it reads (`assign`) in place of `subscribe`; the time that a reader waits belongs to
`poll` in place of `consumer_timeout_ms`; both clients close themselves at the end of `with`.
"""

from __future__ import annotations

import sys
import threading

import krust

TOPIC = "my-topic"


def write(bootstrap: str, enough: threading.Event) -> None:
    """Two records a turn, until it is enough."""
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        while not enough.is_set():
            producer.produce(TOPIC, b"test")
            producer.produce(TOPIC, "¡Hola, mundo!")
            producer.poll()
            enough.wait(0.1)


def read(bootstrap: str, enough: threading.Event) -> None:
    """All there is from the first record on, until it is enough."""
    with krust.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign((TOPIC, number) for number in range(consumer.topics()[TOPIC]))
        while not enough.is_set():
            for record in consumer.poll(100):
                print(record)


def main(bootstrap: str, seconds: str = "10") -> None:
    """Make the topic and let both work."""
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        if TOPIC not in admin.topics():
            admin.create_topic(TOPIC, 1)
    enough = threading.Event()
    tasks = [threading.Thread(target=task, args=(bootstrap, enough)) for task in (write, read)]
    for task in tasks:
        task.start()
    enough.wait(float(seconds))
    enough.set()
    for task in tasks:
        task.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
