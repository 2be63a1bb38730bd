"""Listeners with OAUTHBEARER, and the clients that log in there by a token: those of other
projects, and krust's."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import krust
from krust import Broker
from krust.errors import ConfigError, KafkaError, KrustError
from tests import tokens, waiting
from tests.foreign import copying
from tests.foreign.copying import RECORDS, WAIT_MS
from tests.peers import kafka, tools


class Served(NamedTuple):
    """A broker, and the issuer of its users' tokens."""

    broker: Broker
    issuer: tokens.Issuer
    wrong: dict[str, str]

    @property
    def at(self) -> str:
        return dict(self.broker.listeners)["SASL_PLAINTEXT"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    issuer = tokens.Issuer(tmp_path_factory.mktemp("issuer"))
    with Broker(config=issuer.broker("SASL_PLAINTEXT")) as broker:
        yield Served(broker, issuer, tokens.wrong_tokens(issuer))


Client = Callable[[str, str, str], list[bytes]]
"""Writes RECORDS to a topic by a token and returns what it reads of it; raises if it cannot"""


def confluent(at: str, token: str, topic: str) -> list[bytes]:
    told = {"oauth_cb": lambda _: (token, time.time() + 300)}
    return copying.confluent({**dotted(at), **told}, topic)


def kafka_python(at: str, token: str, topic: str) -> list[bytes]:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    told = {"bootstrap_timeout_ms": 30_000 if topic != "never" else 2_000}
    return copying.kafka_python(keywords(at, Provider()) | told, topic)


def aiokafka(at: str, token: str, topic: str) -> list[bytes]:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token

    return copying.aiokafka(keywords(at, Provider()), topic)


def dotted(at: str) -> dict[str, object]:
    return {
        "bootstrap.servers": at,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }


def keywords(at: str, provider: object) -> dict[str, object]:
    return {
        **{name.replace(".", "_"): value for name, value in dotted(at).items()},
        "sasl_oauth_token_provider": provider,
    }


def own_settings(at: str, token: object) -> dict[str, object]:
    return {**dotted(at), "sasl.oauthbearer.token": token, "request.timeout.ms": 5_000}


def own(at: str, token: str, topic: str) -> list[bytes]:
    return copying.own(own_settings(at, lambda: (token, time.time() + 300)), topic)


CLIENTS: dict[str, Client] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "krust": own,
}
REFUSED = r"(?i)authentication|bootstrap|brokers|invalid_token"
WRONG = (
    "wrong signature",
    "expired",
    "not valid yet",
    "other issuer",
    "other audience",
    "no audience",
    "no user",
    "alg none",
    "HS256 with the public key",
    "unknown key",
    "no token",
)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_a_token_reads_back_what_it_wrote(served: Served, client: str) -> None:
    assert CLIENTS[client](served.at, served.issuer.token(), f"by-{client}") == RECORDS


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_token_is_refused_whatever_is_wrong_with_it(
    served: Served, client: str, wrong: str
) -> None:
    with pytest.raises(Exception, match=REFUSED) as told:
        CLIENTS[client](served.at, served.wrong[wrong], "never")
    topics = krust.Admin(own_settings(served.at, served.issuer.token())).topics()
    assert "never" not in topics, "who is accepted creates it"
    told.value.__traceback__ = None
    gc.collect()  # they leave sockets open when they cannot log in


@pytest.mark.parametrize("algorithm", tokens.ALGORITHMS)
def test_every_algorithm_of_public_keys_is_accepted(tmp_path: Path, algorithm: str) -> None:
    issuer = tokens.Issuer(tmp_path, algorithm)
    with Broker(config=issuer.broker("SASL_PLAINTEXT")) as broker:
        krust.Admin(own_settings(broker.bootstrap, issuer.token())).topics()
        other = tokens.Key(tmp_path, "other", algorithm)
        wrong = issuer.token(key=other, header={"kid": issuer.key.name})
        with pytest.raises(KafkaError, match="invalid_token"):
            krust.Admin(own_settings(broker.bootstrap, wrong)).topics()


def test_a_key_that_leaves_the_file_is_revoked_and_a_new_one_is_accepted(tmp_path: Path) -> None:
    issuer = tokens.Issuer(tmp_path)
    second = tokens.Key(tmp_path, "second", "ES256")
    with Broker(config=issuer.broker("SASL_PLAINTEXT")) as broker:
        at = broker.bootstrap

        def accepted(token: str) -> bool:
            try:
                krust.Admin(own_settings(at, token)).topics()
            except KafkaError:
                return False
            return True

        old, new = issuer.token(), issuer.token(key=second)
        assert (accepted(old), accepted(new)) == (True, False)
        issuer.publish(second)
        waiting.until(lambda: accepted(new))
        assert not accepted(old)
        issuer.file.write_text("{ half a file")
        assert accepted(new)


def test_a_login_ends_with_its_token_and_the_client_shows_the_next_one(tmp_path: Path) -> None:
    issuer = tokens.Issuer(tmp_path, "ES256")
    asked: list[float] = []

    def token() -> tuple[str, float]:
        asked.append(time.time())
        ends_s = int(time.time()) + 3
        return issuer.token(exp=ends_s), ends_s

    with Broker(config=issuer.broker("SASL_PLAINTEXT")) as broker:
        settings = own_settings(broker.bootstrap, token)
        with krust.Producer(settings, linger_ms=0, retry_backoff_ms=60_000) as producer:
            sent = []
            while len(asked) < 3:
                sent.append(producer.send("t", b"x", partition=0))
                sent[-1].result(WAIT_MS)
            assert [each.result(WAIT_MS).offset for each in sent] == list(range(len(sent)))


def test_a_token_of_another_user_does_not_take_over_the_connection(tmp_path: Path) -> None:
    issuer = tokens.Issuer(tmp_path, "ES256")
    user = "alice"
    settings = issuer.broker("SASL_PLAINTEXT") | {"connections.max.reauth.ms": "200"}
    with Broker(config=settings) as broker:
        given = own_settings(broker.bootstrap, lambda: (issuer.token(sub=user), None))
        admin = krust.Admin(given)
        admin.topics()
        user = "bob"

        def refused() -> bool:
            try:
                admin.topics()
            except KrustError:
                return True
            return False

        waiting.until(refused)


def test_cve_2025_27817_keys_come_only_from_addresses_that_are_allowed(tmp_path: Path) -> None:
    issuer = tokens.Issuer(tmp_path)
    settings = issuer.broker("SASL_PLAINTEXT")
    for allowed in ("", "https://issuer.example", issuer.url.removesuffix("keys.json")):
        with pytest.raises(ConfigError, match=r"allowed\.urls does not name file:") as refused:
            Broker(config=settings | {"krust.sasl.oauthbearer.allowed.urls": allowed})
        assert issuer.url in str(refused.value.hint)


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "has no keys to check tokens with"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/"}, "is no address of a key set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///none"}, "/none: No such file"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///etc/hostname"}, "it is no JSON object"),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
                "zookeeper.connect": "127.0.0.1:1",
            },
            "is no address of an issuer",
        ),
    ],
)
def test_a_broker_that_could_not_check_tokens_does_not_start(
    tmp_path: Path, changed: dict[str, object], wrong: str
) -> None:
    settings = tokens.Issuer(tmp_path).broker("SASL_PLAINTEXT") | changed
    url = settings["sasl.oauthbearer.jwks.endpoint.url"]
    settings["krust.sasl.oauthbearer.allowed.urls"] = url
    with pytest.raises(ConfigError, match=wrong):
        Broker(config=settings, data_dir=tmp_path / "data")


def test_a_listener_has_token_settings_of_its_own(tmp_path: Path) -> None:
    issuer = tokens.Issuer(tmp_path, "ES256")
    own_key = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer"
    settings = issuer.broker("SASL_PLAINTEXT") | {
        f"{own_key}.sub.claim.name": "email",
        f"{own_key}.expected.audience": "mine",
    }
    with Broker(config=settings) as broker:
        at = broker.bootstrap
        krust.Admin(own_settings(at, issuer.token(aud="mine", email="a@b.example"))).topics()
        with pytest.raises(KafkaError, match="invalid_token"):
            krust.Admin(own_settings(at, issuer.token(email="a@b.example"))).topics()
        with pytest.raises(KafkaError, match="invalid_token"):
            krust.Admin(own_settings(at, issuer.token(aud="mine"))).topics()


def test_the_broker_logs_why_it_refused_a_token_and_the_client_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = tokens.Issuer(tmp_path, "ES256")
    with caplog.at_level(logging.WARNING), Broker(config=issuer.broker("SASL_PLAINTEXT")) as broker:
        with pytest.raises(KafkaError) as refused:
            krust.Admin(own_settings(broker.bootstrap, issuer.token(iss="x"))).topics()
        assert "issuer" not in str(refused.value)
        waiting.until(lambda: "OAUTHBEARER: the token is from another issuer" in caplog.text)


def test_a_callback_that_fails_or_returns_nothing_is_named(served: Served) -> None:
    def failing() -> None:
        raise ValueError("the vault is closed")

    for token, expected in ((failing, "the vault is closed"), (lambda: 1, "returned no")):
        with pytest.raises(KafkaError, match=expected):
            krust.Admin(own_settings(served.at, token)).topics()
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.token"):
        krust.Admin(own_settings(served.at, None)).topics()


@pytest.mark.java
@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_the_tools_of_kafka_log_in_by_a_token_in_a_file(
    served: Served, tmp_path: Path, version: str
) -> None:
    file = tmp_path / "token"
    package = "org.apache.kafka.common.security.oauthbearer"
    handlers = package if version[0] == "4" else f"{package}.secured"
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={handlers}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
    at = ("--bootstrap-server", served.at, "--command-config", str(properties))
    with tools.tools(version, allowed) as run:
        file.write_text(served.issuer.token())
        topic = f"java-{version}".replace(".", "-")
        code, said = run("kafka-topics", *at, "--create", "--topic", topic)
        assert (code, f"Created topic {topic}." in said) == (0, True), said
        for wrong in ("wrong signature", "other audience", "unknown key"):
            file.write_text(served.wrong[wrong])
            code, said = run("kafka-topics", *at, "--list")
            assert (code, "invalid_token" in said) == (1, True), said
