"""The producer of Kafka 0.7: its callbacks, queue and partitioner."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from krust.clients import classic
from krust.clients.classic import KeyedMessage
from krust.errors import ConfigError, KafkaError
from tests.clients.conftest import read


class Trace(classic.CallbackHandler):
    """Notes each hook."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def init(self, config: Mapping[str, object]) -> None:
        self.seen.append("init")

    def before_enqueue(self, data: KeyedMessage[Any, Any]) -> KeyedMessage[Any, Any]:
        self.seen.append("before_enqueue")
        return data._replace(message=data.message + "!")

    def after_enqueue(self, data: KeyedMessage[Any, Any], added: bool) -> None:
        self.seen.append(("after_enqueue", added))

    def after_dequeuing_existing_data(
        self, data: KeyedMessage[Any, Any] | None
    ) -> classic.Messages:
        self.seen.append("after_dequeuing_existing_data")
        return [] if data is None else [data, data]

    def before_sending_data(self, data: classic.Messages) -> classic.Messages:
        self.seen.append(("before_sending_data", len(data)))
        return data

    def last_batch_before_close(self) -> classic.Messages:
        self.seen.append("last_batch_before_close")
        return [KeyedMessage("", None, "last")]

    def close(self) -> None:
        self.seen.append("close")


def test_hooks_run_in_order_and_change_the_sent_messages(bootstrap: str, single: str) -> None:
    class Last(Trace):
        def last_batch_before_close(self) -> classic.Messages:
            super().last_batch_before_close()
            return [KeyedMessage(single, None, "last")]

    trace = Last()
    with classic.Producer(
        bootstrap_servers=bootstrap,
        producer_type="async",
        queue_time=600_000,
        callback_handler=trace,
    ) as producer:
        producer.send(KeyedMessage(single, None, "one"))
    in_thread = [what for what in trace.seen if what != ("after_enqueue", True)]
    assert ("after_enqueue", True) in trace.seen
    assert in_thread == [
        "init",
        "before_enqueue",
        "after_dequeuing_existing_data",
        "last_batch_before_close",
        ("before_sending_data", 3),
        "close",
    ]
    values = [record.value for record in read(bootstrap, single)]
    assert values == [b"one!", b"one!", b"last"]


def test_a_batch_leaves_when_it_is_full_and_the_rest_when_its_time_is_over(
    bootstrap: str, single: str
) -> None:
    batches: list[int] = []
    three = threading.Event()

    class Handler:
        def init(self, config: Mapping[str, object]) -> None:
            assert config["queue.time"] == 50

        def handle(self, events: classic.Messages, producer: classic.Producer) -> None:
            batches.append(len(events))
            producer.deliver(events)
            if sum(batches) == 5:
                three.set()

        def close(self) -> None:
            batches.append(-1)

    with classic.Producer(
        bootstrap_servers=bootstrap,
        producer_type="async",
        batch_size=2,
        queue_time=50,
        event_handler=Handler(),
    ) as producer:
        producer.send([KeyedMessage(single, None, str(number)) for number in range(5)])
        three.wait()
        assert max(batches) <= 2
    assert batches[-1] == -1
    assert [record.value for record in read(bootstrap, single)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_full_queue_refuses_at_once_or_waits() -> None:
    held, free = threading.Event(), threading.Event()
    handled: list[int] = []

    class Slow:
        def init(self, config: Mapping[str, object]) -> None: ...

        def handle(self, events: classic.Messages, producer: classic.Producer) -> None:
            held.set()
            free.wait()
            handled.append(len(events))

        def close(self) -> None: ...

    settings = {"bootstrap.servers": "127.0.0.1:1", "producer.type": "async", "queue.size": 1}
    trace = Trace()
    with classic.Producer(
        settings, batch_size=1, event_handler=Slow(), callback_handler=trace
    ) as producer:
        producer.send(KeyedMessage("t", None, "held"))
        held.wait()
        producer.send(KeyedMessage("t", None, "queued"))
        with pytest.raises(classic.QueueFullError, match="full with 1"):
            producer.send(KeyedMessage("t", None, "refused"))
        assert trace.seen[-1] == ("after_enqueue", False)
        free.set()
    assert sum(handled) >= 4


def test_a_synchronous_send_returns_after_delivery_or_raises(bootstrap: str, topic: str) -> None:
    with classic.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send([KeyedMessage(topic, "key", str(n), part_key=n) for n in range(6)])
        for partition in range(3):
            records = read(bootstrap, topic, partition)
            assert [record.value for record in records] == [
                b"%d" % partition,
                b"%d" % (partition + 3),
            ]
            assert {record.key for record in records} == {b"key"}
        with pytest.raises(KafkaError):
            producer.send(KeyedMessage(topic, None, bytes(2_000_000)))


def test_messages_without_a_key_share_a_partition(bootstrap: str, topic: str) -> None:
    with classic.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send([KeyedMessage(topic, None, str(number)) for number in range(20)])
    counts = [len(read(bootstrap, topic, partition)) for partition in range(3)]
    assert sorted(counts) == [0, 0, 20]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("abc", 96354),
        ("polygenelubricants", -(2**31)),
        ("é😀", 233 * 31 * 31 + 0xD83D * 31 + 0xDE00),
        (b"", 1),
        (b"abc", 126145),
        (b"\xff", 30),
        (7, 7),
        (2**32, 1),
        (-1, -1),
        (True, 1231),
    ],
)
def test_keys_are_hashed_as_in_java(key: object, hashed: int) -> None:
    assert classic.java_hash(key) == hashed
    assert 0 <= classic.DefaultPartitioner().partition(key, 5) < 5


def test_handlers_need_a_queue_and_settings_are_validated() -> None:
    with pytest.raises(ConfigError, match="async"):
        classic.Producer(bootstrap_servers="h", callback_handler=Trace())
    with pytest.raises(ConfigError, match="must be sync or async"):
        classic.Producer(bootstrap_servers="h", producer_type="both")
