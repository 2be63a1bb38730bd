"""Writing and reading in one event loop, without a thread of one's own.

    python -m examples.clients.asynchronous HOST:PORT TOPIC

The flow is `asyncio_example.py` of confluent-kafka's examples. Different on krust: no wrapper with
a polling thread is needed, `AsyncProducer.send` is awaited to its delivery and the loop watches the
client's descriptor.
"""

from __future__ import annotations

import asyncio
import sys

import krust


async def write(bootstrap: str, topic: str, items: list[str]) -> None:
    """One record at a time, then all at once."""
    async with krust.AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
        where = await producer.send(topic, items[0])
        print(f"{items[0]} is at offset {where.offset}")
        rest = await asyncio.gather(*(producer.send(topic, item) for item in items[1:]))
        print(f"and {len(rest)} more")


async def read(bootstrap: str, topic: str, count: int) -> None:
    """So many records, as a member of a group."""
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    async with krust.AsyncConsumer(topic, settings | {"group.id": "asynchronous"}) as consumer:
        async for record in consumer:
            print("read", record.value)
            count -= 1
            if not count:
                return


async def work(bootstrap: str, topic: str) -> None:
    """Both at the same time."""
    items = [f"item {number}" for number in range(10)]
    await asyncio.gather(write(bootstrap, topic, items), read(bootstrap, topic, len(items)))


def main(bootstrap: str, topic: str) -> None:
    """Run the loop."""
    asyncio.run(work(bootstrap, topic))


if __name__ == "__main__":
    main(*sys.argv[1:])
