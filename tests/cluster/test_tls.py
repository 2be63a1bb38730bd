"""Brokers that speak TLS with each other: replicas, control requests and markers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from krust import Cluster
from krust.errors import AbortableTransactionError, Code, KafkaError
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


def test_brokers_that_acls_know_by_their_certificate_replicate_what_a_named_client_writes(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "authority")
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:CN=broker,O=krust;User:admin",
        "listener.name.clients.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.certify("broker", "IP:127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }

    def named(name: str) -> dict[str, object]:
        own = {"ssl.keystore.location": str(authority.certify(name))}
        return client(cluster, authority.certificate) | own

    with Cluster(3, config=settings) as cluster:
        admin = krust.Admin(named("admin"))
        admin.create_topic("written", partitions=3, replication_factor=3)
        admin.create_acls(
            [
                krust.Acl(principal="User:alice", operation="All", resource_type=kind, name=name)
                for kind, name in (("Topic", "written"), ("TransactionalId", "t"))
            ]
        )
        values = [(number, b"x") for number in range(3)]

        def may_write() -> bool:
            try:
                with producer.transaction():
                    for number, value in values:
                        producer.send("written", value, partition=number)
            except (AbortableTransactionError, KafkaError):
                return False
            return True

        alice = named("alice")
        until(lambda: "written" in krust.Admin(alice).topics())
        with krust.Producer(alice, transactional_id="t") as producer:
            until(may_write)
            cluster.kill(0)
            until(may_write)
            cluster.start(0)
        with krust.Consumer(alice, isolation_level="read_committed") as consumer:
            consumer.assign([("written", number, 0) for number in range(3)])
            found: list[bytes] = []
            while len(found) < 6:
                found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
        with krust.Producer(named("bob")) as producer, pytest.raises(KafkaError) as caught:
            producer.send("written", b"y", partition=0).result(WAIT_MS)
        assert caught.value.code == Code.TOPIC_AUTHORIZATION_FAILED
