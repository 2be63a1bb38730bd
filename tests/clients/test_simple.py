"""`SimpleConsumer`: one request to one broker; error codes are returned, not retried."""

from __future__ import annotations

import pytest

from krust import _krust
from krust.clients.coordinator_client import CommittedOffset
from krust.clients.simple import EARLIEST, LATEST, FetchRequest, SimpleConsumer
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import ConfigError, KafkaError
from tests.clients.conftest import create


def fill(bootstrap: str, topic: str, partition: int, *values: bytes) -> None:
    producer = _krust.Producer(bootstrap, {"compression.type": "lz4"})
    producer.send(topic, [(b"key", value, [], partition, None) for value in values])
    producer.flush()


def test_a_fetch_begins_at_the_offset_asked_for(bootstrap: str, single: str) -> None:
    fill(bootstrap, single, 0, *(b"%d" % number for number in range(10)))
    with SimpleConsumer(bootstrap) as consumer:
        fetched = consumer.fetch(FetchRequest(single, 0, 7))
    assert [(record.offset, record.value) for record in fetched] == [
        (7, b"7"),
        (8, b"8"),
        (9, b"9"),
    ]
    assert (fetched.high_watermark, len(fetched)) == (10, 3)


def test_a_multifetch_answers_in_request_order_with_each_error(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 0, b"a")
    fill(bootstrap, topic, 2, b"c", b"d")
    asked = [FetchRequest(topic, p, at) for p, at in ((2, 1), (0, 5), (0, 5), (1, 0))]
    with SimpleConsumer(bootstrap) as consumer:
        third, first, again, second = consumer.multifetch(asked)
    assert [record.value for record in third] == [b"d"]
    assert [one.error and one.error.code for one in (first, again)] == [1, 1]
    with pytest.raises(KafkaError, match="offset out of range"):
        list(first)
    assert (second.error, list(second), second.high_watermark) == (None, [], 0)


def test_a_partition_is_requested_once_in_a_multifetch(bootstrap: str, single: str) -> None:
    asked = [FetchRequest(single, 0, 0), FetchRequest(single, 0, 5)]
    with SimpleConsumer(bootstrap) as consumer, pytest.raises(ConfigError, match="twice"):
        consumer.multifetch(asked)


def test_a_missing_partition_is_an_error(bootstrap: str, single: str) -> None:
    with SimpleConsumer(bootstrap) as consumer, pytest.raises(KafkaError) as refused:
        consumer.fetch(FetchRequest(single, 9, 0))
    assert refused.value.code == 3


def test_a_waiting_fetch_returns_new_records(bootstrap: str, single: str) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        fill(bootstrap, single, 0, b"early")
        assert not consumer.fetch(FetchRequest(single, 0, 1), max_wait_ms=20).records
        fill(bootstrap, single, 0, b"late")
        fetched = consumer.fetch(FetchRequest(single, 0, 1), min_bytes=5)
    assert [record.value for record in fetched] == [b"late"]


def test_offsets_before_a_time_are_the_ends_of_the_log(bootstrap: str, single: str) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        assert consumer.get_offsets_before(single, 0, EARLIEST) == [0]
        fill(bootstrap, single, 0, b"a", b"b")
        assert consumer.get_offsets_before(single, 0, LATEST) == [2]
        assert consumer.get_offsets_before(single, 0, LATEST, max_offsets=5) in ([2, 0], [2])
        with pytest.raises(KafkaError):
            consumer.get_offsets_before(single, 7, LATEST)


def test_the_offset_manager_stores_offsets_with_metadata(bootstrap: str, topic: str) -> None:
    group = f"simple-{topic}"
    with SimpleConsumer(bootstrap) as consumer:
        assert consumer.fetch_offsets(group, [(topic, 0)]) == {}
        consumer.commit_offsets(group, {(topic, 0): 3, (topic, 2): 0}, "by hand")
        found = consumer.fetch_offsets(group, [(topic, number) for number in range(3)])
    word = "by hand"
    assert found == {
        TopicPartition(topic, 0): CommittedOffset(3, word),
        TopicPartition(topic, 2): CommittedOffset(0, word),
    }


def test_truncated_and_hostile_responses_are_errors(bootstrap: str, name: str) -> None:
    create(bootstrap, name, 1)
    fill(bootstrap, name, 0, b"one")
    fill(bootstrap, name, 0, b"two")
    body = {"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
    wanted = {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "topics": [body]}
    answer = _krust.Client(bootstrap).request("Fetch", wanted, 12)
    fetched: bytes = answer["responses"][0]["partitions"][0]["records"]
    assert [record.value for record in _krust.records(name, 0, 0, fetched)] == [b"one", b"two"]
    assert [record.value for record in _krust.records(name, 0, 0, fetched[:-1])] == [b"one"]
    assert _krust.records(name, 0, 2, fetched) == _krust.records(name, 0, 0, b"") == []
    flipped = bytes([fetched[40] ^ 0xFF])
    with pytest.raises(KafkaError, match="checksum of the batch at 0"):
        _krust.records(name, 0, 0, fetched[:40] + flipped + fetched[41:])


def test_an_unknown_setting_of_the_simple_consumer_is_an_error() -> None:
    with pytest.raises(ConfigError, match="group"):
        SimpleConsumer("localhost:1", group_id="billing")  # type: ignore[call-arg]
