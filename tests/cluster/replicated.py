"""What producers of a replicated topic were promised, compared with what its log contains.

`Writer` is a client that writes unique values without end; there is one for each client library.
`Ledger` collects what each was promised: the partition and the offset of each acknowledged value.
`Ledger.check` reads the topic and names every broken promise:

    lost      an acknowledged value is not at its offset
    doubled   a value is at two offsets, although its producer is idempotent
    unknown   nobody sent this value
    gap       an offset below the end has no record

Each value is the topic's name and a number. Numbers count from 0, and the number decides the
partition, so that a ledger of millions needs some bytes a record.
Threads: a ledger belongs to one writer. Others read how much it has, and check it after the writer
has stopped.
"""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError

import krust
from krust.errors import KrustError
from tests.waiting import WAIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

DELIVERY_MS = 120_000
PAUSE_S = 0.01
"""between two bursts of a writer"""
SLOW_BURST = 5
"""as much as a client written in Python sends at a time"""
UNDER_WAY = 20_000
"""records that a fast writer may have under way"""
REQUEST_MS = 5000
"""how long a leader that is cut off from the others may keep a request of a fast writer"""
NOTHING = -1


class Ledger:
    """The promises that the producer of one topic was given."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.sent = 0
        """the numbers below it may have been written"""
        self.failed: list[str] = []
        """what the client library gave up, with its reason: written at most once, or not at all"""
        self._count = 0
        self._promised = [array("q") for _ in range(partitions)]
        """of each partition: the number that was promised at each offset, or NOTHING"""
        self._promised_somewhere = array("q")
        """numbers that were acknowledged without an offset"""
        self._broken: list[str] = []

    def __len__(self) -> int:
        return self._count

    def value(self, number: int) -> bytes:
        """The record with this number."""
        return f"{self.topic}-{number}".encode()

    def values(self) -> Iterator[str]:
        """All acknowledged values."""
        for each in (*self._promised, self._promised_somewhere):
            yield from (f"{self.topic}-{number}" for number in each if number != NOTHING)

    def promised(self, number: int, partition: int, offset: int | None) -> None:
        """A value was acknowledged.

        offset  None: the client knows by a later answer that it was written, and not where
        """
        numbers = self._promised[partition]
        if offset is None:
            self._promised_somewhere.append(number)
            self._count += 1
            return
        if offset < 0:
            self._broken.append(f"lost: {number} was acknowledged without an offset")
            return
        if offset >= len(numbers):
            numbers.extend([NOTHING] * (offset + 1 - len(numbers)))
        if numbers[offset] != NOTHING:
            both = f"{numbers[offset]} and {number}"
            self._broken.append(f"lost: {both} were acknowledged at {partition}:{offset}")
        numbers[offset] = number
        self._count += 1

    def not_understood(self, report: str) -> None:
        """The client library reports something that cannot be."""
        self._broken.append(f"unknown: {report}")

    def gave_up(self, number: int, reason: object) -> None:
        """The client library reports that it could not deliver."""
        self.failed.append(f"{number} at {time.strftime('%H:%M:%S')}: {reason}")

    def check(self, bootstrap: str) -> list[str]:
        """All broken promises, by what the topic contains now."""
        broken = list(self._broken)
        found = bytearray(self.sent)
        for place, promised in enumerate(self._promised):
            numbers = array("q", [NOTHING]) * len(promised)
            count = 0
            for offset, value in read_partition(bootstrap, self.topic, place):
                number = self._number(place, value)
                if offset != count:
                    broken.append(f"gap: {place}:{count} to {place}:{offset}")
                count = offset + 1
                if number is None:
                    broken.append(f"unknown: {value!r} at {place}:{offset}")
                    continue
                if found[number]:
                    broken.append(f"doubled: {number}, again at {place}:{offset}")
                found[number] = 1
                if offset < len(promised):
                    numbers[offset] = number
            broken += [
                f"lost: {wanted} was acknowledged at {place}:{offset}, there is {numbers[offset]}"
                for offset, wanted in enumerate(promised)
                if wanted not in (NOTHING, numbers[offset])
            ]
        somewhere = self._promised_somewhere
        broken += [f"lost: {each} was acknowledged" for each in somewhere if not found[each]]
        return broken

    def _number(self, partition: int, value: bytes) -> int | None:
        topic, _, digits = value.rpartition(b"-")
        known = topic == self.topic.encode() and digits.isdigit()
        number = int(digits) if known else self.sent
        return number if number < self.sent and number % self.partitions == partition else None


def read_partition(bootstrap: str, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
    """Every record of a partition up to its high watermark: offset and value."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "log_level": 0,
            "check.crcs": True,
        }
    )
    try:
        place = TopicPartition(topic, partition, 0)
        _, end = until(lambda: _watermarks(consumer, place))
        consumer.assign([place])
        read, deadline = 0, time.monotonic() + WAIT_S
        while read < end:
            assert time.monotonic() < deadline, f"{place}: {read} of {end} records"
            for message in consumer.consume(10_000, 0.5):
                if message.error() is None:
                    offset, value = message.offset(), message.value()
                    assert offset is not None
                    assert isinstance(value, bytes)
                    yield offset, value
                    read = offset + 1
                    deadline = time.monotonic() + WAIT_S
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    """The log start offset and the high watermark; None: the leader has moved, ask again."""
    try:
        start, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
            raise
        return None
    else:
        return start, end


class Writer:
    """An idempotent producer with acks=all on a thread of its own.

    burst  how many values it sends at a time
    """

    def __init__(self, name: str, bootstrap: str, ledger: Ledger, burst: int) -> None:
        self.name = name
        self._bootstrap, self._ledger, self._burst = bootstrap, ledger, burst
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}")
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more; returns when the library has reported on everything."""
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError

    def _next(self, most: int) -> Iterator[tuple[int, int, bytes]]:
        """The next burst: number, partition and value of each."""
        ledger = self._ledger
        for number in range(ledger.sent, ledger.sent + min(self._burst, most)):
            ledger.sent = number + 1
            yield number, number % ledger.partitions, ledger.value(number)


class ConfluentWriter(Writer):
    """librdkafka."""

    propagation_ms = 0
    """how long it goes on with a topic that a broker does not know; krust never denies one"""

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_MS,
                "request.timeout.ms": REQUEST_MS,
                # It waits for the metadata of a suspended broker, 60 s by default.
                "socket.timeout.ms": REQUEST_MS,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.propagation.max.ms": self.propagation_ms,
                "log_level": 0,
            }
        )
        while not self._stops.is_set():
            for number, place, value in self._next(UNDER_WAY - len(producer)):
                try:
                    producer.produce(
                        self._ledger.topic, value, partition=place, on_delivery=self._delivered
                    )
                except KafkaException as error:
                    self._ledger.gave_up(number, error)
            producer.poll(0)
            self._stops.wait(PAUSE_S)
        assert producer.flush(DELIVERY_MS / 1000) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        value, place, offset = message.value(), message.partition(), message.offset()
        try:
            number = int(value.rpartition(b"-")[2])
            if error is not None:
                self._ledger.gave_up(number, error)
            else:
                self._ledger.promised(number, place, offset)
        except Exception as failure:  # poll would raise another error in its place
            self._ledger.not_understood(f"{value} at {place}:{offset}, {error}: {failure!r}")


class KrustWriter(Writer):
    """krust's own."""

    def _run(self) -> None:
        producer = krust.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "delivery.timeout.ms": DELIVERY_MS,
                "request.timeout.ms": REQUEST_MS,
                "linger.ms": 2,
            }
        )
        while not self._stops.is_set():
            under_way = self._ledger.sent - len(self._ledger) - len(self._ledger.failed)
            for number, place, value in self._next(UNDER_WAY - under_way):
                try:
                    producer.produce(
                        self._ledger.topic,
                        value,
                        partition=place,
                        on_delivery=partial(self._delivered, number),
                    )
                except KrustError as error:
                    self._ledger.gave_up(number, error)
            producer.poll()
            self._stops.wait(PAUSE_S)
        producer.close()

    def _delivered(self, number: int, error: KrustError | None, where: Any) -> None:
        if error is not None:
            self._ledger.gave_up(number, error)
        else:
            self._ledger.promised(number, where.partition, where.offset)


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
            for number, place, value in self._next(SLOW_BURST):
                try:
                    future = producer.send(self._ledger.topic, value, partition=place)
                except PythonError as error:
                    self._ledger.gave_up(number, error)
                    continue
                future.add_callback(self._delivered, number)
                future.add_errback(self._ledger.gave_up, number)
            self._stops.wait(PAUSE_S)
        producer.close(timeout=DELIVERY_MS / 1000)

    def _delivered(self, number: int, metadata: Any) -> None:
        self._ledger.promised(number, metadata.partition, metadata.offset)


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
                    asyncio.create_task(self._send(producer, *each))
                    for each in self._next(SLOW_BURST)
                }
                await asyncio.sleep(PAUSE_S)
                pending = {each for each in pending if not each.done()}
            await asyncio.gather(*pending)
        finally:
            await producer.stop()

    async def _send(
        self, producer: AIOKafkaProducer, number: int, partition: int, value: bytes
    ) -> None:
        try:
            sent = await producer.send_and_wait(self._ledger.topic, value, partition=partition)
        except AioError as error:
            self._ledger.gave_up(number, error)
        else:
            self._ledger.promised(number, sent.partition, sent.offset)


WRITERS = {
    "confluent": ConfluentWriter,
    "krust": KrustWriter,
    "python": PythonWriter,
    "aio": AioWriter,
}
