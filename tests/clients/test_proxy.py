"""Behind a proxy that cuts connections and answers, no record is lost or repeated."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import krust
from krust import _krust
from krust.errors import UnreachableError
from tests.clients.conftest import create, read
from tests.proxy import Cutting, behind

PRODUCE, FETCH, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 18, 22
COUNT = 3000


@pytest.mark.parametrize("part", [lambda frame: b"", lambda frame: frame[: len(frame) // 2]])
def test_a_producer_writes_each_record_once_and_in_order_though_answers_are_lost(
    tmp_path: Path, part: Callable[[bytes], bytes]
) -> None:
    with behind(tmp_path, Cutting(5, [PRODUCE], part)) as bootstrap:
        create(bootstrap, "t", 2)
        delivered = []
        with krust.Producer(
            bootstrap_servers=bootstrap, batch_size=2000, retry_backoff_ms=5, linger_ms=1
        ) as producer:
            for number in range(COUNT):
                producer.produce(
                    "t",
                    b"%d" % number,
                    partition=number % 2,
                    on_delivery=lambda error, where: delivered.append((error, where.offset)),
                )
        assert sorted(delivered, key=lambda one: one[1]) == [(None, at // 2) for at in range(COUNT)]
        for partition in range(2):
            values = [record.value for record in read(bootstrap, "t", partition)]
            assert values == [b"%d" % number for number in range(partition, COUNT, 2)]


def test_a_consumer_reads_each_record_once_though_answers_are_cut(tmp_path: Path) -> None:
    half = Cutting(3, [FETCH], lambda frame: frame[: len(frame) // 2])
    with behind(tmp_path, half) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(COUNT):
                producer.produce("t", b"%d" % number)
        with krust.Consumer(
            bootstrap_servers=bootstrap, max_partition_fetch_bytes=2000, retry_backoff_ms=5
        ) as consumer:
            consumer.assign([("t", 0, 0)])
            values: list[bytes | None] = []
            while len(values) < COUNT:
                values += [record.value for record in consumer.poll(1000)]
        assert values == [b"%d" % number for number in range(COUNT)]


def test_a_delivery_without_an_answer_fails_at_its_deadline(tmp_path: Path) -> None:
    silent = threading.Event()

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return api == PRODUCE and silent.is_set()

    with behind(tmp_path, answer) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(bootstrap_servers=bootstrap) as patient:
            assert patient.send("t", b"answered").result(60_000).offset == 0
        producer = krust.Producer(
            bootstrap_servers=bootstrap, delivery_timeout_ms=300, request_timeout_ms=100
        )
        assert producer.partitions("t") == 1
        silent.set()
        with pytest.raises(UnreachableError, match="no answer in time"):
            producer.send("t", b"lost").result(60_000)
        producer.close()


records = st.lists(
    st.tuples(st.integers(0, 2), st.binary(max_size=300), st.booleans()), max_size=200
)


@pytest.fixture(scope="module")
def cut_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cut")
    with behind(folder, Cutting(4, [PRODUCE], lambda frame: frame[:9])) as address:
        yield address


_TOPICS = itertools.count()


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(records, st.sampled_from(["none", "gzip", "lz4", "zstd"]), st.integers(200, 3000))
def test_each_partition_keeps_the_order_of_the_calls(
    cut_broker: str, records: list[tuple[int, bytes, bool]], codec: str, size: int
) -> None:
    topic = f"order-{next(_TOPICS)}"
    create(cut_broker, topic, 3)
    with krust.Producer(
        bootstrap_servers=cut_broker,
        compression_type=codec,
        batch_size=size,
        linger_ms=0,
        retry_backoff_ms=1,
    ) as producer:
        for partition, value, pause in records:
            producer.produce(topic, value, partition=partition)
            if pause:
                producer.poll()
    for partition in range(3):
        written = [record.value for record in read(cut_broker, topic, partition)]
        assert written == [value for at, value, _ in records if at == partition]


def test_a_broker_that_closed_a_connection_once_still_gets_headers(
    tmp_path: Path,
) -> None:
    cutting = Cutting(2, [API_VERSIONS])
    with behind(tmp_path, cutting) as bootstrap:
        for number in range(4):
            with krust.Producer(bootstrap_servers=bootstrap) as producer:
                producer.produce("t", b"%d" % number, partition=0, headers=[("h", b"1")])
        with krust.Consumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([("t", 0, 0)])
            found: list[_krust.Record] = []
            while len(found) < 4:
                found += consumer.poll(1000)
    assert cutting.cuts > 1
    assert [(one.value, one.headers) for one in found] == [
        (b"%d" % number, (("h", b"1"),)) for number in range(4)
    ]


def test_a_producer_delivers_over_a_link_whose_answers_take_long(tmp_path: Path) -> None:
    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        time.sleep(0.4)
        return False

    with behind(tmp_path, answer) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(bootstrap_servers=bootstrap) as producer:
            assert producer.send("t", b"delivered").result(60_000).offset == 0


def test_records_gather_in_large_batches_while_a_partition_does_not_answer(tmp_path: Path) -> None:
    """Batches of a few records each would take minutes to send, five at a time, once it does."""
    answers = threading.Event()

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return api == PRODUCE and not answers.wait(60)

    with behind(tmp_path, answer) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for number in range(COUNT):
                producer.produce("t", b"%d" % number)
                time.sleep(0.0001)
            assert producer.flush(timeout_ms=0) <= 7, "closed and open batches"
            answers.set()
        values = [record.value for record in read(bootstrap, "t", 0)]
        assert values == [b"%d" % number for number in range(COUNT)]
        assert count_batches(next((tmp_path / "data" / "t-0").glob("*.log"))) <= 7


def test_a_record_in_a_batch_with_older_ones_has_nine_tenths_of_its_delivery_time(
    tmp_path: Path,
) -> None:
    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return api == PRODUCE

    def note(began: float, error: object, where: object) -> None:
        lives.append(time.monotonic() - began)

    lives: list[float] = []
    with behind(tmp_path, answer) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(
            bootstrap_servers=bootstrap,
            delivery_timeout_ms=4000,
            request_timeout_ms=1000,
            linger_ms=0,
        ) as producer:
            for _ in range(40):
                began = time.monotonic()
                producer.produce("t", b"lost", on_delivery=partial(note, began))
                time.sleep(0.05)
    assert len(lives) == 40
    assert min(lives) >= 3.6


def count_batches(segment: Path) -> int:
    data, at, count = segment.read_bytes(), 0, 0
    while at < len(data):
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        count += 1
    return count


def test_a_record_that_was_never_sent_outlives_the_expiry_of_one_before_it(tmp_path: Path) -> None:
    silent = threading.Event()
    silent.set()

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return api == PRODUCE and silent.is_set()

    with behind(tmp_path, answer) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(
            bootstrap_servers=bootstrap, delivery_timeout_ms=6000, request_timeout_ms=500
        ) as producer:
            late = producer.send("t", b"expires")
            time.sleep(5)  # so much time is left to the second one
            behind_it = producer.send("t", b"outlives it")
            with pytest.raises(UnreachableError):
                late.result(60_000)
            silent.clear()
            assert behind_it.result(60_000).offset >= 0
        values = [record.value for record in read(bootstrap, "t", 0)]
        assert values == [b"expires", b"outlives it"], "each is written once"


def test_a_producer_asks_again_for_its_id_a_second_after_a_request_without_an_answer(
    tmp_path: Path,
) -> None:
    lost = itertools.count()

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return api == INIT_PRODUCER_ID and next(lost) == 0

    with behind(tmp_path, answer) as bootstrap:
        create(bootstrap, "t", 1)
        with krust.Producer(bootstrap_servers=bootstrap, delivery_timeout_ms=20_000) as producer:
            assert producer.send("t", b"delivered").result(20_000).offset == 0
        assert next(lost) == 2


def test_a_topic_that_was_deleted_delays_no_record_of_another(tmp_path: Path) -> None:
    with krust.Broker(data_dir=tmp_path, config={"auto.create.topics.enable": "false"}) as broker:
        for topic in ("deleted", "kept"):
            broker.create_topic(topic, 1)
        producer = krust.Producer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10)
        for topic in ("deleted", "kept"):
            assert producer.send(topic, b"first").result(60_000).offset == 0
        broker.delete_topic("deleted")
        producer.send("deleted", b"nobody takes it")
        for offset in range(1, 30):
            assert producer.send("kept", b"later").result(5000).offset == offset
        with pytest.raises(UnreachableError, match="1 batch not delivered within 0 ms"):
            producer.close(0)
