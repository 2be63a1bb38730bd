"""What producers of a replicated topic were promised, compared with what its log contains.

`Writer` is a client that writes unique values without end; there is one for each client library.
`Ledger` collects what each was promised: the partition and the offset of each acknowledged value.
`Ledger.check` reads the topic and names every broken promise:

    lost      an acknowledged value is not at its offset
    doubled   a value is at two offsets, although its producer is idempotent
    unknown   nobody sent this value
    gap       an offset below the end has no record
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError

from tests.waiting import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

DELIVERY_MS = 120_000
PAUSE_S = 0.01
"""between two bursts of a writer"""


class Ledger:
    """The promises that the producers of one topic were given."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.sent: set[str] = set()
        self.acknowledged: dict[tuple[int, int], str] = {}
        """(partition, offset) -> value"""
        self.failed: list[str] = []
        """what the client library gave up, with its reason: written at most once, or not at all"""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.acknowledged)

    def sends(self, value: str) -> None:
        """A producer is about to send a value."""
        with self._lock:
            self.sent.add(value)

    def promised(self, partition: int, offset: int, value: str) -> None:
        """A value was acknowledged."""
        with self._lock:
            self.acknowledged[partition, offset] = value

    def gave_up(self, value: str, reason: object) -> None:
        """The client library reports that it could not deliver."""
        with self._lock:
            self.failed.append(f"{value}: {reason}")

    def check(self, bootstrap: str) -> list[str]:
        """All broken promises, by what the topic contains now."""
        found = dict(read_topic(bootstrap, self.topic, self.partitions))
        with self._lock:
            promised, sent = dict(self.acknowledged), set(self.sent)
        broken = [
            f"lost: {value} was acknowledged at {place}, there is {found.get(place)}"
            for place, value in promised.items()
            if found.get(place) != value
        ]
        count = Counter(found.values())
        broken += [f"doubled: {value} {times} times" for value, times in count.items() if times > 1]
        broken += [f"unknown: {value} at {at}" for at, value in found.items() if value not in sent]
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset in found:
            offsets[partition].append(offset)
        for partition, each in offsets.items():
            if sorted(each) != list(range(len(each))):
                broken.append(f"gap: partition {partition} has {len(each)} records to {max(each)}")
        return broken


def read_topic(
    bootstrap: str, topic: str, partitions: int
) -> Iterator[tuple[tuple[int, int], str]]:
    """Every record up to the high watermark: ((partition, offset), value)."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "log_level": 0})
    try:
        for partition in range(partitions):
            place = TopicPartition(topic, partition)
            _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
            consumer.assign([TopicPartition(topic, partition, 0)])
            read, deadline = 0, time.monotonic() + WAIT_S
            while read < end:
                assert time.monotonic() < deadline, f"{place}: {read} of {end} records"
                for message in consumer.consume(1000, 0.5):
                    if message.error() is None:
                        offset, value = message.offset(), message.value()
                        assert offset is not None
                        assert isinstance(value, bytes)
                        yield (partition, offset), value.decode()
                        read, deadline = offset + 1, time.monotonic() + WAIT_S
    finally:
        consumer.close()


class Writer:
    """An idempotent producer with acks=all on a thread of its own.

    burst  how many values it sends at a time
    """

    def __init__(self, name: str, bootstrap: str, ledger: Ledger, burst: int) -> None:
        self.name = name
        self._bootstrap, self._ledger, self._burst = bootstrap, ledger, burst
        self._stops = threading.Event()
        self._number = 0
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}")
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more; returns when the library has reported on everything."""
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError

    def _values(self) -> list[tuple[int, str]]:
        """The next burst: partition and value."""
        values = []
        for _ in range(self._burst):
            value = f"{self.name}-{self._number}"
            self._ledger.sends(value)
            values.append((self._number % self._ledger.partitions, value))
            self._number += 1
        return values


class ConfluentWriter(Writer):
    """librdkafka."""

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_MS,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        while not self._stops.is_set():
            for partition, value in self._values():
                with contextlib.suppress(BufferError):
                    producer.produce(
                        self._ledger.topic, value, partition=partition, on_delivery=self._delivered
                    )
            producer.poll(PAUSE_S)
        assert producer.flush(DELIVERY_MS / 1000) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is not None:
            self._ledger.gave_up(value, error)
        else:
            self._ledger.promised(message.partition(), message.offset(), value)


class PythonWriter(Writer):
    """kafka-python."""

    def _run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap.split(","),
            enable_idempotence=True,
            acks="all",
            delivery_timeout_ms=DELIVERY_MS,
            reconnect_backoff_max_ms=200,
        )
        while not self._stops.is_set():
            for partition, value in self._values():
                try:
                    future = producer.send(self._ledger.topic, value.encode(), partition=partition)
                except PythonError as error:
                    self._ledger.gave_up(value, error)
                    continue
                future.add_callback(self._delivered, value)
                future.add_errback(self._ledger.gave_up, value)
            self._stops.wait(PAUSE_S)
        producer.close(timeout=DELIVERY_MS / 1000)

    def _delivered(self, value: str, metadata: Any) -> None:
        self._ledger.promised(metadata.partition, metadata.offset, value)


class AioWriter(Writer):
    """aiokafka."""

    def _run(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap.split(","),
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=10_000,
        )
        await producer.start()
        try:
            pending: set[asyncio.Task[None]] = set()
            while not self._stops.is_set():
                pending |= {
                    asyncio.create_task(self._send(producer, *each)) for each in self._values()
                }
                await asyncio.sleep(PAUSE_S)
                pending = {each for each in pending if not each.done()}
            await asyncio.gather(*pending)
        finally:
            await producer.stop()

    async def _send(self, producer: AIOKafkaProducer, partition: int, value: str) -> None:
        try:
            sent = await producer.send_and_wait(
                self._ledger.topic, value.encode(), partition=partition
            )
        except AioError as error:
            self._ledger.gave_up(value, error)
        else:
            self._ledger.promised(sent.partition, sent.offset, value)


WRITERS = {"confluent": ConfluentWriter, "python": PythonWriter, "aio": AioWriter}
