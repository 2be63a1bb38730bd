"""`krust.AsyncProducer` and `krust.AsyncConsumer`: the same clients, awaitable.

    async with krust.AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        where = await producer.send("orders", b"paid")           # one await to the delivery
    async with krust.AsyncConsumer("orders", bootstrap_servers=..., group_id="billing") as consumer:
        async for record in consumer: ...

A producer's thread wakes the loop through a descriptor: no task, no thread of Python's. A consumer
has one thread, where polls wait; listeners are called there. A call that is cancelled leaves its
record on its way; a poll that is cancelled ends within 100 ms and loses no record.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from krust.clients.consumer import Consumer
from krust.clients.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from concurrent.futures import Future
    from types import TracebackType

    from krust._krust import Delivered, Record, _Headers
    from krust.clients.consumer import Listener, Place
    from krust.coordinator.consumer_protocol import TopicPartition
    from krust.errors import KrustError

    Returned = TypeVar("Returned")


class AsyncProducer:
    """Writes records. Settings and errors: those of `krust.Producer`."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **more: object) -> None:
        self._core = Producer(config, **more)
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: _Headers | None = None,
    ) -> Delivered:
        """Write a record: where it is.

        raises  KafkaError, UnreachableError: it was not written
        """
        rest = {"partition": partition, "timestamp_ms": timestamp_ms, "headers": headers}
        return await (await self.enqueue(topic, value, key=key, **rest))

    async def enqueue(
        self, topic: str, value: bytes | str | None = None, **rest: Any
    ) -> asyncio.Future[Delivered]:
        """Add a record, waiting for room only; what comes of it is awaited, or not.

        rest  as in `send`
        """
        self._attach()
        delivery: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()

        def settle(error: KrustError | None, where: Delivered) -> None:
            if delivery.cancelled():
                return
            if error is None:
                delivery.set_result(where)
            else:
                delivery.set_exception(error)

        self._news.clear()
        while not self._core.try_produce(topic, value, on_delivery=settle, **rest):
            await self._news.wait()
            self._news.clear()
        return delivery

    async def flush(self) -> None:
        """Send all and wait for the answers; each delivery has its own error."""
        self._attach()
        self._news.clear()
        while self._core.drain(0):
            await self._news.wait()
            self._news.clear()

    async def close(self) -> None:
        """`flush`, then end. Idempotent."""
        if self._core.open:
            await self.flush()
        if self._loop is not None:
            self._loop.remove_reader(self._core.fileno())
            self._loop = None
        self._core.close()

    async def __aenter__(self) -> Self:
        self._attach()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _attach(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._core.fileno(), self._serve)

    def _serve(self) -> None:
        self._core.serve()
        self._news.set()


class AsyncConsumer:
    """Reads records. Settings and errors: those of `krust.Consumer`; `core` is one.

    What waits for nothing (`assignment`, `paused`, `subscription`) is asked of `core`.
    """

    def __init__(self, *what: Mapping[str, object] | str, **more: object) -> None:
        self.core = Consumer(*what, **more)
        self._thread = ThreadPoolExecutor(1, "krust-poll")

    async def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """As `Consumer.subscribe`; listeners are called on the consumer's thread."""
        hooks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        await self._run(lambda: self.core.subscribe(topics, **hooks))

    async def assign(self, partitions: Iterable[Place | tuple[str, int, int]]) -> None:
        """As `Consumer.assign`."""
        await self._run(lambda: self.core.assign(partitions))

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """As `Consumer.poll`; what comes to a call that was cancelled, the next one gives."""
        job = self._thread.submit(self.core.poll, timeout_ms, max_records)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            self.core.wakeup()
            job.add_done_callback(self._put_back)
            raise

    async def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """As `Consumer.commit`."""
        await self._run(lambda: self.core.commit(offsets))

    async def committed(self, partitions: Iterable[Place]) -> dict[TopicPartition, int]:
        """As `Consumer.committed`."""
        return await self._run(lambda: self.core.committed(partitions))

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """As `Consumer.seek`."""
        await self._run(lambda: self.core.seek(topic, partition, offset))

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Each record, for ever."""
        while True:
            rest = self.core.rest
            if not rest:
                rest.extend(await self.poll(1000))
            while rest:
                yield rest.popleft()

    async def close(self) -> None:
        """As `Consumer.close`; the thread ends too. Idempotent."""
        if self.core.closed:
            return
        try:
            await self._run(self.core.close)
        finally:
            self._thread.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], Returned]) -> Returned:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _put_back(self, job: Future[list[Record]]) -> None:
        if not job.cancelled() and job.exception() is None:
            self.core.rest.extendleft(reversed(job.result()))
