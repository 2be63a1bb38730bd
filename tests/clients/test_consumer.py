"""krust.Consumer with partitions of its own choice, on krust and on Kafka alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import krust
from krust import _krust
from krust.clients.consumer import Consumer
from krust.errors import ConfigError, ForkedError, KafkaError
from tests.clients.conftest import create


@pytest.fixture
def filled(bootstrap: str, name: str) -> str:
    """Three partitions of 100 records; each one's value and time is its offset."""
    create(bootstrap, name, 3)
    with krust.Producer(bootstrap_servers=bootstrap, batch_size=500) as producer:
        for number in range(300):
            at = number // 3
            headers = [("h", b"1"), ("h", None)] if at == 7 else None
            when = 1_600_000_000_000 + at
            producer.produce(name, b"%d" % at, b"k", number % 3, None, when, headers)
    return name


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    with krust.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        yield consumer


def take(consumer: Consumer, count: int) -> list[_krust.Record]:
    """So many records and no more."""
    found: list[_krust.Record] = []
    while len(found) < count:
        found += consumer.poll(1000, count - len(found))
    return found


def test_every_record_of_the_assigned_partitions_comes_once_in_order(
    consumer: Consumer, filled: str
) -> None:
    consumer.assign([(filled, 0), (filled, 2)])
    records = take(consumer, 200)
    for partition in (0, 2):
        ours = [record for record in records if record.partition == partition]
        assert [record.offset for record in ours] == list(range(100))
        assert [record.value for record in ours] == [b"%d" % n for n in range(100)]
        assert [record.timestamp_ms - 1_600_000_000_000 for record in ours] == list(range(100))
        assert ours[7].headers == (("h", b"1"), ("h", None))
    assert consumer.poll() == []
    assert consumer.position(filled, 0) == consumer.position(filled, 2) == 100


def test_a_consumer_begins_at_the_offset_given_with_the_partition(
    consumer: Consumer, filled: str
) -> None:
    consumer.assign([(filled, 1, 95)])
    assert [record.offset for record in take(consumer, 5)] == [95, 96, 97, 98, 99]


def test_poll_returns_at_most_the_requested_records_and_the_position_follows(
    consumer: Consumer, filled: str
) -> None:
    consumer.assign([(filled, 0)])
    for begin in range(0, 21, 7):
        assert [record.offset for record in take(consumer, 7)] == list(range(begin, begin + 7))
        assert consumer.position(filled, 0) == begin + 7


def test_an_iterator_gives_each_record_and_the_position_is_after_the_last(
    consumer: Consumer, filled: str
) -> None:
    consumer.assign([(filled, 0)])
    for record in consumer:
        if record.offset == 42:
            break
    assert consumer.position(filled, 0) == 43
    assert take(consumer, 1)[0].offset == 43


def test_seek_moves_a_partition_and_drops_fetched_records(consumer: Consumer, filled: str) -> None:
    consumer.assign([(filled, 0)])
    take(consumer, 10)
    consumer.seek(filled, 0, 90)
    assert [record.offset for record in take(consumer, 10)] == list(range(90, 100))
    consumer.seek_to_beginning()
    assert take(consumer, 1)[0].offset == 0
    consumer.seek_to_end([(filled, 0)])
    assert consumer.position(filled, 0) == 100


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    consumer: Consumer, filled: str
) -> None:
    consumer.assign([(filled, 0), (filled, 1)])
    first = take(consumer, 5)
    paused = first[-1].partition
    position = consumer.position(filled, paused)
    consumer.pause([(filled, paused)])
    assert consumer.paused() == {(filled, paused)}
    others = take(consumer, 100 - consumer.position(filled, 1 - paused))
    assert {record.partition for record in others} <= {1 - paused}
    assert consumer.position(filled, paused) == position
    consumer.resume([(filled, paused)])
    rest = take(consumer, 100 - position)
    assert [record.offset for record in rest] == list(range(position, 100))


def test_offsets_are_found_by_time_and_at_both_ends(consumer: Consumer, filled: str) -> None:
    places = [(filled, 0), (filled, 1)]
    times = dict.fromkeys(places, 1600000000050)
    assert consumer.offsets_for_times(times) == dict.fromkeys(places, 50)
    late = dict.fromkeys(places, 1600000000100)
    assert consumer.offsets_for_times(late) == dict.fromkeys(places, None)
    assert consumer.beginning_offsets(places) == dict.fromkeys(places, 0)
    assert consumer.end_offsets(places) == dict.fromkeys(places, 100)
    assert consumer.topics()[filled] == 3


def test_a_deleted_offset_is_reset_by_auto_offset_reset(bootstrap: str, filled: str) -> None:
    with krust.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(filled, 0, 5000)])
        assert take(consumer, 1)[0].offset == 0
    with krust.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(filled, 0, 5000)])
        with pytest.raises(KafkaError, match="offset 5000") as caught:
            take(consumer, 1)
        assert caught.value.name == "OFFSET_OUT_OF_RANGE"


def test_the_next_consumer_of_a_group_begins_at_the_committed_offset(
    bootstrap: str, filled: str
) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": filled, "auto.offset.reset": "earliest"}
    with krust.Consumer(settings, enable_auto_commit=False) as consumer:
        consumer.assign([(filled, 0), (filled, 1)])
        consumer.commit({(filled, 0): 33})
        assert consumer.committed([(filled, 0), (filled, 1)]) == {(filled, 0): 33}
    with krust.Consumer(settings) as consumer:
        consumer.assign([(filled, 0)])
        assert take(consumer, 1)[0].offset == 33
    with krust.Consumer(settings) as consumer:
        assert consumer.committed([(filled, 0)]) == {(filled, 0): 34}


def test_seek_refuses_a_partition_that_is_not_assigned(consumer: Consumer, filled: str) -> None:
    consumer.assign([(filled, 0)])
    with pytest.raises(KafkaError, match="not assigned"):
        consumer.seek(filled, 1, 0)
    consumer.assign([])
    assert consumer.assignment() == []
    assert consumer.poll() == []


def test_poll_returns_new_records_and_wakeup_ends_it(
    bootstrap: str, consumer: Consumer, single: str
) -> None:
    consumer.assign([(single, 0)])
    consumer.wakeup()
    assert consumer.poll(60_000) == []
    with krust.Producer(bootstrap_servers=bootstrap) as producer:
        producer.produce(single, b"new")
    assert [record.value for record in take(consumer, 1)] == [b"new"]


def test_control_c_ends_a_poll_that_waits(bootstrap: str, single: str) -> None:
    code = (
        f"import krust\nwith krust.Consumer(bootstrap_servers={bootstrap!r}) as c:\n"
        f"    c.assign([({single!r}, 0)])\n    c.poll(0)\n    print('ready', flush=True)\n"
        f"    c.poll(600_000)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert errors.strip().endswith(b"KeyboardInterrupt")


def test_a_forked_child_gets_an_error(consumer: Consumer) -> None:
    child = os.fork()
    if child == 0:
        try:
            consumer.poll()
        except ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"group_protocol": "new"}, "must be classic or consumer"),
        ({"auto_offset_reset": "first"}, "must be latest, earliest or none"),
        ({"partition_assignment_strategy": "rnage"}, "no assignor 'rnage'"),
        ({"partition_assignment_strategy": 5}, "5 is not an assignor"),
        ({"session_timeout_ms": -1}, "session.timeout.ms"),
    ],
)
def test_an_invalid_setting_is_named(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        krust.Consumer(bootstrap_servers="h", group_id="g", **more)


def test_subscribe_and_commit_need_a_group() -> None:
    with krust.Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        with pytest.raises(ConfigError, match="needs a group"):
            consumer.subscribe(["t"])
        with pytest.raises(ConfigError, match="needs a group"):
            consumer.commit()
