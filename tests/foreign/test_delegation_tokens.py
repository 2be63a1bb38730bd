"""Delegation tokens: who makes and sees them, and who logs in by them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import krust
from krust import Acl, Admin, Broker, jaas
from krust.authorizer import CLASSES
from krust.cli import main
from krust.errors import Code, KafkaError
from tests.foreign.copying import WAIT_MS
from tests.peers import kafka, tools
from tests.peers.on_demand import OF_KAFKA

SECRET = "secret"
KEY = "canary-7f3a"
USERS = "".join(f' user_{name}="{SECRET}"' for name in ("admin", "alice", "bob", "carol"))
SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
PROTOCOL = "SASL_PLAINTEXT"
HOUR_MS = 3_600_000
TIMES = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")


class Token(NamedTuple):
    """A token as its bearer has it."""

    id: str
    secret: bytes

    @property
    def jaas(self) -> str:
        """The login module and its options."""
        password = base64.b64encode(self.secret).decode()
        words = f'{jaas.SCRAM} required username="{self.id}" password="{password}"'
        return f'{words} tokenauth="true";'


class Served(NamedTuple):
    """A broker with a key, and where users log in."""

    broker: Broker
    at: str
    plain: str

    def by_password(self, user: str) -> dict[str, object]:
        """The settings of a client that logs in by its user's password."""
        given = {"security.protocol": PROTOCOL, "sasl.mechanism": "PLAIN"}
        login = f'{jaas.PLAIN} required username="{user}" password="{SECRET}";'
        return {"bootstrap.servers": self.at, **given, "sasl.jaas.config": login}

    def by_token(self, token: Token, mechanism: str = SHA512) -> dict[str, object]:
        """The settings of a client that logs in by a token."""
        given = {"security.protocol": PROTOCOL, "sasl.mechanism": mechanism}
        return {"bootstrap.servers": self.at, **given, "sasl.jaas.config": token.jaas}

    def create(
        self, user: str, *renewers: str, owner: str | None = None, lasts_ms: int = -1
    ) -> dict[str, Any]:
        """The answer to CreateDelegationToken."""
        body = {
            "owner_principal_type": None if owner is None else "User",
            "owner_principal_name": owner,
            "renewers": [{"principal_type": "User", "principal_name": each} for each in renewers],
            "max_lifetime_ms": lasts_ms,
        }
        with Admin(self.by_password(user)) as admin:
            return admin.request("CreateDelegationToken", body)

    def token(self, user: str, *renewers: str, lasts_ms: int = -1) -> Token:
        """A new token of a user."""
        made = self.create(user, *renewers, lasts_ms=lasts_ms)
        assert made["error_code"] == 0
        return Token(made["token_id"], made["hmac"])

    def seen(self, settings: dict[str, object]) -> set[str]:
        """The ids of the tokens that a client sees."""
        with Admin(settings) as admin:
            answer = admin.request("DescribeDelegationToken", {"owners": None})
        assert answer["error_code"] == 0
        return {each["token_id"] for each in answer["tokens"]}

    def expire(self, user: str, token: Token, period_ms: int = -1) -> int:
        """The error of ExpireDelegationToken."""
        body = {"hmac": token.secret, "expiry_time_period_ms": period_ms}
        with Admin(self.by_password(user)) as admin:
            return int(admin.request("ExpireDelegationToken", body)["error_code"])


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    settings: dict[str, object] = {
        "listeners": f"{PROTOCOL}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": f"PLAIN,{SHA256},{SHA512}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas.PLAIN} required{USERS};",
        "authorizer.class.name": CLASSES[0],
        "super.users": "User:admin",
        "delegation.token.secret.key": KEY,
    }
    with Broker(config=settings) as broker:
        places = dict(broker.listeners)
        found = Served(broker, places[PROTOCOL], places["PLAINTEXT"])
        broker.create_topic("orders")
        with Admin(found.by_password("admin")) as admin:
            on_orders = {"resource_type": "Topic", "name": "orders"}
            for operation in ("Read", "Write"):
                admin.create_acls([Acl(principal="User:alice", operation=operation, **on_orders)])
        yield found


@pytest.mark.parametrize("mechanism", [SHA256, SHA512])
def test_who_logs_in_by_a_token_does_what_its_owner_may(served: Served, mechanism: str) -> None:
    of_alice = served.by_token(served.token("alice"), mechanism)
    with krust.Producer(of_alice) as producer:
        producer.send("orders", b"paid").result(WAIT_MS)
    with krust.Consumer(of_alice) as consumer:
        consumer.assign([("orders", 0, 0)])
        assert consumer.poll(WAIT_MS)[0].value == b"paid"
    of_bob = served.by_token(served.token("bob"), mechanism)
    assert Admin(of_alice).topics() == {"orders": 1}
    assert Admin(of_bob).topics() == {}


def test_who_logged_in_by_a_token_makes_and_sees_none(served: Served) -> None:
    token = served.token("alice")
    body = {"renewers": [], "max_lifetime_ms": -1, "owners": None, "hmac": token.secret}
    body |= {"renew_period_ms": -1, "expiry_time_period_ms": -1}
    fields = {
        "Create": ("owner_principal_type", "owner_principal_name", "renewers", "max_lifetime_ms"),
        "Renew": ("hmac", "renew_period_ms"),
        "Expire": ("hmac", "expiry_time_period_ms"),
        "Describe": ("owners",),
    }
    nobody: dict[str, object] = {"bootstrap.servers": served.plain}
    for settings in (served.by_token(token), nobody):
        with Admin(settings) as admin:
            for api, names in fields.items():
                asked = {name: body.get(name) for name in names}
                answer = admin.request(f"{api}DelegationToken", asked)
                assert answer["error_code"] == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, api
    assert served.expire("alice", token) == 0


def test_every_version_of_the_requests_is_answered(served: Served) -> None:
    with Admin(served.by_password("alice")) as admin:
        for version in range(4):
            owner = {"owner_principal_type": None, "owner_principal_name": None}
            body: dict[str, Any] = {"renewers": [], "max_lifetime_ms": 5000}
            body |= owner if version > 2 else {}
            made = admin.request("CreateDelegationToken", body, version)
            assert made["error_code"] == 0
            assert made["max_timestamp_ms"] - made["issue_timestamp_ms"] == 5000
            listed = admin.request("DescribeDelegationToken", {"owners": None}, version)["tokens"]
            assert made["hmac"] in [each["hmac"] for each in listed]
            older = min(version, 2)
            asked = {"hmac": made["hmac"], "renew_period_ms": 10_000}
            renewed = admin.request("RenewDelegationToken", asked, older)
            assert renewed["expiry_timestamp_ms"] == made["max_timestamp_ms"]
            gone = {"hmac": made["hmac"], "expiry_time_period_ms": -1}
            assert admin.request("ExpireDelegationToken", gone, older)["error_code"] == 0


def refusal(settings: dict[str, object]) -> tuple[int | None, str]:
    with pytest.raises(KafkaError) as refused, Admin(settings) as admin:
        admin.topics()
    return refused.value.code, str(refused.value)


def test_a_token_that_has_ended_a_wrong_one_and_an_unknown_user_are_refused_alike(
    served: Served,
) -> None:
    ended, later = served.token("alice"), served.token("alice")
    Admin(served.by_token(ended)).topics()
    assert served.expire("alice", ended) == 0
    assert served.expire("alice", later, 0) == 0
    wrong = later._replace(secret=bytes(64))
    unknown = Token("nobody", bytes(64))
    user = {**served.by_token(unknown), "sasl.jaas.config": None}
    user |= {"sasl.username": "nobody", "sasl.password": SECRET}
    found = {refusal(served.by_token(each)) for each in (ended, later, wrong, unknown)}
    found.add(refusal(user))
    [(code, text)] = found
    assert code == Code.SASL_AUTHENTICATION_FAILED
    assert "expired" not in text
    assert served.expire("alice", later, HOUR_MS) == Code.DELEGATION_TOKEN_EXPIRED
    assert served.expire("alice", later) == 0


def test_a_token_is_no_password_and_a_password_no_token(served: Served) -> None:
    token = served.token("alice")
    password = token.jaas.replace(' tokenauth="true"', "")
    assert refusal({**served.by_token(token), "sasl.jaas.config": password})[0] == 58
    plain = {**served.by_token(token), "sasl.mechanism": "PLAIN"}
    with pytest.raises(krust.ConfigError, match=r"needs sasl\.mechanism=SCRAM-SHA-256"):
        Admin(plain)


def grant(served: Served, principal: str, operation: str, resource: tuple[str, str]) -> None:
    kind, name = resource
    acl = Acl(principal=principal, operation=operation, resource_type=kind, name=name)
    with Admin(served.by_password("admin")) as admin:
        admin.create_acls([acl])


def test_acls_say_who_sees_and_makes_tokens_of_others(served: Served) -> None:
    one, two = served.token("alice", "bob"), served.token("alice")
    of_bob, of_carol = served.by_password("bob"), served.by_password("carol")
    assert {one.id, two.id} <= served.seen(served.by_password("alice"))
    assert {one.id, two.id} <= served.seen(served.by_password("admin"))
    assert served.seen(of_bob) & {one.id, two.id} == {one.id}
    assert served.seen(of_carol) & {one.id, two.id} == set()
    grant(served, "User:carol", "Describe", ("DelegationToken", two.id))
    assert served.seen(of_carol) & {one.id, two.id} == {two.id}
    grant(served, "User:bob", "DescribeTokens", ("User", "User:alice"))
    assert served.seen(of_bob) >= {one.id, two.id}
    assert served.expire("carol", two) == Code.DELEGATION_TOKEN_OWNER_MISMATCH

    refused = served.create("carol", owner="alice")
    assert refused["error_code"] == Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert [refused[name] for name in TIMES] == [-1] * 3
    assert (refused["principal_name"], refused["token_id"], refused["hmac"]) == ("alice", "", b"")
    assert refused["token_requester_principal_name"] == "carol"
    assert served.create("carol", owner="carol")["error_code"] == 0
    grant(served, "User:carol", "CreateTokens", ("User", "User:alice"))
    made = served.create("carol", owner="alice")
    assert (made["error_code"], made["principal_name"]) == (0, "alice")
    assert made["token_id"] in served.seen(served.by_password("alice"))
    assert made["token_id"] not in served.seen(of_carol)
    assert served.create("admin", owner="bob")["error_code"] == 0


def words_of(settings: dict[str, object]) -> list[str]:
    """The settings of a client as options of the command line."""
    of_client = {key: value for key, value in settings.items() if key != "bootstrap.servers"}
    options = (word for key, value in of_client.items() for word in ("-X", f"{key}={value}"))
    return ["-b", str(settings["bootstrap.servers"]), *options]


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_command_line_makes_shows_renews_and_ends_tokens(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    login = served.by_password("alice")
    given = words_of(login)
    made = ran(capsys, "token", "create", "--renewer", "User:bob", "--lifetime", "2h", *given)
    assert (made["owner"], made["renewers"]) == ("User:alice", ["User:bob"])
    by_token = {**login, "sasl.mechanism": SHA256, "sasl.jaas.config": made["sasl.jaas.config"]}
    assert Admin(by_token).topics() == {"orders": 1}
    listed = ran(capsys, "token", "list", "--owner", "User:alice", *given)
    [row] = [each for each in listed if each["token"] == made["token"]]
    assert row == {name: made[name] for name in row}
    assert made["hmac"] not in str(listed)
    renewed = ran(capsys, "token", "renew", made["token"], "--for", "1d", *given)
    assert renewed["expires"] == made["longest"]
    ran(capsys, "token", "expire", made["token"], *given)
    assert refusal(by_token)[0] == Code.SASL_AUTHENTICATION_FAILED
    with pytest.raises(SystemExit, match=r"^5$"):
        main(["token", "expire", made["token"], *given])


def test_a_broker_without_a_key_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, object] = {
        "listeners": f"{PROTOCOL}://127.0.0.1:0",
        "sasl.enabled.mechanisms": f"PLAIN,{SHA512}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas.PLAIN} required{USERS};",
    }
    with Broker(config=settings) as broker:
        found = Served(broker, broker.bootstrap, "")
        assert found.create("alice")["error_code"] == Code.DELEGATION_TOKEN_AUTH_DISABLED
        assert refusal(found.by_token(Token("t", bytes(64))))[0] == 58
        with pytest.raises(SystemExit):
            main(["token", "list", *words_of(found.by_password("alice"))])
    assert "delegation.token.secret.key" in capsys.readouterr().err


@pytest.mark.java
@pytest.mark.parametrize("version", ["4.3.0", pytest.param("3.9.1", marks=OF_KAFKA)])
def test_kafkas_tools_make_tokens_and_log_in_by_them(
    served: Served, tmp_path: Path, version: str
) -> None:
    if reason := kafka.missing():
        pytest.skip(reason)

    def file(name: str, settings: dict[str, object]) -> str:
        place = tmp_path / name
        lines = (f"{key}={value}" for key, value in settings.items() if "bootstrap" not in key)
        place.write_text("\n".join(lines))
        return str(place)

    of_alice = file("alice", served.by_password("alice"))
    with tools.tools(version) as run:

        def tool(script: str, config: str, *words: str) -> str:
            where = ("--bootstrap-server", served.at, "--command-config", config)
            code, said = run(script, *where, *words)
            assert code == 0, said
            return said

        script = "kafka-delegation-tokens"
        lasts = ("--max-life-time-period", str(HOUR_MS))
        said = tool(script, of_alice, "--create", *lasts, "--renewer-principal", "User:bob")
        [(token_id, hmac)] = [
            line.split()[:2]
            for line in said.splitlines()
            if line.strip().startswith(tuple(served.seen(served.by_password("alice"))))
        ]
        token = Token(token_id, base64.b64decode(hmac))
        of_token = file("token", served.by_token(token))
        assert "orders" in tool("kafka-topics", of_token, "--list").split()
        said = tool(script, of_alice, "--describe", "--owner-principal", "User:alice")
        assert f"{token_id} {hmac}" in " ".join(said.split())
        tool(script, of_alice, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
        tool(script, of_alice, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert refusal(served.by_token(token))[0] == Code.SASL_AUTHENTICATION_FAILED
