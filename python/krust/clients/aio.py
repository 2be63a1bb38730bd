"""`krust.AsyncProducer` and `krust.AsyncConsumer`: the same clients, awaitable.

    async with krust.AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        where = await producer.send("orders", b"paid")           # one await to the delivery
    async with krust.AsyncConsumer("orders", bootstrap_servers=..., group_id="billing") as consumer:
        async for record in consumer: ...

A producer's native thread wakes the loop through a descriptor, without a task or a Python thread. A
consumer has one thread, in which polls wait. A cancelled call does not stop
its record from being sent. A cancelled poll ends within 100 ms and loses no record. Listeners: a
coroutine function runs on the loop while the consumer's thread waits for it and does what it asks
for meanwhile (`await consumer.commit()`); a plain function runs on that thread.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from krust.clients.consumer import COLUMNS, Consumer
from krust.clients.producer import Producer
from krust.clients.transactions import group_offsets
from krust.errors import ConfigError, KrustError, TransactionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from krust._krust import ArrowBatch, Delivered, Record, _Headers
    from krust.clients.consumer import Listener, TopicPartitionLike
    from krust.clients.coordinator_client import GroupMetadata
    from krust.clients.keywords import ConsumerSettings, ProducerSettings
    from krust.coordinator.consumer_protocol import TopicPartition

    Returned = TypeVar("Returned")
    AsyncListener = Callable[["AsyncConsumer", list[TopicPartition]], Awaitable[object]]


class AsyncProducer:
    """Writes records. Settings and errors: those of `krust.Producer`."""

    def __init__(
        self, config: Mapping[str, object] | None = None, /, **more: Unpack[ProducerSettings]
    ) -> None:
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
        """Write a record. Returns its topic, partition and offset.

        raises  KafkaError, UnreachableError: it was not written
        """
        delivery = await self.enqueue(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await delivery

    async def enqueue(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: _Headers | None = None,
    ) -> asyncio.Future[Delivered]:
        """Add a record; waits only for room. The caller may await the delivery."""
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
        record = (topic, value, key, partition, settle, timestamp_ms, headers)
        while not self._core.try_produce(*record):
            await self._news.wait()
            self._news.clear()
        return delivery

    async def flush(self) -> None:
        """Send all records and wait for their deliveries. Each delivery has its own error."""
        self._attach()
        self._news.clear()
        while self._core.drain(0):
            self._news.set()  # what was drained is news for other tasks
            self._news.clear()
            await self._news.wait()
            self._news.clear()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """As `Producer.transaction`: `async with producer.transaction(): ...`."""
        await self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            await self._abort_because_of(error)
            raise
        try:
            await self.commit_transaction()
        except TransactionError as error:
            await self._abort_because_of(error)
            raise

    async def init_transactions(self) -> None:
        """As `Producer.init_transactions`."""
        await self._call(self._core.init_transactions)

    async def begin_transaction(self) -> None:
        """As `Producer.begin_transaction`."""
        await self._call(self._core.begin_transaction)

    async def send_offsets(
        self,
        offsets: AsyncConsumer | Consumer | Mapping[TopicPartitionLike, int],
        group: GroupMetadata | str | None = None,
    ) -> None:
        """As `Producer.send_offsets`."""
        known = offsets.core if isinstance(offsets, AsyncConsumer) else offsets
        member, positions = group_offsets(known, group)
        await self._call(lambda: self._core.add_offsets(member, positions))

    async def commit_transaction(self) -> None:
        """As `Producer.commit_transaction`."""
        await self._call(lambda: self._core.end_transaction(True, 2 * self._core.delivery_ms))

    async def abort_transaction(self) -> None:
        """As `Producer.abort_transaction`."""
        await self._call(lambda: self._core.end_transaction(False, 2 * self._core.delivery_ms))

    async def _call(self, call: Callable[[], None]) -> None:
        """Make a call on the transaction in a thread. If it is cancelled, it ends first."""
        self._attach()
        job = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.wait([job])
            raise

    async def _abort_because_of(self, error: BaseException) -> None:
        if not self._core.in_transaction():
            return
        try:
            await self.abort_transaction()
        except KrustError as failed:
            error.add_note(f"the abort failed too: {failed}")

    async def close(self) -> None:
        """`flush`, then end. Idempotent. A transaction that is open is aborted."""
        if self._core.open:
            if self._core.in_transaction():
                await self.abort_transaction()
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
    """Reads records. Settings and errors: those of `krust.Consumer`; `core` is one."""

    def __init__(self, *what: Mapping[str, object] | str, **more: Unpack[ConsumerSettings]) -> None:
        self.core = Consumer(*what, **more)
        self._thread = ThreadPoolExecutor(1, "krust-poll")
        self._loop: asyncio.AbstractEventLoop | None = None

    async def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assign: AsyncListener | Listener | None = None,
        on_revoke: AsyncListener | Listener | None = None,
        on_lost: AsyncListener | Listener | None = None,
    ) -> None:
        """As `Consumer.subscribe`.

        on_...  a coroutine function is called with this consumer and may await all but `poll`,
                `poll_arrow` and `close`; a plain one with `core`, on its thread
        """
        assign, revoke, lost = map(self._hook, (on_assign, on_revoke, on_lost))
        subscribe = self.core.subscribe
        await self._run(lambda: subscribe(topics, on_assign=assign, on_revoke=revoke, on_lost=lost))

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        await self._run(self.core.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartitionLike | tuple[str, int, int]]) -> None:
        """As `Consumer.assign`."""
        await self._run(lambda: self.core.assign(partitions))

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[Record]:
        """As `Consumer.poll`. The next call returns the records of a cancelled one."""
        self._outside("poll")
        self._usable()
        job = self._thread.submit(self.core.poll, timeout_ms, max_records)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            self.core.wakeup()
            job.add_done_callback(self._put_back)
            raise

    async def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_records: int = 65_536,
        columns: Iterable[str] = COLUMNS,
    ) -> ArrowBatch | None:
        """As `Consumer.poll_arrow`. The next call returns the records of a cancelled one."""
        self._outside("poll_arrow")
        self._usable()

        def poll() -> tuple[ArrowBatch | None, dict[TopicPartition, int]]:
            before = self.core.positions()
            return self.core.poll_arrow(timeout_ms, max_records, columns), before

        def go_back(job: Future[tuple[ArrowBatch | None, dict[TopicPartition, int]]]) -> None:
            if not job.cancelled() and job.exception() is None and job.result()[0] is not None:
                self.core.restore(job.result()[1])

        job = self._thread.submit(poll)
        try:
            return (await asyncio.wrap_future(job))[0]
        except asyncio.CancelledError:
            self.core.wakeup()
            job.add_done_callback(go_back)
            raise

    async def commit(self, offsets: Mapping[TopicPartitionLike, int] | None = None) -> None:
        """As `Consumer.commit`."""
        await self._run(lambda: self.core.commit(offsets))

    def group_metadata(self) -> GroupMetadata:
        """As `Consumer.group_metadata`, without waiting."""
        return self.core.group_metadata()

    async def committed(
        self, partitions: Iterable[TopicPartitionLike]
    ) -> dict[TopicPartition, int]:
        """As `Consumer.committed`."""
        return await self._run(lambda: self.core.committed(partitions))

    async def position(self, topic: str, partition: int) -> int:
        """As `Consumer.position`."""
        return await self._run(lambda: self.core.position(topic, partition))

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """As `Consumer.seek`."""
        await self._run(lambda: self.core.seek(topic, partition, offset))

    async def seek_to_beginning(self, partitions: Iterable[TopicPartitionLike] = ()) -> None:
        """As `Consumer.seek_to_beginning`."""
        await self._run(lambda: self.core.seek_to_beginning(partitions))

    async def seek_to_end(self, partitions: Iterable[TopicPartitionLike] = ()) -> None:
        """As `Consumer.seek_to_end`."""
        await self._run(lambda: self.core.seek_to_end(partitions))

    async def pause(self, partitions: Iterable[TopicPartitionLike]) -> None:
        """As `Consumer.pause`."""
        await self._run(lambda: self.core.pause(partitions))

    async def resume(self, partitions: Iterable[TopicPartitionLike]) -> None:
        """As `Consumer.resume`."""
        await self._run(lambda: self.core.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """As `Consumer.paused`, without waiting."""
        return self.core.paused()

    def assignment(self) -> list[TopicPartition]:
        """As `Consumer.assignment`, without waiting."""
        return self.core.assignment()

    def subscription(self) -> list[str]:
        """As `Consumer.subscription`, without waiting."""
        return self.core.subscription()

    async def topics(self) -> dict[str, int]:
        """As `Consumer.topics`."""
        return await self._run(self.core.topics)

    async def offsets_for_times(
        self, times: Mapping[TopicPartitionLike, int]
    ) -> dict[TopicPartition, int | None]:
        """As `Consumer.offsets_for_times`."""
        return await self._run(lambda: self.core.offsets_for_times(times))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartitionLike]
    ) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return await self._run(lambda: self.core.beginning_offsets(partitions))

    async def end_offsets(
        self, partitions: Iterable[TopicPartitionLike]
    ) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return await self._run(lambda: self.core.end_offsets(partitions))

    def wakeup(self) -> None:
        """As `Consumer.wakeup`."""
        self.core.wakeup()

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Each record, for ever; ends when the consumer is closed."""
        while not self.core.closed:
            rest = self.core.buffered
            if not rest:
                rest.extend(await self.poll(1000))
            while rest:
                yield rest.popleft()

    async def close(self, timeout_ms: float = 5000) -> None:
        """As `Consumer.close`; the thread ends too. Idempotent."""
        self._outside("close")
        if self.core.closed:
            return
        try:
            await self._run(lambda: self.core.close(timeout_ms))
        finally:
            self._thread.shutdown()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], Returned]) -> Returned:
        """Have the thread make a call, after its current one or while it waits for a listener."""
        self._loop = asyncio.get_running_loop()
        listener = self._listener()
        if listener is None:
            self._usable()
            return await self._loop.run_in_executor(self._thread, call)
        answer: Future[Returned] = Future()

        def answered() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        listener.jobs.put(answered)
        return await asyncio.wrap_future(answer)

    def _listener(self) -> _Listening | None:
        """The running listener that this is called from; None: no listener."""
        listener = _LISTENING.get()
        ours = listener is not None and listener.consumer is self and listener.open
        return listener if ours else None

    def _usable(self) -> None:
        if self.core.closed:
            raise ConfigError("this consumer is closed")

    def _outside(self, what: str) -> None:
        if self._listener() is not None:
            raise ConfigError(f"a listener cannot {what}", hint="do that after the poll it is in")

    def _hook(self, listener: AsyncListener | Listener | None) -> Listener | None:
        if listener is None:
            return None
        called = getattr(listener, "__call__", None)  # noqa: B004 (its type is asked)
        if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(called):
            return lambda _core, places: self._listen(listener, places)
        plain: Any = listener
        return lambda core, places: plain(core, places)

    def _listen(self, listener: Any, places: list[TopicPartition]) -> None:
        """Run a listener's coroutine on the loop. Until it ends, the thread makes its calls."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return  # the program ends without `close`, and the loop is gone
        running = _Listening(self)

        async def report() -> None:
            _LISTENING.set(running)
            await listener(self, places)

        over = asyncio.run_coroutine_threadsafe(report(), loop)
        over.add_done_callback(running.end)
        while (job := running.jobs.get()) is not None:
            job()
        over.result()

    def _put_back(self, job: Future[list[Record]]) -> None:
        if not job.cancelled() and job.exception() is None:
            self.core.buffered.extendleft(reversed(job.result()))


class _Listening:
    """A listener that runs on the loop, and its calls for the consumer's thread."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer
        self.open = True
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def end(self, _: object) -> None:
        """Let the thread continue. Called on the loop."""
        self.open = False
        self.jobs.put(None)


_LISTENING: ContextVar[_Listening | None] = ContextVar("krust_listening", default=None)
