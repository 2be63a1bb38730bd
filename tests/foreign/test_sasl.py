"""Listeners with SASL, and the clients that log in there: those of other projects, and krust's."""

from __future__ import annotations

import gc
import re
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import krust
from krust import Broker, jaas
from krust.cli import main
from krust.errors import ConfigError, KafkaError, KrustError
from tests.certificates import Authority
from tests.foreign import copying
from tests.foreign.copying import RECORDS, WAIT_MS, WAIT_S
from tests.peers import kafka, tools

PASSWORD = 'open; "sésame"= ,'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class Login(NamedTuple):
    """How a client logs in, and where."""

    at: str
    protocol: str
    authority: Path
    mechanism: str
    user: str = "alice"
    password: str = PASSWORD

    @property
    def librdkafka(self) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self.at,
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }
        if self.protocol == "SASL_SSL":
            settings["ssl.ca.location"] = str(self.authority)
        return settings

    @property
    def java(self) -> str:
        module = jaas.PLAIN if self.mechanism == "PLAIN" else jaas.SCRAM
        password = self.password.replace("\\", "\\\\").replace('"', '\\"')
        login = f'{module} required username="{self.user}" password="{password}";'
        lines = [
            f"security.protocol={self.protocol}",
            f"sasl.mechanism={self.mechanism}",
            f"sasl.jaas.config={login}".replace("\\", "\\\\").replace("é", "\\u00e9"),
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority}",
        ]
        return "\n".join(lines)


class Secured(NamedTuple):
    """A broker with a listener of each protocol."""

    broker: Broker
    at: dict[str, str]
    authority: Authority

    def login(self, protocol: str, mechanism: str, **other: str) -> Login:
        at = self.at[protocol]
        return Login(at, protocol, self.authority.certificate, mechanism, **other)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("sasl")
    authority = Authority(folder / "ours")
    quoted = PASSWORD.replace('"', '\\"')
    users = f'{jaas.PLAIN} required user_alice="{quoted}" user_nobody="";'
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*PROTOCOLS, "PLAINTEXT")),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.certify("server", "IP:127.0.0.1", "DNS:localhost"),
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": users for each in PROTOCOLS},
    }
    with Broker(config=settings) as broker:
        at = dict(broker.listeners)
        password = folder / "password"
        password.write_text(f"{PASSWORD}\n")
        add = ["user", "add", "alice", "--password-file", str(password), "-b", at["PLAINTEXT"]]
        with pytest.raises(SystemExit, match=r"^0$"):
            main(add)
        yield Secured(broker, at, authority)


Client = Callable[[Login, str], list[bytes]]
"""Writes RECORDS to a topic of a broker and returns what it reads of it; raises if it cannot"""


def confluent(login: Login, topic: str) -> list[bytes]:
    return copying.confluent(login.librdkafka, topic)


def kafka_python(login: Login, topic: str) -> list[bytes]:
    settings = {
        "bootstrap_servers": login.at,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
        "ssl_cafile": str(login.authority),
        "bootstrap_timeout_ms": 2_000 if login.password != PASSWORD else 30_000,
    }
    return copying.kafka_python(settings, topic)


def aiokafka(login: Login, topic: str) -> list[bytes]:
    settings: dict[str, object] = {
        "bootstrap_servers": login.at,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }
    if login.protocol == "SASL_SSL":
        settings["ssl_context"] = ssl.create_default_context(cafile=str(login.authority))
    return copying.aiokafka(settings, topic)


def kcat(login: Login, topic: str) -> list[bytes]:
    return copying.kcat(login.librdkafka, topic)


def repeats_its_nonce() -> bool:
    """Whether kcat's librdkafka is older than 2.2."""
    if shutil.which("kcat") is None:
        return False
    said = copying.ran(["kcat", "-V"], b"").decode()
    version = re.search(r"librdkafka (\d+)\.(\d+)", said)
    return version is not None and (int(version[1]), int(version[2])) < (2, 2)


def own(login: Login, topic: str) -> list[bytes]:
    return copying.own(login.librdkafka, topic)


CLIENTS: dict[str, Client] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
    "krust": own,
}
REFUSED = r"(?i)authentication|bootstrap|brokers"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_logs_in_reads_back_what_it_wrote(
    secured: Secured, client: str, protocol: str, mechanism: str
) -> None:
    if client == "kcat" and mechanism != "PLAIN" and repeats_its_nonce():
        pytest.skip("librdkafka before 2.2 repeats its nonce, which is refused (CVE-2024-56128)")
    topic = f"{client}-{protocol}-{mechanism}"
    assert CLIENTS[client](secured.login(protocol, mechanism), topic) == RECORDS


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"user": "eve"}, {"user": "nobody"}])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", ["confluent-kafka", "krust"])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(
    secured: Secured, client: str, mechanism: str, wrong: dict[str, str]
) -> None:
    login = secured.login("SASL_PLAINTEXT", mechanism, **wrong)
    with pytest.raises((KafkaException, KrustError), match=r"(?i)authentication failed") as told:
        CLIENTS[client](login, "never")
    expected = "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials"
    assert expected in str(told.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", "kcat"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_other_clients_with_a_wrong_password_are_refused(
    secured: Secured, client: str, mechanism: str
) -> None:
    login = secured.login("SASL_SSL", mechanism, password="guess")
    with pytest.raises(Exception, match=REFUSED) as told:
        CLIENTS[client](login, "never")
    told.value.__traceback__ = None
    gc.collect()  # they leave sockets open when they cannot log in


@pytest.mark.java
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_the_tools_of_kafka_log_in_by_every_mechanism(
    secured: Secured, tmp_path: Path, version: str
) -> None:
    with tools.tools(version) as run:
        for mechanism in MECHANISMS:
            login = secured.login("SASL_SSL", mechanism)
            properties = tmp_path / f"{mechanism}.properties"
            properties.write_text(login.java)
            at = ("--bootstrap-server", login.at, "--command-config", str(properties))
            topic = f"java-{version}-{mechanism}".replace(".", "-")
            code, said = run("kafka-topics", *at, "--create", "--topic", topic)
            assert (code, f"Created topic {topic}." in said) == (0, True), said
            properties.write_text(login._replace(password="guess").java)
            code, said = run("kafka-topics", *at, "--list")
            assert (code, "Authentication failed" in said) == (1, True), said


@pytest.mark.java
def test_kafkas_own_tool_makes_describes_and_deletes_users(
    secured: Secured, tmp_path: Path
) -> None:
    at = ("--bootstrap-server", secured.at["PLAINTEXT"], "--entity-type", "users")
    carl = (*at, "--entity-name", "carl", "--alter")
    with tools.tools("3.9.1") as run:
        made = "SCRAM-SHA-512=[iterations=8192,password=pencil]"
        assert run("kafka-configs", *carl, "--add-config", made)[0] == 0
        code, said = run("kafka-configs", *at, "--entity-name", "carl", "--describe")
        assert (code, "SCRAM-SHA-512=iterations=8192" in said) == (0, True), said
        login = secured.login("SASL_PLAINTEXT", "SCRAM-SHA-512", user="carl", password="pencil")
        assert own(login, "carls") == RECORDS
        assert run("kafka-configs", *carl, "--delete-config", "SCRAM-SHA-512")[0] == 0
        with pytest.raises(KafkaError, match="invalid credentials"):
            own(login, "carls")


def test_a_password_that_confluents_admin_changes_acts_at_once(secured: Secured) -> None:
    admin = AdminClient(secured.login("SASL_PLAINTEXT", "PLAIN").librdkafka)
    for password in ("first", "second"):
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("dora", info, password.encode())
        admin.alter_user_scram_credentials([change])["dora"].result(WAIT_S)
        login = secured.login("SASL_PLAINTEXT", "SCRAM-SHA-256", user="dora", password=password)
        assert own(login, f"doras-{password}") == RECORDS
        with pytest.raises(KafkaError, match="invalid credentials"):
            own(login._replace(password="other"), "never")
    gone = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["dora"].result(WAIT_S)
    with pytest.raises(KafkaError, match="invalid credentials"):
        own(login, "never")


def test_a_client_without_a_login_is_answered_nothing(secured: Secured) -> None:
    settings: dict[str, object] = {"bootstrap.servers": secured.at["SASL_PLAINTEXT"]}
    with krust.Producer(settings, delivery_timeout_ms=1_000) as client, pytest.raises(KrustError):
        client.send("never", b"x").result(WAIT_MS)


def test_a_login_at_a_listener_without_logins_is_told_so(secured: Secured) -> None:
    login = secured.login("SASL_PLAINTEXT", "PLAIN")._replace(at=secured.at["PLAINTEXT"])
    with pytest.raises(KafkaError, match="this listener has no logins"):
        krust.Admin(login.librdkafka).topics()


def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are() -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with Broker(config=settings) as broker:
        login = Login(broker.bootstrap, "SASL_PLAINTEXT", Path(), "PLAIN")
        with pytest.raises(KafkaError, match="it offers SCRAM-SHA-512, not PLAIN"):
            krust.Admin(login.librdkafka).topics()


@pytest.fixture
def short() -> Iterator[Login]:
    """A login that lasts for 300 ms."""
    key = "listener.name.sasl_plaintext.plain"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{key}.sasl.jaas.config": f'{jaas.PLAIN} required user_alice="secret";',
        f"{key}.connections.max.reauth.ms": "300",
    }
    with Broker(config=settings) as broker:
        yield Login(broker.bootstrap, "SASL_PLAINTEXT", Path(), "PLAIN", password="secret")


def test_krusts_producer_logs_in_again_and_loses_nothing(short: Login) -> None:
    """Its idempotent producer would fail if the connection were closed between two requests of
    which the first is not answered.
    """
    with krust.Producer(dict(short.librdkafka), linger_ms=0, retry_backoff_ms=60_000) as producer:
        sent = []
        end_s = time.monotonic() + 1.5
        while time.monotonic() < end_s:
            sent.append(producer.send("t", b"x", partition=0))
            sent[max(0, len(sent) - 100)].result(WAIT_MS)
        assert [each.result(WAIT_MS).offset for each in sent] == list(range(len(sent)))


def test_confluents_consumer_reads_on_when_its_login_has_ended(short: Login) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer(short.librdkafka)
    consumer = Consumer({**short.librdkafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    sent = 0
    found: list[bytes] = []
    end_s = time.monotonic() + 1.5
    while time.monotonic() < end_s:
        producer.produce("t", str(sent), partition=0)
        assert producer.flush(WAIT_S) == 0
        sent += 1
        while len(found) < sent:
            message = consumer.poll(WAIT_S)
            if message is not None and message.error() is None:
                found.append(message.value())
    consumer.close()
    assert found == [str(number).encode() for number in range(sent)]


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({}, "offers GSSAPI, which krust does not have"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "offers PLAIN and has no users"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": "canary",
            },
            "is no JAAS string",
        ),
    ],
)
def test_a_listener_on_which_nobody_could_log_in_is_refused(
    settings: dict[str, str], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong) as refused:
        Broker(config={"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **settings})
    assert "canary" not in f"{refused.value} {refused.value.hint}"
