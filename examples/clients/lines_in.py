"""Each line of the standard input becomes a record, and each delivery a line of the error output.

    python -m examples.clients.lines_in HOST:PORT TOPIC < FILE

The flow is `producer.py` of confluent-kafka's examples. Different on krust: a full buffer makes
`produce` wait in place of a BufferError (`try_produce` is the one that does not wait); the delivery
has no `msg.topic()` but plain `where.topic`; `with` flushes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import krust

if TYPE_CHECKING:
    from krust._krust import Delivered
    from krust.errors import KrustError


def report(error: KrustError | None, where: Delivered) -> None:
    """What became of one record."""
    if error is not None:
        print(f"% Message failed delivery: {error}", file=sys.stderr)
    else:
        place = f"{where.topic} [{where.partition}] @ {where.offset}"
        print(f"% Message delivered to {place}", file=sys.stderr)


def main(bootstrap: str, topic: str) -> None:
    """Write until the input ends."""
    with krust.Producer({"bootstrap.servers": bootstrap}) as producer:
        for line in sys.stdin:
            producer.produce(topic, line.rstrip(), on_delivery=report)
            producer.poll()
        print("% Waiting for deliveries", file=sys.stderr)
        producer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
