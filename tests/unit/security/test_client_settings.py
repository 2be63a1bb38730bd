"""The settings of clients are texts that each client reads back to the same user and password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust import Security, jaas, properties
from krust.clients import options
from krust.clients.keywords import CommonSettings, keys
from krust.errors import ConfigError
from krust.security.client_settings import ClientLogin, dotted, java, keywords, settings

LOGIN = ClientLogin("localhost:9092", "alice", 'open; "sésame"= \\ ,😀', Path("/ca.pem"))


@given(st.dictionaries(st.sampled_from("abc"), st.text(st.characters(blacklist_categories=["Cs"]))))
def test_a_properties_file_is_read_as_it_was_written(pairs: dict[str, str]) -> None:
    kept = {name: text.rstrip() for name, text in pairs.items()}
    text = properties.written(kept)
    assert text.isascii()
    assert properties.properties(text) == kept


@given(st.text())
def test_an_option_of_a_jaas_string_is_read_as_it_was_written(text: str) -> None:
    login = jaas.parse(f"{jaas.SCRAM} required password={jaas.quoted(text)} username=a;")
    assert login.options == {"password": text, "username": "a"}


@pytest.mark.parametrize("form", [dotted, java, keywords])
def test_krusts_own_clients_read_every_form(form: object) -> None:
    assert callable(form)
    given = form(LOGIN)
    more = given if form is keywords else {}
    found = options.read(keys(CommonSettings), None if more else given, more)
    assert (found["sasl.username"], found["sasl.password"]) == (LOGIN.user, LOGIN.password)
    assert found["ssl.truststore.location"] == "/ca.pem"
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")


def test_an_unknown_client_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"client must be krust, .* or java, not 'pulsar'"):
        settings(LOGIN, "pulsar")


@pytest.mark.parametrize("name", ["", "a b", "brokers", "client", "a/b", "é", "-a", "a" * 65])
def test_a_name_that_no_file_or_jaas_string_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Security(users={name: None})


@pytest.mark.parametrize("password", ["", " a", "a ", "a\nb", "\t"])
def test_a_password_that_no_configuration_file_can_have_is_refused(password: str) -> None:
    with pytest.raises(ConfigError, match="the password of a"):
        Security(users={"a": password})


def test_nothing_that_is_printed_by_accident_has_a_password() -> None:
    assert "sésame" not in repr(LOGIN) + repr(Security(users={"a": "sésame"}))
