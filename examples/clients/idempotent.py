"""Each record exactly once in its partition, and what to do when that cannot be.

    python -m examples.clients.idempotent HOST:PORT TOPIC COUNT

The flow is the idempotent producer of confluent-kafka's README and of librdkafka's
`idempotent_producer.c`. Different on krust: idempotence is on unless it is switched off; there are
no fatal errors after which a producer is of no use: records that were queued behind one that failed
are refused too, so that none overtakes, and the next ones go under a new identity.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import krust

if TYPE_CHECKING:
    from krust._krust import Delivered
    from krust.errors import KrustError


def main(bootstrap: str, topic: str, count: str) -> None:
    """Write numbers, and say how many arrived."""
    delivered, failed = 0, 0

    def report(error: KrustError | None, where: Delivered) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        else:
            failed += 1
            print(f"% failed: {error}", file=sys.stderr)

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
    with krust.Producer(settings) as producer:
        for number in range(int(count)):
            producer.produce(topic, f"{number}", on_delivery=report)
            producer.poll()
    print(f"{delivered} delivered, {failed} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
