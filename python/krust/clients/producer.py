"""`krust.Producer`: writes records to any Kafka. A native thread delivers them.

    with krust.Producer(bootstrap_servers="localhost:9092") as producer:
        producer.produce("orders", b"value", key=b"key")             # waits only when it is full
        where = producer.send("orders", b"value").result()           # where.offset

Threads: any thread may produce. Delivery callbacks run on a thread that calls `poll`, `flush`,
`close`, or a `produce` that has to wait, and never at another time. Promised: the records of a
partition arrive in the order of the calls, once each (idempotence is on unless
`enable.idempotence=false`). `with`, `close` and the end of the interpreter send the remaining
records. The error of a record is reported by its delivery, or by the next `flush`. Transactions:
see `krust.clients.transactions`. Not promised: that a record whose delivery timed out was not
written.
"""

from __future__ import annotations

import atexit
import os
import select
import time
import warnings
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, Unpack

from krust.clients import options
from krust.clients.transactions import TransactionalSender
from krust.errors import KrustError, UnreachableError
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from krust._krust import Delivered, _Headers
    from krust.clients.keywords import ProducerSettings

DELIVERY_MS, BLOCK_MS = 120_000, 60_000
"""Kafka's defaults. With a shorter delivery timeout the wait for a topic is not longer either."""
_SLICE_S = 0.05
_living: weakref.WeakSet[Producer] = weakref.WeakSet()


class Delivery:
    """The delivery of a record that `send` accepted."""

    __slots__ = ("_error", "_producer", "_where")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._error: KrustError | None = None
        self._where: Delivered | None = None

    def __call__(self, error: KrustError | None, where: Delivered) -> None:
        """Set the result. The producer calls it."""
        self._error, self._where = error, where

    def done(self) -> bool:
        """Whether the result is known."""
        return self._where is not None

    def result(self, timeout_ms: float | None = None) -> Delivered:
        """Wait for the delivery. Returns the record's topic, partition and offset.

        raises  KafkaError, UnreachableError: it was not written, or not in `timeout_ms`
        """
        end = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while self._where is None:
            self._producer.serve()
            left = _SLICE_S if end is None else min(_SLICE_S, end - time.monotonic())
            if self._where is None and left <= 0:
                raise UnreachableError(f"no delivery within {timeout_ms} ms")
            if self._where is None:
                _wait(self._producer.fileno(), left)
        if self._error is not None:
            raise self._error
        return self._where


def _wait(descriptor: int, seconds: float) -> None:
    """Wait until a descriptor can be read. (`select` would be limited to 1,024 descriptors.)"""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)


class Producer(TransactionalSender):
    """Writes records.

    config, more  settings (`ProducerSettings` lists them): acks, linger.ms, batch.size,
                  compression.type, delivery.timeout.ms, enable.idempotence, buffer.memory,
                  max.block.ms, transactional.id, transaction.timeout.ms ...
    raises        ConfigError: a setting that does not exist or cannot be
    """

    _pid: int
    open: bool = False
    """whether it accepts records"""

    def __new__(
        cls, config: Mapping[str, object] | None = None, /, **more: Unpack[ProducerSettings]
    ) -> Self:
        """Start the thread; see the class."""
        given = options.read(options.PRODUCER, config, more)
        if str(given.get("acks", "all")) in ("all", "-1"):
            given.setdefault("enable.idempotence", True)
        bootstrap = str(given[options.BOOTSTRAP])
        delivery_ms = options.number(given, "delivery.timeout.ms", DELIVERY_MS)
        given.setdefault("max.block.ms", min(BLOCK_MS, delivery_ms))
        made = super().__new__(cls, bootstrap, options.core(given, options.PRODUCER))
        made.delivery_ms = delivery_ms
        made._pid, made.open = os.getpid(), True
        _living.add(made)
        return made

    def __init__(
        self, config: Mapping[str, object] | None = None, /, **more: Unpack[ProducerSettings]
    ) -> None:
        """Nothing: `__new__` does the work."""

    def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: _Headers | None = None,
    ) -> Delivery:
        """Add a record as `produce` does. Returns its delivery."""
        delivery = Delivery(self)
        self.produce(topic, value, key, partition, delivery, timestamp_ms, headers)
        return delivery

    def poll(self, timeout_ms: float = 0) -> int:
        """Run the callbacks of deliveries; waits for the first. Returns the number of batches."""
        served = self.serve()
        if not served and timeout_ms > 0:
            _wait(self.fileno(), timeout_ms / 1000)
            served = self.serve()
        return served

    def flush(self, timeout_ms: float | None = None) -> int:
        """Send all records and wait. Returns the number of batches left after `timeout_ms`.

        raises  KafkaError, UnreachableError: records without `on_delivery` were not written
        """
        left = self.drain(2 * self.delivery_ms if timeout_ms is None else int(timeout_ms))
        lost = self.take_failures()
        if lost is not None:
            error, count = lost
            was = "was" if count == 1 else "were"
            what = f"{counted(count, 'record')} {was} not delivered"
            error.add_note(f"{what}; this is the first one's reason")
            raise error
        return left

    def close(self, timeout_ms: float | None = None) -> None:
        """`flush`, then end. Idempotent. UnreachableError: not all was sent in `timeout_ms`.

        A transaction that is open is aborted.
        """
        if not self.open:
            return
        left = None
        try:
            if self.in_transaction():
                self.abort_transaction()
            left = self.flush(timeout_ms)
        finally:
            self.open = False
            _living.discard(self)
            self.end()
        if left:
            most = 2 * self.delivery_ms if timeout_ms is None else timeout_ms
            raise UnreachableError(
                f"{counted(left, 'batch', 'batches')} not delivered within {most} ms"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except KrustError:
            if kind is None:
                raise

    def __del__(self, warn: Callable[..., Any] = warnings.warn) -> None:
        if self.open and self._pid == os.getpid():
            warn(f"{self!r} was not closed", ResourceWarning, source=self)
            self.close()


@atexit.register
def _at_exit() -> None:
    with ExitStack() as stack:
        for producer in list(_living):
            if producer._pid == os.getpid():
                stack.callback(producer.close)
