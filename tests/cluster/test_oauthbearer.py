"""Brokers that log in at each other by tokens of an OAuth issuer: krust's own, and krust's beside
Kafka's."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

import krust
from krust import Admin, jaas
from tests import tokens
from tests.cluster.brokers import Cluster
from tests.cluster.test_sasl import KAFKA, KRUST, is_replicated, served
from tests.issuer_server import Asked, issuer_server
from tests.peers import kafka
from tests.peers.on_demand import OF_KAFKA
from tests.peers.zookeeper import LONG_MS
from tests.ports import free_ports

WAIT_MS = 60_000
LOGIN = "Basic " + b64encode(b"brokers:a-secret").decode()
LASTS_S = 6


class BrokersIssuer:
    """Grants tokens to the brokers."""

    def __init__(self, folder: Path) -> None:
        self.issuer = tokens.Issuer(folder, "ES256")
        self.granted = 0
        self.lasts_s = LASTS_S

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.login != LOGIN:
            return 401, {}, b""
        assert asked.form == "grant_type=client_credentials&scope=cluster"
        self.granted += 1
        token = self.issuer.token(sub="broker", lasts_s=self.lasts_s)
        return 200, {}, json.dumps({"access_token": token, "expires_in": self.lasts_s}).encode()

    def settings(self, at: str) -> dict[str, object]:
        """Those of brokers whose own listener asks for tokens."""
        url = f"{at}/token"
        login = 'required clientId="brokers" clientSecret="a-secret" scope="cluster";'
        return {
            **self.issuer.broker("CLIENTS", "BROKERS"),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "listener.name.brokers.oauthbearer.sasl.jaas.config": f"{jaas.OAUTHBEARER} {login}",
            "sasl.oauthbearer.token.endpoint.url": url,
            "krust.sasl.oauthbearer.allowed.urls": f"{self.issuer.url},{url}",
        }


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokersIssuer, str]]:
    made = BrokersIssuer(tmp_path)
    with issuer_server(made.answer) as at:
        yield made, at


def test_replicas_and_markers_pass_by_tokens_and_new_tokens_replace_old_ones(
    brokers: tuple[BrokersIssuer, str],
) -> None:
    issuer, at = brokers
    rights = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:ANONYMOUS",
    }
    with krust.Cluster(3, config=issuer.settings(at) | rights) as cluster:
        client: dict[str, object] = {"bootstrap.servers": cluster.bootstrap}
        Admin(client).create_topic("t", partitions=3, replication_factor=3)
        with krust.Producer(client, transactional_id="t") as producer, producer.transaction():
            for partition in range(3):
                producer.send("t", b"x", partition=partition)
        end_s = time.monotonic() + 2 * LASTS_S
        sent = 0
        with krust.Producer(client, acks="all") as producer:
            while time.monotonic() < end_s:
                producer.send("t", b"y", partition=sent % 3).result(WAIT_MS)
                sent += 1
        assert issuer.granted >= 6, "each broker asked for a second token"
        with krust.Consumer(client, isolation_level="read_committed") as consumer:
            consumer.assign([("t", number, 0) for number in range(3)])
            found: list[bytes] = []
            while len(found) < sent + 3:
                found += [record.value or b"" for record in consumer.poll(WAIT_MS)]
        assert sorted(found) == [b"x"] * 3 + [b"y"] * sent


def beside(node: int, connect: str, settings: dict[str, object]) -> dict[str, object]:
    [port] = free_ports(1)
    return {
        **settings,
        "broker.id": node,
        "listeners": f"CLIENTS://{{bootstrap}},BROKERS://127.0.0.1:{port}",
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": LONG_MS,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
    }


@pytest.mark.parametrize(
    "controller", [pytest.param(each, marks=OF_KAFKA) for each in (KAFKA, KRUST)]
)
def test_krust_and_kafka_log_in_at_each_other_by_tokens(
    shared: Cluster,
    tmp_path: Path,
    brokers: tuple[BrokersIssuer, str],
    monkeypatch: pytest.MonkeyPatch,
    controller: int,
) -> None:
    issuer, at = brokers
    connect = f"{shared.connect}/tokens-beside-kafka-{controller}"
    issuer.lasts_s = 600  # Kafka starts slowly
    settings = issuer.settings(at)
    allowed = settings["krust.sasl.oauthbearer.allowed.urls"]
    monkeypatch.setenv("KAFKA_OPTS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
    package = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearer"
    key = "listener.name.brokers.oauthbearer.sasl"
    theirs = beside(KAFKA, connect, settings) | {
        f"{key}.login.callback.handler.class": f"{package}LoginCallbackHandler",
        f"{key}.server.callback.handler.class": f"{package}ValidatorCallbackHandler",
    }
    ours = beside(KRUST, connect, settings)

    def kafkas() -> AbstractContextManager[str]:
        return kafka.running("3.9.1", tmp_path / "kafka", theirs, zookeeper=connect)

    with ExitStack() as stack:
        if controller == KAFKA:
            stack.enter_context(kafkas())
        krusts = stack.enter_context(served(tmp_path / "krust", ours))
        if controller == KRUST:
            stack.enter_context(kafkas())
        is_replicated(krusts.bootstrap, [KAFKA, KRUST])
