"""Ways to read: as a member of a group, by hand, by pattern, decoded, for a limited time.

    python -m examples.clients.reading HOST:PORT

The flow is that of KafkaConsumer in kafka-python's usage guide. Different on krust: patterns are
topics that begin with ^; there are no deserializers, a value is bytes; headers are a tuple of
pairs; a loop over the consumer never ends by itself, so what ends by time calls `poll`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import krust

TOPIC = "my-topic"


def as_a_member(bootstrap: str, most: int) -> None:
    """Partitions and offsets are the group's business."""
    settings: dict[str, Any] = {"group_id": "my-group", "auto_offset_reset": "earliest"}
    with krust.Consumer(TOPIC, bootstrap_servers=bootstrap, **settings) as consumer:
        for count, record in enumerate(consumer, 1):
            print(f"{record.topic}:{record.partition}:{record.offset}:", record.key, record.value)
            if count == most:
                break  # `close` commits what was seen


def by_hand(bootstrap: str) -> None:
    """One partition, two offsets of the reader's choice, nothing committed."""
    with krust.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([krust.TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        first = next(iter(consumer))
        consumer.seek(TOPIC, 0, first.offset + 1)
        print("then", next(iter(consumer)).value)


def json_for_a_while(bootstrap: str, wait_ms: int) -> None:
    """Every topic whose name begins with `my-`, until nothing comes for a while."""
    settings: dict[str, Any] = {"group_id": "json-group", "auto_offset_reset": "earliest"}
    with krust.Consumer(
        "^my-", bootstrap_servers=bootstrap, enable_auto_commit=False, **settings
    ) as consumer:
        while records := consumer.poll(wait_ms):
            for record in records:
                if ("content-type", b"json") in record.headers:
                    print("decoded", json.loads(record.value or b"null"))
        consumer.commit()


def main(bootstrap: str) -> None:
    """Read what `writing` wrote."""
    as_a_member(bootstrap, most=3)
    by_hand(bootstrap)
    json_for_a_while(bootstrap, wait_ms=5000)


if __name__ == "__main__":
    main(*sys.argv[1:])
