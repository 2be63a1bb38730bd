"""Records of some topics to the standard output, as a member of a group, until Ctrl-C.

    python -m examples.clients.lines_out HOST:PORT GROUP TOPIC..

The flow is `consumer.py` of confluent-kafka's examples. Different on krust: `poll` takes
milliseconds and returns a list, which may be empty; errors are raised, so a record is never an
error; a position counts once the next `poll` is called, so no `store_offsets`.
"""

from __future__ import annotations

import sys

import krust
from krust.errors import KafkaError


def assigned(consumer: krust.Consumer, places: list[krust.TopicPartition]) -> None:
    """Say what this member reads from now on."""
    print("Assignment:", [f"{place.topic} [{place.partition}]" for place in places], flush=True)


def main(bootstrap: str, group: str, *topics: str) -> None:
    """Read until Ctrl-C."""
    consumer = krust.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(topics, on_assign=assigned)
    try:
        while True:
            for record in consumer.poll(1000):
                place = f"{record.topic} [{record.partition}] at offset {record.offset}"
                print(f"% {place} with key {record.key!r}:", file=sys.stderr)
                print((record.value or b"").decode(), flush=True)
    except KafkaError as error:
        sys.exit(f"{error.name}: {error}")
    except KeyboardInterrupt:
        print("% Aborted by user", file=sys.stderr)
    finally:
        consumer.close()  # leaves the group and commits


if __name__ == "__main__":
    main(*sys.argv[1:])
