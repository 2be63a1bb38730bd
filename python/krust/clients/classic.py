"""`classic.Producer`: the producer API of Kafka 0.7 and 0.8, with its queue and its hooks.

    with Producer({"bootstrap.servers": "localhost:9092", "producer.type": "async"},
                  callback_handler=Trace()) as producer:
        producer.send(KeyedMessage("orders", "u17", "paid"))
        producer.send([KeyedMessage("orders", None, "shipped"), ...])

sync (default)  `send` returns when the broker has acknowledged, or raises.
async           `send` puts messages into a queue. One thread takes at most `batch.size` of them, at
                the latest `queue.time` ms after the last batch, and calls the event handler.

A message of an asynchronous producer passes, in this order:
    init -> before_enqueue -> after_enqueue -> after_dequeuing_existing_data -> before_sending_data
    and at the end last_batch_before_close -> close
Settings besides those of `krust.Producer`: producer.type, queue.time (5000 ms), queue.size (10000
messages), batch.size (200 messages), queue.enqueue.timeout.ms (0: a full queue raises
QueueFullError at once; -1: wait), topic.metadata.refresh.interval.ms (600000).
Source: the producer API of Apache Kafka 0.7 and 0.8, with names in Python's style.
Not done: compression by topic. A message that the handler could not send is reported, not queued
    again.
"""

from __future__ import annotations

import logging
import queue
import random
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from krust.clients import options
from krust.clients.producer import Producer as Core
from krust.closing import Closing
from krust.errors import ConfigError, KrustError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Key = TypeVar("Key")
Value = TypeVar("Value")

OWN = frozenset(
    {
        "batch.size",
        "producer.type",
        "queue.enqueue.timeout.ms",
        "queue.size",
        "queue.time",
        "topic.metadata.refresh.interval.ms",
    }
)
_log = logging.getLogger("krust.clients.classic")


class QueueFullError(KrustError):
    """The queue of an asynchronous producer is full, and `queue.enqueue.timeout.ms` has passed."""

    retriable = True


class KeyedMessage(NamedTuple, Generic[Key, Value]):
    """A message. `part_key`, if given, decides the partition instead of the key."""

    topic: str
    key: Key | None
    message: Value
    part_key: object = None


Messages = list[KeyedMessage[Any, Any]]


class Encoder(Protocol):
    """Turns keys and messages into bytes."""

    def to_message(self, data: Any) -> bytes | None:
        """The bytes of one message or key."""


class Partitioner(Protocol):
    """Chooses partitions."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """A number from 0 up to `num_partitions` - 1."""


class EventHandler(Protocol):
    """Sends a batch of an asynchronous producer, on its thread."""

    def init(self, config: Mapping[str, object]) -> None:
        """Called first."""

    def handle(self, events: Messages, producer: Producer) -> None:
        """Send the events. `producer.deliver` is the built-in way."""

    def close(self) -> None:
        """Called after the last batch."""


class CallbackHandler:
    """Hooks of an asynchronous producer. They do nothing unless they are overridden."""

    def init(self, config: Mapping[str, object]) -> None:
        """Called first."""

    def before_enqueue(self, data: KeyedMessage[Any, Any]) -> KeyedMessage[Any, Any]:
        """Returns the message that goes into the queue. Called on the thread that sends."""
        return data

    def after_enqueue(self, data: KeyedMessage[Any, Any], added: bool) -> None:
        """The message was queued or refused. Called on the thread that sends."""

    def after_dequeuing_existing_data(self, data: KeyedMessage[Any, Any] | None) -> Messages:
        """Returns the messages that join the batch. `data` None: `queue.time` has passed."""
        return [] if data is None else [data]

    def before_sending_data(self, data: Messages) -> Messages:
        """Returns the messages to send instead of a batch."""
        return data

    def last_batch_before_close(self) -> Messages:
        """Returns messages to send at the end."""
        return []

    def close(self) -> None:
        """Called last."""


class DefaultEncoder:
    """Encodes text as UTF-8, and keeps bytes."""

    def to_message(self, data: Any) -> bytes | None:
        """The bytes."""
        return data.encode() if isinstance(data, str) else data


class DefaultPartitioner:
    """|hash of the key| modulo the partitions, with Java's hashes: keys keep their partitions."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """The partition. The smallest hash, which has no absolute value, counts as 0."""
        hashed = java_hash(key)
        return 0 if hashed == -(1 << 31) else abs(hashed) % num_partitions


class Producer(Closing):
    """A producer; see the module.

    config, more      settings
    encoder           of messages; key_encoder of keys, default the same
    raises            ConfigError: an unknown or invalid setting
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        encoder: Encoder | None = None,
        key_encoder: Encoder | None = None,
        partitioner: Partitioner | None = None,
        event_handler: EventHandler | None = None,
        callback_handler: CallbackHandler | None = None,
        **more: object,
    ) -> None:
        given = options.read(options.PRODUCER | OWN, config, more)
        self._encoder = encoder or DefaultEncoder()
        self._key_encoder = key_encoder or self._encoder
        self._partitioner = partitioner or DefaultPartitioner()
        self._hooks = callback_handler or CallbackHandler()
        self._handler = event_handler
        kind = options.choice(given, "producer.type", "sync", "async")
        self._refresh_s = options.number(given, "topic.metadata.refresh.interval.ms", 600_000) / 1e3
        self._random: dict[str, tuple[int, float]] = {}
        self._closing = False
        if kind == "sync" and (callback_handler or event_handler):
            raise ConfigError("handlers are of a producer with producer.type=async")
        self._core = Core({name: value for name, value in given.items() if name not in OWN})
        self._thread: threading.Thread | None = None
        if kind == "sync":
            return
        self._time_s = options.number(given, "queue.time", 5000) / 1000
        self._batch = options.number(given, "batch.size", 200)
        self._timeout_s = _timeout(given)
        size = options.number(given, "queue.size", 10_000)
        self._queue: queue.Queue[KeyedMessage[Any, Any] | None] = queue.Queue(size)
        self._hooks.init(given)
        if self._handler is not None:
            self._handler.init(given)
        self._thread = threading.Thread(target=self._run, name="krust-classic", daemon=True)
        self._thread.start()

    def send(self, data: KeyedMessage[Any, Any] | Sequence[KeyedMessage[Any, Any]]) -> None:
        """Send a message or several.

        raises  KafkaError, UnreachableError: not written (sync); QueueFullError (async)
        """
        messages = [data] if isinstance(data, KeyedMessage) else list(data)
        if self._closing:
            raise ConfigError("this producer is closed")
        if self._thread is None:
            self.deliver(messages)
            return
        for message in messages:
            self._enqueue(self._hooks.before_enqueue(message))

    def deliver(self, messages: Messages) -> None:
        """Write messages now and wait, as a synchronous `send`. Raises as `send`."""
        for message in messages:
            self._core.produce(
                message.topic,
                self._encoder.to_message(message.message),
                None if message.key is None else self._key_encoder.to_message(message.key),
                self._partition(message),
            )
        self._core.flush()

    def close(self) -> None:
        """Send the queued messages, call the last hooks, end the thread. Idempotent."""
        if self._closing:
            return
        self._closing = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._hooks.close()
        self._core.close()

    def _enqueue(self, message: KeyedMessage[Any, Any]) -> None:
        try:
            wait = self._timeout_s is None or self._timeout_s > 0
            self._queue.put(message, block=wait, timeout=self._timeout_s if wait else None)
        except queue.Full:
            self._hooks.after_enqueue(message, False)
            raise QueueFullError(
                f"the queue is full with {self._queue.maxsize} messages",
                hint="raise queue.size, or let send wait: queue.enqueue.timeout.ms=-1",
            ) from None
        self._hooks.after_enqueue(message, True)

    def _partition(self, message: KeyedMessage[Any, Any]) -> int:
        count = self._core.partitions(message.topic)
        key = message.key if message.part_key is None else message.part_key
        if key is not None:
            return self._partitioner.partition(key, count)
        now = time.monotonic()
        chosen, until = self._random.get(message.topic, (0, 0.0))
        if now >= until or chosen >= count:
            chosen = random.randrange(count)  # noqa: S311 (spreads load, hides nothing)
            self._random[message.topic] = (chosen, now + self._refresh_s)
        return chosen

    def _run(self) -> None:
        """The thread: take batches from the queue until `close`."""
        events: Messages = []
        due = time.monotonic() + self._time_s
        while True:
            try:
                message = self._queue.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                events += self._hooks.after_dequeuing_existing_data(None)
            else:
                if message is None:
                    break
                events += self._hooks.after_dequeuing_existing_data(message)
            if len(events) >= self._batch or time.monotonic() >= due:
                self._handle(events)
                events = []
                due = time.monotonic() + self._time_s
        self._handle(events + self._hooks.last_batch_before_close())
        if self._handler is not None:
            self._handler.close()

    def _handle(self, events: Messages) -> None:
        if not events:
            return
        try:
            if self._handler is not None:
                self._handler.handle(events, self)
            else:
                self.deliver(self._hooks.before_sending_data(events))
        except Exception:
            _log.exception("%d messages were not sent", len(events))


def java_hash(key: object) -> int:
    """Java's hashCode: of text, bytes (Arrays.hashCode), int (a Long past 32 bits), bool.

    raises  TypeError: an object without a counterpart in Java
    """
    if isinstance(key, str):
        units = struct.unpack(f"<{len(key.encode('utf-16-le')) // 2}H", key.encode("utf-16-le"))
        return _signed(_rolled(0, units))
    if isinstance(key, bytes):
        return _signed(_rolled(1, struct.unpack(f"{len(key)}b", key)))
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if -(1 << 31) <= key < 1 << 31:
            return key
        return _signed((key ^ (key >> 32)) & 0xFFFFFFFF)
    raise TypeError(f"a key is str, bytes or int, not {type(key).__name__}; give a partitioner")


def _rolled(start: int, parts: Sequence[int]) -> int:
    hashed = start
    for part in parts:
        hashed = (31 * hashed + part) & 0xFFFFFFFF
    return hashed


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def _timeout(given: Mapping[str, object]) -> float | None:
    """How long to wait for a full queue, in seconds; None: without limit."""
    if str(given.get("queue.enqueue.timeout.ms", 0)) == "-1":
        return None
    return options.number(given, "queue.enqueue.timeout.ms", 0) / 1000
