"""Consumers of Kafka 0.8 in a cluster: any broker stores their offsets, and they follow leaders."""

from __future__ import annotations

import threading

import pytest

from krust._krust import Client, Record
from krust.clients.zookeeper import ConsumerConnector
from tests.cluster.brokers import Cluster
from tests.peers.zookeeper import LONG_MS
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def test_every_broker_keeps_old_offsets_in_the_tree(three: Cluster) -> None:
    three.create("old-offsets", 3)
    three.agree("old-offsets", lambda leaders: len(leaders) == 3 and min(leaders) > 0)
    for number in range(1, 4):
        one = {"partition_index": number - 1, "committed_offset": number, "committed_metadata": ""}
        topics = [{"name": "old-offsets", "partitions": [one]}]
        client = Client(three.brokers[number].bootstrap)
        body = {"group_id": "old", "topics": topics}
        [topic] = client.request("OffsetCommit", body, 0, broker=number)["topics"]
        assert topic["partitions"][0]["error_code"] == 0
    folder = "/consumers/old/offsets/old-offsets"
    assert [three.tree.get(f"{folder}/{n}")[0] for n in range(3)] == [b"1", b"2", b"3"]
    for number in range(1, 4):
        asked = [{"name": "old-offsets", "partition_indexes": [0, 1, 2]}]
        client = Client(three.brokers[number].bootstrap)
        body = {"group_id": "old", "topics": asked}
        [found] = client.request("OffsetFetch", body, 0, broker=number)["topics"]
        assert [each["committed_offset"] for each in found["partitions"]] == [1, 2, 3]


def test_a_connector_reads_on_from_brokers_that_die_and_come_back(three: Cluster) -> None:
    three.create("followed", 6)
    leaders = three.agree("followed", lambda leaders: len(leaders) == 6 and min(leaders) > 0)
    lost = leaders[0]
    records: list[Record] = []

    def produce(word: str, partitions: list[int]) -> None:
        for partition in partitions:
            three.produce("followed", [f"{word}{partition}"], partition)

    with ConsumerConnector(
        zookeeper_connect=three.connect,
        zookeeper_session_timeout_ms=LONG_MS,
        group_id="followers",
        auto_offset_reset="smallest",
    ) as connector:
        [stream] = connector.create_message_streams({"followed": 1})["followed"]
        reading = threading.Thread(target=lambda: records.extend(stream))
        reading.start()
        produce("first", [*range(6)])
        until(lambda: len(records) == 6)
        three.kill(lost)
        left = [n for n in range(6) if leaders[n] != lost]
        produce("second", left)
        until(lambda: len(records) == 6 + len(left))
        three.start(lost)
        three.agree("followed", lambda now: now == leaders)
        produce("third", [*range(6)])
        until(lambda: len(records) == 12 + len(left))
    reading.join()
    places = [(record.partition, record.offset) for record in records]
    assert len({*places}) == len(places)
    stored = [
        int(three.tree.get(f"/consumers/followers/offsets/followed/{n}")[0]) for n in range(6)
    ]
    assert stored == [3 if n in left else 2 for n in range(6)]
