"""Directories that Kafka 0.8, 0.10 and 3.9 wrote are served as they are, to new clients and old."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.adopted import ExpectedRecord, acknowledged, description, records, unpack
from tests.foreign.clients import Child, Client, KafkaPython
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

CLEAN, OLD_8, OLD_10 = "kafka-3.9.1-clean", "kafka-0.8.2.2", "kafka-0.10.2.2"
PLAIN = ("none", "gzip", "snappy", "lz4")
LEGACY = Child("kafka-python-1.4.7", "0.8.2", codecs=PLAIN)
TRANSACTIONAL = ("txn", "open-txn")


@pytest.fixture(scope="module", params=[CLEAN, OLD_8, OLD_10])
def adopted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ServedBroker]]:
    name = request.param
    # Its coordinator would end the transaction that is open in a directory.
    never: dict[str, object] = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 86_400_000
    }
    with ServedBroker(unpack(name, tmp_path_factory.mktemp("adopted")), options=never) as broker:
        yield name, broker


def seen(
    broker: ServedBroker, topic: str, partition: int, count: int, level: str
) -> list[ExpectedRecord]:
    """The first `count` records, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": level,
        }
    )
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)
    consumer.assign([TopicPartition(topic, partition, low)])
    found: list[ExpectedRecord] = []
    try:
        while len(found) < count:
            batch = consumer.consume(count - len(found), WAIT_S)
            assert batch, f"{topic}-{partition}: {len(found)} of {count}"
            for message in batch:
                if message.error():
                    raise KafkaException(message.error())
                kind, timestamp = message.timestamp()
                headers = tuple(message.headers() or ())
                when = timestamp if kind else None
                found.append(
                    ExpectedRecord(
                        message.offset() or 0, when, message.key(), message.value(), headers
                    )
                )
    finally:
        consumer.close()
    return found


def test_new_clients_see_every_record(adopted: tuple[str, ServedBroker]) -> None:
    name, broker = adopted
    for topic, partitions in description(name)["topics"].items():
        for partition, expected in partitions.items():
            for level in ("read_uncommitted", "read_committed"):
                rows = expected.get("records", expected.get(level))
                wanted = records(rows, old=name != CLEAN)
                found = seen(broker, topic, int(partition), len(wanted), level)
                if name == OLD_8:
                    found = [record._replace(timestamp=None) for record in found]
                assert found == wanted, (topic, partition, level)


def test_first_and_last_offsets_are_kept(adopted: tuple[str, ServedBroker]) -> None:
    name, broker = adopted
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    for topic, partitions in description(name)["topics"].items():
        for partition, expected in partitions.items():
            place = TopicPartition(topic, int(partition))
            ends = consumer.get_watermark_offsets(place, WAIT_S)
            assert ends == (expected["low"], expected["high"]), (topic, partition)
    consumer.close()


@pytest.mark.parametrize(
    "client", [KafkaPython((0, 8, 2)), KafkaPython((0, 10, 1)), LEGACY], ids=str
)
def test_old_clients_see_keys_and_values(adopted: tuple[str, ServedBroker], client: Client) -> None:
    name, broker = adopted
    if client.missing():
        pytest.skip(str(client.missing()))
    for topic, partitions in description(name)["topics"].items():
        if topic.startswith("codec-") and client.reads(topic.removeprefix("codec-")):
            wanted = records(partitions["0"]["records"], old=name != CLEAN)
            found = client.read(broker.bootstrap, topic, len(wanted))
            assert found == [(record.key, record.value) for record in wanted], topic


def test_records_of_a_killed_kafka_are_read_and_the_log_takes_new_ones(tmp_path: Path) -> None:
    acked = acknowledged()
    with ServedBroker(unpack("kafka-3.9.1-killed", tmp_path)) as broker:
        for partition in sorted({place[0] for place in acked}):
            last = max(offset for where, offset in acked if where == partition)
            found = seen(broker, "orders", partition, last + 1, "read_uncommitted")
            assert [record.offset for record in found] == list(range(last + 1))
            for record in found:
                wanted = acked.get((partition, record.offset), record.value)
                assert record.value == wanted
        KafkaPython().write(broker.bootstrap, "orders", "lz4", [(b"k", b"after")])


def test_the_cluster_keeps_its_id(tmp_path: Path) -> None:
    folder = unpack(CLEAN, tmp_path)
    meta = (folder / "meta.properties").read_text()
    with ServedBroker(folder) as broker:
        assert f"cluster.id={broker.ready['cluster_id']}" in meta
