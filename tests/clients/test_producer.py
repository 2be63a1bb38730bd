"""krust.Producer on krust and on Kafka alike."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

import krust
from krust.clients.producer import Delivery
from krust.errors import ConfigError, ForkedError, KafkaError, KrustError, UnreachableError
from tests.clients.conftest import read
from tests.waiting import until


def test_records_produced_in_a_with_block_are_delivered_at_its_end(
    bootstrap: str, single: str
) -> None:
    with krust.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}) as producer:
        for number in range(5000):
            producer.produce(single, b"%d" % number)
    assert [record.value for record in read(bootstrap, single)] == [b"%d" % n for n in range(5000)]


def test_keys_headers_nulls_times_and_text_arrive_as_they_were_given(
    bootstrap: str, single: str
) -> None:
    headers = [("trace", b"1"), ("trace", None), ("text", "é")]
    with krust.Producer(bootstrap_servers=[bootstrap]) as producer:
        producer.produce(single, "é", key=b"\x00", timestamp_ms=1_600_000_000_000, headers=headers)
        producer.produce(single, None, key="only", headers={"one": b"2"})
        producer.produce(single)
    first, second, third = read(bootstrap, single)
    assert (first.key, first.value, first.timestamp_ms) == (
        b"\x00",
        "é".encode(),
        1_600_000_000_000,
    )
    assert first.headers == (("trace", b"1"), ("trace", None), ("text", "é".encode()))
    assert (second.key, second.value, second.headers) == (b"only", None, (("one", b"2"),))
    assert (third.key, third.value, third.headers) == (None, None, ())


def test_a_lone_record_is_sent_after_its_linger_without_another_call(
    bootstrap: str, single: str
) -> None:
    with krust.Producer(bootstrap_servers=bootstrap, linger_ms=1) as producer:
        producer.produce(single, b"alone")
        while not read(bootstrap, single):
            pass
        assert producer.held_bytes() >= 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_delivery_has_its_partition_and_offset(bootstrap: str, topic: str, codec: str) -> None:
    with krust.Producer(
        bootstrap_servers=bootstrap, compression_type=codec, batch_size=2000
    ) as producer:
        sent = [producer.send(topic, b"%d" % n, key=b"%d" % (n % 7)) for n in range(500)]
        places = [delivery.result(60_000) for delivery in sent]
    written = {
        (record.topic, record.partition, record.offset): record.value
        for partition in range(3)
        for record in read(bootstrap, topic, partition)
    }
    deliveries = {(at.topic, at.partition, at.offset): b"%d" % n for n, at in enumerate(places)}
    assert deliveries == written


def test_a_process_with_thousands_of_descriptors_waits_for_deliveries(
    bootstrap: str, single: str
) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(1100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with krust.Producer(bootstrap_servers=bootstrap) as producer:
            assert producer.fileno() > 1024
            assert producer.send(single, b"one").result(60_000).offset == 0
            deliveries: list[int] = []
            producer.produce(single, b"two", on_delivery=lambda _, at: deliveries.append(at.offset))
            while not deliveries:
                producer.poll(60_000)
            assert deliveries == [1]


def test_callbacks_run_in_record_order_on_the_thread_that_flushes(
    bootstrap: str, single: str
) -> None:
    seen: list[tuple[KrustError | None, int, int]] = []
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(100):
            producer.produce(
                single,
                b"x",
                on_delivery=lambda error, where: seen.append(
                    (error, where.offset, threading.get_ident())
                ),
            )
        assert producer.flush(60_000) == 0
        assert seen == [(None, offset, threading.get_ident()) for offset in range(100)]


def test_a_partition_that_does_not_exist_is_refused_at_once(bootstrap: str, topic: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(KafkaError, match="has no partition 3") as caught:
            producer.produce(topic, b"x", partition=3)
        assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_produce_raises_for_a_topic_that_may_not_be_created(bootstrap: str, name: str) -> None:
    with krust.Producer(
        bootstrap_servers=bootstrap, allow_auto_create_topics=False, max_block_ms=1
    ) as producer:
        with pytest.raises(KafkaError, match=name) as caught:
            producer.produce(name, b"x")
        assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_record_that_is_too_large_fails_in_its_delivery_or_in_flush(
    bootstrap: str, single: str
) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        delivery = producer.send(single, bytes(2_000_000))
        with pytest.raises(KafkaError) as caught:
            delivery.result(60_000)
        assert caught.value.name == "MESSAGE_TOO_LARGE"
        producer.produce(single, bytes(2_000_000))
        with pytest.raises(KafkaError) as lost:
            producer.flush(60_000)
        assert lost.value.__notes__[-1].startswith("1 record was not delivered")
        producer.produce(single, b"small")
    assert [record.value for record in read(bootstrap, single)] == [b"small"]


def test_flush_raises_an_unhandled_failure_behind_a_full_queue_of_callbacks(
    bootstrap: str, single: str
) -> None:
    deliveries: list[object] = []
    with krust.Producer(bootstrap_servers=bootstrap, batch_size=1) as producer:
        for _ in range(1100):
            producer.produce(single, b"x", on_delivery=lambda *what: deliveries.append(what))
        while producer.held_bytes():
            time.sleep(0.01)
        producer.produce(single, bytes(2_000_000))
        with pytest.raises(KafkaError, match="is larger than max"):
            producer.flush(60_000)
    assert len(deliveries) == 1100


def _is_refused(delivery: Delivery) -> bool:
    try:
        delivery.result(60_000)
    except KafkaError as error:
        return error.name == "MESSAGE_TOO_LARGE"
    return False  # Kafka has answered, and its partition has not heard of the setting yet


def test_at_most_a_thousand_unhandled_failures_are_kept(bootstrap: str, single: str) -> None:
    krust.Admin(bootstrap_servers=bootstrap).alter_config(single, {"max.message.bytes": 100})
    with krust.Producer(bootstrap_servers=bootstrap, batch_size=1) as producer:
        until(lambda: _is_refused(producer.send(single, bytes(100))))
        for _ in range(1100):
            producer.produce(single, bytes(100))
        while producer.held_bytes():
            time.sleep(0.01)
        assert producer.serve() == 1000
        with pytest.raises(KafkaError, match="is larger than max"):
            producer.flush(60_000)


def test_a_missing_topic_delays_no_other_topic(bootstrap: str, name: str, single: str) -> None:
    with krust.Producer(
        bootstrap_servers=bootstrap, allow_auto_create_topics=False, max_block_ms=600_000
    ) as producer:
        producer.produce(single, b"0")
        assert not producer.try_produce(f"{name}-not", b"x")
        for _ in range(3):
            producer.send(single, b"1").result(60_000)


def test_a_full_buffer_makes_produce_wait_and_loses_nothing(bootstrap: str, single: str) -> None:
    deliveries: list[object] = []
    with krust.Producer(
        bootstrap_servers=bootstrap, buffer_memory=20_000, batch_size=5000, linger_ms=1000
    ) as producer:
        for _ in range(1000):
            producer.produce(single, bytes(100), on_delivery=lambda *what: deliveries.append(what))
            assert producer.held_bytes() < 21_000
    assert len(deliveries) == len(read(bootstrap, single)) == 1000


def test_many_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:

        def run(number: int) -> None:
            for count in range(500):
                producer.produce(topic, b"%d" % count, partition=number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for partition in range(3):
        values = [record.value for record in read(bootstrap, topic, partition)]
        assert values == [b"%d" % count for count in range(500)]


def test_the_exit_of_the_interpreter_sends_buffered_records(bootstrap: str, single: str) -> None:
    code = (
        f"import krust\np = krust.Producer(bootstrap_servers={bootstrap!r}, linger_ms=60_000)\n"
        f"p.produce({single!r}, b'last words')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert [record.value for record in read(bootstrap, single)] == [b"last words"]


def test_a_producer_that_is_never_closed_warns_and_sends(bootstrap: str, single: str) -> None:
    producer = krust.Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
    producer.produce(single, b"forgotten")
    with pytest.warns(ResourceWarning, match="was not closed"):
        del producer
    assert [record.value for record in read(bootstrap, single)] == [b"forgotten"]


def test_produce_without_a_broker_fails_within_max_block_ms() -> None:
    with krust.Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=500) as producer:
        with pytest.raises(UnreachableError, match="cannot connect to 127") as caught:
            producer.produce("t", b"x")
        assert caught.value.retriable
        assert caught.value.hint


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(bootstrap: str, single: str) -> None:
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        producer.produce(single, b"parent")
        child = os.fork()
        if child == 0:
            try:
                producer.produce(single, b"child")
            except ForkedError:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        producer.produce(single, b"parent again")
    assert [record.value for record in read(bootstrap, single)] == [b"parent", b"parent again"]


def test_a_closed_producer_refuses_records() -> None:
    producer = krust.Producer(bootstrap_servers="127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(ConfigError, match="closed"):
        producer.produce("t", b"x")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "no broker is named"),
        ({"bootstrap.servers": "h", "linger": 5}, "no setting 'linger'"),
        ({"bootstrap.servers": "h", "acks": 2}, 'acks: "2" is not 0, 1 or all'),
        ({"bootstrap.servers": "h", "linger.ms": "x"}, "linger.ms"),
        ({"bootstrap.servers": "h", "acks": 1, "enable.idempotence": True}, "needs acks=all"),
        ({"bootstrap.servers": "h", "security.protocol": "SASL_TLS"}, "SASL_TLS"),
    ],
)
def test_an_invalid_setting_is_named(config: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        krust.Producer(config)


def test_an_address_in_place_of_settings_is_named() -> None:
    with pytest.raises(ConfigError, match="a dict, and 'localhost:9092' is a text") as refused:
        krust.Producer("localhost:9092")  # type: ignore[arg-type]
    assert refused.value.hint == "an address is given as bootstrap_servers='localhost:9092'"


def test_a_value_that_is_not_bytes_is_a_type_error() -> None:
    with (
        krust.Producer(bootstrap_servers="127.0.0.1:1") as producer,
        pytest.raises(TypeError, match="bytes, str or None, not int"),
    ):
        producer.produce("t", 5)  # type: ignore[arg-type]
