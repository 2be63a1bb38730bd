"""Under any order of faults, clients lose, repeat and reorder no record and keep their deadlines.

Hypothesis chooses the records and what becomes of each answer: passed on, delayed, cut in half, or
lost with its connection.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import krust
from krust import _krust
from krust.clients.producer import Delivery
from krust.errors import UnreachableError
from tests.clients.conftest import create, read
from tests.proxy import behind

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 3, 8, 9
INIT_PRODUCER_ID, HEARTBEAT, CONSUMER_HEARTBEAT = 22, 12, 68
PARTITIONS = 3
LATE_MS = 30_000
"""so late is a busy machine at most, and far below the deadline that a producer has by itself"""
_NAMES = itertools.count()


class Fault(Enum):
    """What becomes of an answer."""

    NONE = "passed on"
    LATE = "delayed"
    HALF = "its first half, then the connection ends"
    HEAD = "its length and two bytes, then the connection ends"
    LOST = "the connection ends"
    SILENT = "nothing, ever, and to what is asked later on that connection neither"


FAULTS = st.lists(st.sampled_from([Fault.NONE, *Fault]), max_size=12)
HEARD = st.lists(st.sampled_from([one for one in Fault if one is not Fault.SILENT]), max_size=12)
"""Without those that cost a whole timeout."""


class Weather:
    """Handles the answers to some APIs by the given faults, one fault each, then passes all on."""

    def __init__(self) -> None:
        self._apis: frozenset[int] = frozenset()
        self._silent: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._faults: Iterator[Fault] = iter(())

    def set(self, apis: set[int], faults: list[Fault]) -> None:
        self._apis, self._faults = frozenset(apis), iter(faults)

    def __call__(self, api: int, frame: bytes, connection: socket.socket) -> bool:
        if connection in self._silent:
            return True
        fault = next(self._faults, Fault.NONE) if api in self._apis else Fault.NONE
        if fault is Fault.LATE:
            time.sleep(0.02)  # the fault itself: a late answer
        if fault in (Fault.NONE, Fault.LATE):
            return False
        if fault is Fault.SILENT:
            self._silent.add(connection)
            return True
        whole = struct.pack(">i", len(frame)) + frame
        part = {Fault.HALF: len(whole) // 2, Fault.HEAD: 6, Fault.LOST: 0}[fault]
        with contextlib.suppress(OSError):
            connection.sendall(whole[:part])
            connection.shutdown(socket.SHUT_RDWR)
        return True


@pytest.fixture(scope="module")
def weather() -> Weather:
    return Weather()


@pytest.fixture(scope="module")
def bootstrap(weather: Weather, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with behind(tmp_path_factory.mktemp("faults"), weather) as address:
        yield address


def fresh(bootstrap: str, weather: Weather) -> str:
    weather.set(set(), [])
    name = f"faults-{next(_NAMES)}"
    create(bootstrap, name, PARTITIONS)
    return name


SEVERAL = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SEVERAL
@given(
    records=st.lists(
        st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 400)), min_size=1, max_size=150
    ),
    faults=FAULTS,
    batch=st.integers(100, 2000),
    linger_ms=st.sampled_from([0, 1, 5]),
)
def test_an_idempotent_producer_writes_each_record_once_in_order_with_its_offset(
    bootstrap: str,
    weather: Weather,
    records: list[tuple[int, int]],
    faults: list[Fault],
    batch: int,
    linger_ms: int,
) -> None:
    topic = fresh(bootstrap, weather)
    weather.set({PRODUCE, METADATA, INIT_PRODUCER_ID}, faults)
    sent: list[tuple[int, bytes, Delivery]] = []
    with krust.Producer(
        bootstrap_servers=bootstrap,
        batch_size=batch,
        linger_ms=linger_ms,
        retry_backoff_ms=1,
        request_timeout_ms=150,
    ) as producer:
        for number, (partition, size) in enumerate(records):
            value = b"%d:" % number + bytes(size)
            sent.append((partition, value, producer.send(topic, value, partition=partition)))
        producer.flush(60_000)
    weather.set(set(), [])
    for partition in range(PARTITIONS):
        ours = [(value, where) for at, value, where in sent if at == partition]
        there = read(bootstrap, topic, partition)
        assert [record.value for record in there] == [value for value, _ in ours]
        for record, (_, delivery) in zip(there, ours, strict=True):
            where = delivery.result(0)
            # An answer to a batch that was written before may leave the offset out.
            assert where.offset in (record.offset, -1)


@SEVERAL
@given(faults=FAULTS, timeout_ms=st.integers(200, 600))
def test_a_delivery_is_reported_by_its_deadline_under_any_fault(
    bootstrap: str, weather: Weather, faults: list[Fault], timeout_ms: int
) -> None:
    topic = fresh(bootstrap, weather)
    offsets: list[int | None] = []
    with krust.Producer(
        bootstrap_servers=bootstrap,
        delivery_timeout_ms=timeout_ms,
        request_timeout_ms=60,
        retry_backoff_ms=1,
        linger_ms=0,
        batch_size=1,
    ) as producer:
        assert producer.partitions(topic) == PARTITIONS
        weather.set({PRODUCE}, [fault for fault in faults for _ in range(2)])
        began = time.monotonic()
        sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(20)]
        for delivery in sent:
            try:
                offsets.append(delivery.result(60_000).offset)
            except UnreachableError:
                offsets.append(None)
        took_ms = (time.monotonic() - began) * 1000
        assert took_ms < timeout_ms + 60 + LATE_MS
        weather.set(set(), [])
    values = [record.value for record in read(bootstrap, topic)]
    numbers = [int(value or b"") for value in values]
    assert numbers == sorted(set(numbers)), "in order, none twice"
    acknowledged = [number for number, offset in enumerate(offsets) if offset is not None]
    assert set(acknowledged) <= set(numbers)


@SEVERAL
@given(
    counts=st.lists(st.integers(0, 60), min_size=PARTITIONS, max_size=PARTITIONS),
    faults=FAULTS,
    limit=st.integers(200, 3000),
    seeks=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 59)), max_size=5),
)
def test_a_consumer_reads_each_record_once_from_its_start_offset(
    bootstrap: str,
    weather: Weather,
    counts: list[int],
    faults: list[Fault],
    limit: int,
    seeks: list[tuple[int, int]],
) -> None:
    topic = fresh(bootstrap, weather)
    write(bootstrap, topic, counts)
    weather.set({FETCH, METADATA}, faults)
    moves = iter(seeks)
    with krust.Consumer(
        bootstrap_servers=bootstrap,
        max_partition_fetch_bytes=limit,
        fetch_max_wait_ms=20,
        retry_backoff_ms=1,
        request_timeout_ms=150,
    ) as consumer:
        consumer.assign([(topic, partition, 0) for partition in range(PARTITIONS)])
        expected = [0] * PARTITIONS
        while any(at < count for at, count in zip(expected, counts, strict=True)):
            for record in consumer.poll(100, 20):
                assert record.offset == expected[record.partition]
                assert record.value == b"%d" % record.offset
                expected[record.partition] += 1
            move = next(moves, None)
            if move is not None and move[1] < counts[move[0]]:
                consumer.seek(topic, *move)
                expected[move[0]] = move[1]
    weather.set(set(), [])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@settings(SEVERAL, max_examples=8)
@given(faults=HEARD, chunks=st.lists(st.integers(1, 30), min_size=1, max_size=3))
def test_members_of_a_group_lose_no_record_and_repeat_no_committed_one(
    bootstrap: str, weather: Weather, protocol: str, faults: list[Fault], chunks: list[int]
) -> None:
    topic = fresh(bootstrap, weather)
    counts = [40] * PARTITIONS
    write(bootstrap, topic, counts)
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.max.wait.ms": 20,
        "retry.backoff.ms": 1,
    }
    if protocol == "classic":
        config["heartbeat.interval.ms"] = 100
    committed = [0] * PARTITIONS
    weather.set({FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH}, faults)
    for chunk in [*chunks, sum(counts)]:  # one member after the other, each commits and goes
        with krust.Consumer(config) as consumer:
            consumer.subscribe([topic])
            at = list(committed)
            left = min(chunk, sum(counts) - sum(committed))
            while left:
                for record in poll(consumer, left):
                    assert record.offset == at[record.partition]
                    at[record.partition] += 1
                    left -= 1
            consumer.commit()
            committed = at
    weather.set(set(), [])
    assert committed == counts


def poll(consumer: krust.Consumer, most: int) -> list[_krust.Record]:
    """A poll; a fault may make it raise what is worth another try."""
    with contextlib.suppress(UnreachableError):
        return consumer.poll(100, most)
    return []


def write(bootstrap: str, topic: str, counts: list[int]) -> None:
    with krust.Producer(bootstrap_servers=bootstrap, batch_size=300) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.produce(topic, b"%d" % number, partition=partition)
