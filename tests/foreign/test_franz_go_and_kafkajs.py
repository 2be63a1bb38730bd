"""What franz-go and kafkajs are answered by listeners with SASL and TLS: right, wrong, expired and
revoked credentials of every mechanism, and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import krust
from krust import Broker, jaas
from krust.cli import main
from krust.errors import KafkaError
from tests import tokens, waiting
from tests.certificates import Authority
from tests.foreign.copying import RECORDS
from tests.foreign.programs import ON_DEMAND, PROGRAMS, Program, Task

pytestmark = ON_DEMAND

PASSWORD = 'open; "sésame"= ,'
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BY_PASSWORD = ("PLAIN", *SCRAM)
MECHANISMS = (*BY_PASSWORD, "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
REFUSED = r"(?i)authentication"
REFUSED_TOKEN = r"(?i)authentication|oauth|closed connection"
"""kafkajs takes the reason for an answer: it notices only that the broker hangs up"""
UNVERIFIED = r"(?i)certificate|tls|ssl|connection|socket"


class Served(NamedTuple):
    """A broker with a listener of each protocol, and who vouches for its users."""

    broker: Broker
    at: dict[str, str]
    issuer: tokens.Issuer
    authority: Authority
    folder: Path

    def task(self, protocol: str, mechanism: str, **other: str) -> Task:
        """How alice logs in, or who `other` names."""
        given = {"user": "alice", "password": PASSWORD, **other}
        if mechanism == "OAUTHBEARER":
            given = {"token": other.get("token") or self.issuer.token()}
        authority = self.authority.certificate if protocol == "SASL_SSL" else ""
        return Task(self.at[protocol], mechanism=mechanism, authority=authority, **given)

    def user(self, action: str, name: str, *words: str) -> None:
        """Run `krust user`."""
        with pytest.raises(SystemExit, match=r"^0$"):
            main(["user", action, name, *words, "-b", self.at["PLAINTEXT"]])

    def add(self, name: str) -> None:
        """Make a user of SCRAM, whose password is PASSWORD."""
        file = self.folder / "password"
        file.write_text(f"{PASSWORD}\n")
        self.user("add", name, "--password-file", str(file))

    def topics(self) -> list[str]:
        """Those that somebody who was let in has made."""
        return list(krust.Admin({"bootstrap.servers": self.at["PLAINTEXT"]}).topics())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    issuer, authority = tokens.Issuer(folder / "issuer"), Authority(folder / "authority")
    quoted = jaas.quoted(PASSWORD)
    users = f"{jaas.PLAIN} required user_alice={quoted};"
    settings = {
        **issuer.broker(*PROTOCOLS, "SSL", "PLAINTEXT"),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": authority.certify("server", "IP:127.0.0.1"),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.truststore.location": authority.certificate,
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": users for each in PROTOCOLS},
    }
    with Broker(config=settings) as broker:
        made = Served(broker, dict(broker.listeners), issuer, authority, folder)
        made.add("alice")
        yield made


@pytest.fixture(scope="module", params=PROGRAMS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return PROGRAMS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_that_logs_in_reads_back_what_it_wrote(
    request: pytest.FixtureRequest, served: Served, client: Program, mechanism: str, protocol: str
) -> None:
    topic = request.node.callspec.id
    assert client(served.task(protocol, mechanism)._replace(topic=topic)) == RECORDS


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"user": "eve"}])
@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_a_wrong_password_and_an_unknown_user_are_refused(
    served: Served, client: Program, mechanism: str, wrong: dict[str, str]
) -> None:
    is_refused(served, client, served.task("SASL_PLAINTEXT", mechanism, **wrong))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "wrong", ["wrong signature", "expired", "other audience", "unknown key", "alg none"]
)
def test_a_wrong_and_an_expired_token_are_refused(
    served: Served, client: Program, wrong: str, protocol: str
) -> None:
    token = tokens.wrong_tokens(served.issuer)[wrong]
    is_refused(served, client, served.task(protocol, "OAUTHBEARER", token=token), REFUSED_TOKEN)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_user_who_was_deleted_is_refused(
    request: pytest.FixtureRequest, served: Served, client: Program, mechanism: str
) -> None:
    served.add("carl")
    topic = request.node.callspec.id
    task = served.task("SASL_PLAINTEXT", mechanism, user="carl")
    assert client(task._replace(topic=topic)) == RECORDS
    served.user("delete", "carl")
    is_refused(served, client, task)


def test_a_user_whom_a_restart_took_from_plains_users_is_refused(
    tmp_path: Path, client: Program
) -> None:
    def settings(*users: str) -> dict[str, object]:
        options = " ".join(f'user_{user}="secret"' for user in users)
        return {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas.PLAIN} required "
            f"{options};",
        }

    def copied(broker: Broker, user: str, topic: str) -> list[bytes]:
        return client(Task(broker.bootstrap, topic, "PLAIN", user, "secret"))

    with Broker(config=settings("alice", "bob"), data_dir=tmp_path) as broker:
        assert copied(broker, "bob", "before") == RECORDS
    with Broker(config=settings("alice"), data_dir=tmp_path) as broker:
        with pytest.raises(ConnectionError, match=REFUSED):
            copied(broker, "bob", "never")
        assert copied(broker, "alice", "after") == RECORDS


def test_a_token_of_a_revoked_key_is_refused(tmp_path: Path, client: Program) -> None:
    issuer = tokens.Issuer(tmp_path)
    second = tokens.Key(tmp_path, "second")
    issuer.publish(issuer.key, second)
    with Broker(config=issuer.broker("SASL_PLAINTEXT")) as broker:
        task = Task(broker.bootstrap, "t", "OAUTHBEARER", token=issuer.token(key=second))
        assert client(task) == RECORDS
        issuer.publish(issuer.key)

        def is_revoked() -> bool:
            options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
            options |= {"sasl.oauthbearer.token": task.token}
            try:
                krust.Admin({"bootstrap.servers": broker.bootstrap, **options}).topics()
            except KafkaError:
                return True
            return False

        waiting.until(is_revoked)
        with pytest.raises(ConnectionError, match=REFUSED_TOKEN):
            client(task)


def test_a_certificate_lets_in_and_a_wrong_an_expired_and_none_do_not(
    served: Served, client: Program
) -> None:
    def task(authority: Authority, name: str) -> Task:
        """A client that shows a certificate."""
        return Task(
            served.at["SSL"],
            authority=served.authority.certificate,
            certificate=authority.chain(name),
            key=authority.key(name),
        )

    served.authority.certify("client")
    served.authority.certify("expired", days=-1)
    other = Authority(served.folder / "other")
    other.certify("client")
    topic = f"by-certificate-{id(client)}"
    assert client(task(served.authority, "client")._replace(topic=topic)) == RECORDS
    nothing = Task(served.at["SSL"], authority=served.authority.certificate)
    for wrong in (task(other, "client"), task(served.authority, "expired"), nothing):
        is_refused(served, client, wrong, UNVERIFIED)


def is_refused(served: Served, client: Program, task: Task, expected: str = REFUSED) -> None:
    """It raises, and what who is let in would create is not there."""
    with pytest.raises(ConnectionError, match=expected):
        client(task)
    assert "never" not in served.topics()
