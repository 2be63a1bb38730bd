"""Idempotent producers write each record once into an adopted directory."""

from __future__ import annotations

import shutil
from pathlib import Path

from confluent_kafka import Message, Producer

import krust
from tests.adopted import unpack
from tests.waiting import WAIT_S

PLACES = [("codec-lz4", 0), ("txn", 0)]
"""partitions whose producers have ids 0, 1 and 2"""


def ends(broker: krust.Broker) -> list[int]:
    with krust.Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        found = consumer.end_offsets(PLACES)
        return [found[krust.TopicPartition(*place)] for place in PLACES]


def written(broker: krust.Broker) -> list[list[int]]:
    """The offsets that four new idempotent producers get, by partition."""
    offsets_of_partitions: list[list[int]] = [[] for _ in PLACES]
    for _ in range(4):
        producer = Producer({**broker.client_config(), "enable.idempotence": True})
        for offsets, (topic, partition) in zip(offsets_of_partitions, PLACES, strict=True):

            def delivered(error: object, message: Message, offsets: list[int] = offsets) -> None:
                assert error is None
                offsets.append(message.offset() or 0)

            producer.produce(topic, b"v", partition=partition, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0
    return offsets_of_partitions


def test_new_producers_get_ids_that_an_adopted_kafka_never_gave_out(tmp_path: Path) -> None:
    with krust.Broker(unpack("kafka-3.9.1-clean", tmp_path)) as broker:
        before = ends(broker)
        offsets_of_partitions = written(broker)
        assert offsets_of_partitions == [list(range(end, end + 4)) for end in before]
        assert ends(broker) == [end + 4 for end in before]


def test_producer_ids_continue_above_those_of_transactions(tmp_path: Path) -> None:
    """`__transaction_state` of that Kafka names producers 1, 2 and 3, its logs 0 to 3."""
    with krust.Broker(unpack("kafka-3.9.1-clean", tmp_path)) as broker:
        answer = broker._call("AllocateProducerIds", {"broker_id": broker.node_id})
        assert answer["producer_id_start"] == 4


def test_leader_epochs_of_a_kafka_that_was_killed_do_not_fall(tmp_path: Path) -> None:
    folder = unpack("kafka-3.9.1-killed", tmp_path)
    with krust.Broker(folder) as broker:
        state = broker._running().state
        known = [each.leader_epoch for each in state.topics["orders"].partitions]
    shutil.rmtree(folder)
    folder = unpack("kafka-3.9.1-killed", tmp_path)
    for file in folder.glob("orders-*/leader-epoch-checkpoint"):
        file.unlink()
    with krust.Broker(folder) as broker:
        state = broker._running().state
        assert [each.leader_epoch for each in state.topics["orders"].partitions] == known
