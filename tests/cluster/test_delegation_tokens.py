"""Delegation tokens of Kafka and krust in one cluster: each accepts the other's, and the nodes in
ZooKeeper are the same, byte for byte."""

from __future__ import annotations

import base64
import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

from krust import Admin, jaas
from krust.errors import Code, KafkaError
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.on_demand import OF_KAFKA
from tests.peers.zookeeper import LONG_MS
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.waiting import until

pytestmark = OF_KAFKA

KAFKA, KRUST = 1, 2
SCRAM = "SCRAM-SHA-512"
SECRET = "secret"
OWNER = "al ice~*"
USERS = f'{jaas.PLAIN} required user_alice="{SECRET}" user_bob="{SECRET}";'
TOKENS, CHANGES = "/delegation_token/tokens", "/delegation_token/token_changes"


class Place(NamedTuple):
    """Where users log in at a broker."""

    at: str

    def admin(self, user: str = "alice") -> Admin:
        login = f'{jaas.PLAIN} required username="{user}" password="{SECRET}";'
        return Admin(self._settings("PLAIN", login))

    def lets_in(self, token: dict[str, Any]) -> bool:
        """Whether a token logs in there."""
        password = base64.b64encode(token["hmac"]).decode()
        words = f'{jaas.SCRAM} required username="{token["token_id"]}" password="{password}"'
        try:
            Admin(self._settings(SCRAM, f'{words} tokenauth="true";')).topics()
        except KafkaError as refused:
            if refused.code != Code.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return True

    def refuses(self, token: dict[str, Any]) -> bool:
        return not self.lets_in(token)

    def _settings(self, mechanism: str, login: str) -> dict[str, object]:
        given = {"bootstrap.servers": self.at, "security.protocol": "SASL_PLAINTEXT"}
        return {**given, "sasl.mechanism": mechanism, "sasl.jaas.config": login}


def settings(node: int, connect: str) -> dict[str, object]:
    [port] = free_ports(1)
    name = "listener.name.logins"
    return {
        "broker.id": node,
        "listeners": f"PLAINTEXT://{{bootstrap}},LOGINS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        f"{name}.plain.sasl.jaas.config": USERS,
        f"{name}.scram-sha-512.sasl.jaas.config": f"{jaas.SCRAM} required;",
        "delegation.token.secret.key": "a key of both",
        "delegation.token.expiry.check.interval.ms": 1000,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": LONG_MS,
        "offsets.topic.replication.factor": 1,
    }


def create(place: Place, *renewers: str, owner: str | None = None) -> dict[str, Any]:
    body = {
        "owner_principal_type": "User" if owner is not None else None,
        "owner_principal_name": owner,
        "renewers": [{"principal_type": "User", "principal_name": each} for each in renewers],
        "max_lifetime_ms": 86_400_000,
    }
    with place.admin() as admin:
        made = admin.request("CreateDelegationToken", body)
    assert made["error_code"] == 0, made
    return made


def changed(place: Place, api: str, token: dict[str, Any], ms: int, user: str = "alice") -> int:
    name = "renew_period_ms" if api == "Renew" else "expiry_time_period_ms"
    with place.admin(user) as admin:
        body = {"hmac": token["hmac"], name: ms}
        return int(admin.request(f"{api}DelegationToken", body)["error_code"])


def is_gone(place: Place, token: dict[str, Any]) -> bool:
    return changed(place, "Renew", token, 1) == Code.DELEGATION_TOKEN_NOT_FOUND


def masked(data: bytes, token_id: str) -> bytes:
    """The bytes of a node without what differs between any two tokens."""
    return re.sub(rb"\d{13}", b"TIME", data.replace(token_id.encode(), b"ID"))


@pytest.mark.parametrize("first", [KAFKA, KRUST])
def test_krust_and_kafka_accept_each_others_tokens_and_write_the_same(
    shared: Cluster, tmp_path: Path, first: int
) -> None:
    if reason := kafka.missing():
        pytest.skip(reason)
    connect = f"{shared.connect}/tokens-{first}"
    given = {node: settings(node, connect) for node in (KAFKA, KRUST)}
    tree = KazooClient(connect)
    with ExitStack() as stack:
        for node in (first, KAFKA + KRUST - first):
            if node == KAFKA:
                folder = tmp_path / "kafka"
                stack.enter_context(kafka.running("3.9.1", folder, given[node], zookeeper=connect))
            else:
                names = str(given[node]["listeners"]).replace("{bootstrap}", "127.0.0.1:0")
                own = {**given[node], "listeners": names}
                stack.enter_context(ServedBroker(tmp_path / "krust", port=None, options=own))
        tree.start(timeout=60)
        stack.callback(tree.close)
        stack.callback(tree.stop)
        places = [Place(str(each["listeners"]).rpartition("//")[2]) for each in given.values()]
        _each_accepts_the_others(places)
        _nodes_are_the_same(places, tree)


def _each_accepts_the_others(places: list[Place]) -> None:
    for here, there in (places, places[::-1]):
        token = create(here, "bob")
        for place in places:
            assert until(partial(place.lets_in, token))
        assert changed(there, "Renew", token, 3_600_000, "bob") == 0
        assert changed(here, "Expire", token, -1) == 0
        for place in places:
            assert until(partial(place.refuses, token))
        gone = create(there)
        for place in places:
            assert until(partial(place.lets_in, gone))
        assert changed(here, "Expire", gone, 0) == 0
        assert until(partial(is_gone, here, gone))


def _nodes_are_the_same(places: list[Place], tree: KazooClient) -> None:
    until(lambda: not tree.get_children(TOKENS))
    seen = set(tree.get_children(CHANGES))
    for renewers, owner in (((), None), (("bob", "a~ *:/ü"), OWNER)):
        written, told = [], []
        for place in places:
            token_id = create(place, *renewers, owner=owner)["token_id"]
            written.append(masked(tree.get(f"{TOKENS}/{token_id}")[0], token_id))
            [name] = set(tree.get_children(CHANGES)) - seen
            seen.add(name)
            assert re.fullmatch(r"token_change_\d{10}", name)
            told.append(masked(tree.get(f"{CHANGES}/{name}")[0], token_id))
        assert written[0] == written[1]
        assert told == [b"ID", b"ID"]
