"""Brokers that speak TLS with each other: replicas, control requests and markers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from krust import Cluster
from krust.errors import AbortableTransactionError
from tests.certificates import Authority
from tests.waiting import until

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[Cluster]:
    """Three brokers that have to show each other certificates; clients need none."""
    broker = authority.certify("broker", "IP:127.0.0.1")
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.brokers.ssl.client.auth": "required",
        "transaction.state.log.num.partitions": 3,
    }
    with Cluster(3, config=settings) as cluster:
        yield cluster


def client(cluster: Cluster, trusted: Path) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(trusted),
    }


def is_committed(producer: krust.Producer, values: list[tuple[int, bytes]]) -> bool:
    """Write values in one transaction; False: it was aborted and has to be done again."""
    try:
        with producer.transaction():
            for partition, value in values:
                producer.send("replicated", value, partition=partition)
    except AbortableTransactionError:
        return False
    return True


def test_replicas_and_markers_pass_between_brokers_through_tls(
    encrypted: Cluster, authority: Authority
) -> None:
    settings = client(encrypted, authority.certificate)
    krust.Admin(settings).create_topic("replicated", partitions=6, replication_factor=3)
    with krust.Producer(settings, transactional_id="t") as producer:
        for number in range(6):
            values = [(partition, f"{number} {partition}".encode()) for partition in range(6)]
            until(functools.partial(is_committed, producer, values))
    with krust.Consumer(settings, isolation_level="read_committed") as consumer:
        consumer.assign([("replicated", partition, 0) for partition in range(6)])
        found: list[bytes] = []
        while len(found) < 36:
            found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
    assert sorted(found) == sorted(
        f"{number} {partition}".encode() for number in range(6) for partition in range(6)
    )


def test_leaders_move_when_a_broker_of_an_encrypted_cluster_is_killed(
    encrypted: Cluster, authority: Authority
) -> None:
    settings = client(encrypted, authority.certificate)
    krust.Admin(settings).create_topic("moved", partitions=3, replication_factor=3)
    with krust.Producer(settings) as producer:
        first = [producer.send("moved", b"a", partition=number) for number in range(3)]
        assert [sent.result(WAIT_MS).offset for sent in first] == [0, 0, 0]
        encrypted.kill(0)
        second = [producer.send("moved", b"b", partition=number) for number in range(3)]
        assert [sent.result(WAIT_MS).offset for sent in second] == [1, 1, 1]
    encrypted.start(0)
