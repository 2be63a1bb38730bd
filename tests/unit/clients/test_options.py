"""Errors and hints of clients for settings that they do not have."""

from __future__ import annotations

import pytest

from krust.clients import options
from krust.errors import ConfigError


def test_the_hint_of_a_protocol_that_krust_does_not_have_yet_says_so() -> None:
    given = {"bootstrap_servers": "a:1", "security_protocol": "SASL_SSL"}
    with pytest.raises(ConfigError) as refused:
        options.read(options.COMMON, {}, given)
    assert "no TLS and no SASL yet" in str(refused.value.hint)


def test_the_protocol_that_krust_has_is_accepted_in_any_case() -> None:
    given = {"bootstrap_servers": "a:1", "security_protocol": "plaintext"}
    assert options.read(options.COMMON, {}, given)["security.protocol"] == "plaintext"
