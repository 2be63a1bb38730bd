"""Errors and hints of clients for settings that they do not have."""

from __future__ import annotations

import pytest

from krust import jaas
from krust.clients import options


@pytest.mark.parametrize(
    "given",
    [
        {"sasl.jaas.config": f'{jaas.PLAIN} required username="al" password="p;\\"=";'},
        {"sasl.mechanisms": "PLAIN", "sasl.username": "al", "sasl.password": 'p;"='},
        {"sasl.plain.username": "al", "sasl.plain.password": 'p;"='},
    ],
)
def test_logins_of_other_clients_have_librdkafkas_names(given: dict[str, str]) -> None:
    found = options.read(options.COMMON, {"bootstrap.servers": "a:1", **given}, {})
    assert (found["sasl.username"], found["sasl.password"]) == ("al", 'p;"=')
    assert "sasl.jaas.config" not in found


def test_the_protocols_that_krust_has_are_accepted_in_any_case() -> None:
    for protocol in ("plaintext", "SSL"):
        given = {"bootstrap_servers": "a:1", "security_protocol": protocol}
        assert options.read(options.COMMON, {}, given)["security.protocol"] == protocol


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"ssl.ca.location": "x"}, "ssl.truststore.location"),
        ({"ssl.key.pem": "x"}, "ssl.keystore.key"),
        ({"ssl.certificate.pem": "x"}, "ssl.keystore.certificate.chain"),
        ({"ssl_cafile": "x"}, "ssl.truststore.location"),
        ({"ssl_certfile": "x"}, "ssl.certificate.location"),
        ({"ssl_keyfile": "x"}, "ssl.key.location"),
        ({"ssl_password": "x"}, "ssl.key.password"),
    ],
)
def test_tls_settings_of_other_clients_have_kafkas_names(given: dict[str, str], key: str) -> None:
    assert options.read(options.COMMON, {"bootstrap.servers": "a:1"}, given)[key] == "x"


@pytest.mark.parametrize(("option", "told"), [("TRUE", "true"), ("false", None), ("1", None)])
def test_a_jaas_string_may_name_a_delegation_token(option: str, told: str | None) -> None:
    login = f'{jaas.SCRAM} required username="id" password="hmac" tokenauth="{option}";'
    given = {"bootstrap.servers": "a:1", "sasl.jaas.config": login}
    found = options.core(options.read(options.COMMON, given, {}), options.COMMON)
    names = ("sasl.username", "sasl.password", "krust.sasl.tokenauth")
    assert [found.get(name) for name in names] == ["id", "hmac", told]
