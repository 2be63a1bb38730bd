"""Clients of every age that know one broker of three find leaders and coordinators."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import krust
from krust._krust import Client as Native
from tests.cluster.brokers import Cluster
from tests.foreign.clients import (
    OLDER,
    OLDEST,
    AioKafka,
    Child,
    Client,
    Confluent,
    KafkaPython,
    Record,
)
from tests.foreign.members import PARTITIONS, Member, fill, members, wait_until
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

RECORDS: list[Record] = [(f"k{number}".encode(), f"value {number}".encode()) for number in range(5)]
CLIENTS: list[Client] = [
    Confluent(),
    AioKafka(),
    KafkaPython((0, 8, 0)),
    KafkaPython((0, 10, 0)),
    KafkaPython((3, 9)),
    Child("kafka-python-1.4.7", "0.8.2", codecs=OLDER),
    Child("kafka-python-1.4.7", "1.0", codecs=OLDER),
    Child("kafka-python-2.0.2", "2.5", codecs=OLDER),
    Child("pykafka-2.8.0", "0.9.0", codecs=OLDEST),
]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_a_client_that_knows_one_broker_finds_the_leaders(three: Cluster, client: Client) -> None:
    if reason := client.missing():
        pytest.skip(reason)
    here, there = (1, 3) if CLIENTS.index(client) % 2 else (3, 2)
    topic = f"led-{CLIENTS.index(client)}"
    admin = AdminClient({"bootstrap.servers": three.bootstrap()})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[there]])])[topic].result(WAIT_S)
    assert three.agree(topic, lambda leaders: -1 not in leaders) == [there]
    client.write(three.bootstrap(here), topic, "none", RECORDS)
    assert client.read(three.bootstrap(here), topic, len(RECORDS)) == RECORDS


def test_members_of_every_client_find_their_coordinator(three: Cluster) -> None:
    topic = "coordinated"
    three.create(topic, PARTITIONS)
    three.agree(topic, lambda leaders: len(leaders) == PARTITIONS and -1 not in leaders)
    kinds = ("aiokafka", "kafka-python-0.9", "confluent-range")
    asked = {"key_type": 0, "coordinator_keys": [f"by-{kind}" for kind in kinds]}
    native = Native(three.bootstrap(1))

    def coordinators() -> list[dict[str, Any]]:
        return list(native.request("FindCoordinator", asked)["coordinators"])

    until(lambda: all(each["node_id"] > 0 for each in coordinators()))
    found = coordinators()
    elsewhere = {each["key"]: each["node_id"] % 3 + 1 for each in found}
    fill(three.bootstrap(), topic, 0, 2)
    made = [
        Member(kind, three.bootstrap(elsewhere[f"by-{kind}"]), f"by-{kind}", topic)
        for kind in kinds
    ]
    with members(*made):
        for member in made:
            wait_until(f"{member.kind} has committed all", partial(_is_through, member))
            member.leave()


def _is_through(member: Member) -> bool:
    return len(set(member.places("committed"))) == 2 * PARTITIONS


def test_consumers_read_from_other_leaders_while_one_is_dead(three: Cluster) -> None:
    three.create("half-dead", 6)
    leaders = three.agree("half-dead", lambda leaders: len(leaders) == 6 and min(leaders) > 0)
    lost = leaders[0]
    left = [partition for partition in range(6) if leaders[partition] != lost]
    with krust.Consumer(bootstrap_servers=three.bootstrap()) as consumer:
        consumer.assign([("half-dead", partition, 0) for partition in range(6)])
        for partition in range(6):
            three.produce("half-dead", ["before"], partition)
        assert polled(consumer, 6) == [b"before"] * 6
        three.kill(lost)
        for partition in left:
            three.produce("half-dead", ["after"], partition)
        assert polled(consumer, len(left)) == [b"after"] * len(left)


def polled(consumer: krust.Consumer, count: int) -> list[bytes | None]:
    """The values of this many records."""
    deadline, values = time.monotonic() + WAIT_S, list[bytes | None]()
    while len(values) < count:
        assert time.monotonic() < deadline, values
        values += [record.value for record in consumer.poll(500)]
    return values
