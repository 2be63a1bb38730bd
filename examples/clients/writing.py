"""Ways to write: wait for one record, keys, JSON, callbacks, many at once.

    python -m examples.clients.writing HOST:PORT

The flow is that of KafkaProducer in kafka-python's usage guide. Different on krust: `send` gives a
`Delivery` whose `result` takes milliseconds; there are no serializers, a value is bytes or text, so
`json.dumps` stands where the value is made; one callback, `on_delivery`, hears of both outcomes and
is called by `poll`, `flush` and `close`, never from a thread of the client's; retries need no
setting, `delivery.timeout.ms` bounds them; headers may be a dict.
"""

from __future__ import annotations

import json
import sys

import krust
from krust.errors import KrustError

TOPIC = "my-topic"


def main(bootstrap: str) -> None:
    """Write to `my-topic`, which the broker makes."""
    with krust.Producer(bootstrap_servers=bootstrap, compression_type="gzip") as producer:
        try:
            where = producer.send(TOPIC, b"raw_bytes").result(10_000)
        except KrustError as error:
            sys.exit(f"not written: {error}")
        print(where.topic, where.partition, where.offset)

        producer.produce(TOPIC, b"bar", key=b"foo")  # one key, one partition
        producer.produce(TOPIC, json.dumps({"key": "value"}), headers={"content-type": "json"})
        for number in range(100):
            producer.produce(TOPIC, f"msg {number}")

        def report(error: KrustError | None, where: object) -> None:
            print("I am an errback" if error else "delivered", error or where)

        producer.produce(TOPIC, b"raw_bytes", on_delivery=report)
        producer.flush()  # waits until all is written


if __name__ == "__main__":
    main(*sys.argv[1:])
