"""`krust txn`, on krust and on Kafka alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.hanging import leave_hanging
from tests.three_brokers import Command

WAIT_S = 30


@pytest.fixture
def producer(krust: Command, name: str) -> Iterator[Producer]:
    """A producer whose transactional id is the topic's name."""
    settings: dict[str, Any] = {"bootstrap.servers": krust.bootstrap, "transactional.id": name}
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    yield producer
    producer.abort_transaction(WAIT_S)


def begin(producer: Producer, topic: str) -> None:
    """Write a record to partition 1 in a new transaction."""
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(WAIT_S)


def test_an_open_transaction_is_listed_described_and_not_hanging(
    krust: Command, topic: str, producer: Producer
) -> None:
    begin(producer, topic)
    [listed] = krust.ok("txn", "list", topic, "--state", "ongoing", "--json").json()
    assert (listed["transactional_id"], listed["state"]) == (topic, "Ongoing")
    of_producer = krust.ok("txn", "list", "--producer-id", str(listed["producer_id"]), "--json")
    assert of_producer.json() == [listed]
    assert krust.ok("txn", "list", topic, "--open-longer", "1h", "--json").json() == []
    assert krust.ok("txn", "list", f"{topic}?", "--json").json() == []
    [described] = krust.ok("txn", "describe", topic, "--json").json()
    assert described["partitions"] == [f"{topic}:1"]
    assert described["producer_id"] == listed["producer_id"]
    assert described["timeout_ms"] == 60_000
    assert 0 <= described["open_ms"] < 60_000
    assert f"partitions        {topic}:1" in krust.ok("txn", "describe", topic).text
    found = krust.ok("txn", "describe-producers", f"{topic}:1", "--json").json()
    assert [(each["producer_id"], each["start_offset"]) for each in found] == [
        (listed["producer_id"], 0)
    ]
    assert krust.ok("txn", "describe-producers", f"{topic}:0", "--json").json() == []
    assert krust.ok("txn", "find-hanging", topic, "--older-than", "0s", "--json").json() == []
    refused = krust("txn", "abort", f"{topic}:1", "--start-offset", "0", "--yes")
    assert refused.code == 1
    assert "the coordinator of producer" in refused.err
    assert "--force" in refused.err


def test_a_hanging_transaction_is_found_and_aborted(krust: Command, topic: str) -> None:
    producer_id, epoch = leave_hanging(krust.bootstrap, topic, topic)
    found = krust("txn", "find-hanging", topic, "--json")
    assert found.code == 9
    place = {"topic": topic, "partition": 0, "producer_id": producer_id, "producer_epoch": epoch}
    [row] = json.loads(found.out)
    assert {name: row[name] for name in place} == place
    assert (row["start_offset"], row["coordinator_epoch"]) == (0, -1)
    assert row["idle_ms"] >= 3_600_000
    assert krust("txn", "find-hanging", f"{topic}:0,1").code == 9
    assert krust("txn", "find-hanging", f"{topic}:1,2").code == 0
    assert krust("txn", "find-hanging", topic, "--older-than", "2h").code == 0
    planned = krust.ok("txn", "abort", f"{topic}:0", "--start-offset", "0")
    assert str(producer_id) in planned.text
    assert "nothing is changed; --yes does it" in planned.err
    done = krust.ok("txn", "abort", f"{topic}:0", "--start-offset", "0", "--yes", "--json").json()
    assert done == [{**place, "coordinator_epoch": -1, "start_offset": 0, "aborted": True}]
    [row] = krust.ok("txn", "describe-producers", f"{topic}:0", "--json").json()
    assert (row["producer_id"], row["start_offset"]) == (producer_id, None)
    assert krust("txn", "find-hanging", topic).code == 0
    again = krust("txn", "abort", f"{topic}:0", "--start-offset", "0", "--yes")
    assert again.code == 5
    assert "no transaction is open" in again.err


def test_a_transaction_is_aborted_by_its_producer(krust: Command, topic: str) -> None:
    producer_id, epoch = leave_hanging(krust.bootstrap, topic, topic)
    which = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch))
    krust.ok("txn", "abort", f"{topic}:0", *which, "--yes")
    [row] = krust.ok("txn", "describe-producers", f"{topic}:0", "--json").json()
    assert row["start_offset"] is None


@pytest.mark.parametrize(
    ("words", "exit_code", "text"),
    [
        (("describe", "nobody"), 5, "transactional id 'nobody'"),
        (("list", "--state", "Lost"), 2, "there is no state 'Lost': Empty, Ongoing"),
        (("describe-producers", "orders"), 2, "'orders' is not TOPIC:PARTITION"),
        (("abort", "orders:0"), 2, "give --start-offset, or both --producer-id"),
        (("abort", "nothing:0", "--start-offset", "0"), 5, "nothing"),
        (("find-hanging", "nothing"), 5, "nothing"),
    ],
)
def test_an_invalid_request_is_an_error_with_its_reason(
    krust: Command, words: tuple[str, ...], exit_code: int, text: str
) -> None:
    done = krust("txn", *words, timeout="20s")
    assert done.code == exit_code, done.err
    assert text in done.err
