"""Passwords of users and brokers are in no log, error, listing of settings or request of others."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

import krust
from krust import Admin, jaas
from krust.controller import scram
from krust.errors import KrustError
from krust.settings import BROKER, Type
from tests.serving import ServedBroker, environment

CANARY = "canary-7f3a"
KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
JAAS = f'{jaas.PLAIN} required username="b" password="{CANARY}-b" user_a="{CANARY}-a";'
REFUSED = {
    "zookeeper.ssl.truststore.password",
}
"""secrets that a file may not have, because nothing would come of them"""
OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "delegation.token.secret.key": f"{CANARY}-key",
    KEY: JAAS,
}


def client(bootstrap: str, mechanism: str, password: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{jaas.SCRAM} required username="a" password="{password}";',
    }


def test_passwords_are_in_no_log_and_no_answer(tmp_path: Path) -> None:
    told: list[str] = []
    flags = ("--log-level", "debug")
    with ServedBroker(tmp_path / "data", *flags, port=None, options=dict(OPTIONS)) as broker:
        known = client(broker.bootstrap, "PLAIN", f"{CANARY}-a")
        with Admin(known) as admin:
            salted = scram.salted_password("SCRAM-SHA-256", f"{CANARY}-s", b"salt", 4096)
            upsertion = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"salt"}
            message = {"deletions": [], "upsertions": [{**upsertion, "salted_password": salted}]}
            told.append(repr(admin.request("AlterUserScramCredentials", message)))
            told.append(repr(admin.request("DescribeUserScramCredentials", {"users": None})))
            node = [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]
            asked = {"resources": node, "include_synonyms": True, "include_documentation": True}
            told.append(repr(admin.request("DescribeConfigs", asked)))
            asked = {"renewers": [], "max_lifetime_ms": -1}
            owner = {"owner_principal_type": None, "owner_principal_name": None}
            token = admin.request("CreateDelegationToken", {**asked, **owner})["hmac"]
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            with pytest.raises(KrustError) as refused:
                Admin(client(broker.bootstrap, mechanism, f"{CANARY}-wrong")).topics()
            told.append(f"{refused.value} {refused.value.hint} {refused.value!r}")
        with Admin(client(broker.bootstrap, "SCRAM-SHA-256", f"{CANARY}-s")) as admin:
            told.append(repr(admin.topics()))
    told.append(broker.stderr())
    assert "a login failed" in told[-1]
    assert " DEBUG " in told[-1]
    password = base64.b64encode(token).decode()
    secrets = (CANARY, salted.hex(), repr(salted), token.hex(), repr(token)[2:-1], password)
    assert [text for text in told if any(each in text for each in secrets)] == []


def test_a_listing_of_the_settings_hides_passwords() -> None:
    secrets = {name for name, each in BROKER.items() if each.type is Type.PASSWORD}
    given = OPTIONS | dict.fromkeys(secrets - REFUSED, CANARY)
    options = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
    command = [sys.executable, "-m", "krust", "serve", *options, "--print-config"]
    run = subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment())
    said = run.stdout + run.stderr
    assert [name for name in given if name.encode() not in said] == []
    assert CANARY.encode() not in said


@pytest.mark.parametrize("text", [f'{jaas.PLAIN} required user_a="{CANARY}', f"{CANARY};"])
def test_settings_that_are_refused_do_not_show_passwords(text: str) -> None:
    with pytest.raises(KrustError) as refused:
        krust.Broker(config={**OPTIONS, KEY: text})
    assert CANARY not in f"{refused.value} {refused.value.hint} {refused.value!r}"
    with pytest.raises(KrustError) as refused:
        Admin({"bootstrap.servers": "127.0.0.1:1", "sasl.jaas.config": text})
    assert CANARY not in f"{refused.value} {refused.value.hint} {refused.value!r}"
