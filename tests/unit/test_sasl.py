"""How the settings say that brokers log in at each other."""

from __future__ import annotations

import pytest

from krust import jaas
from krust.errors import ConfigError
from krust.sasl import Login, TokenIssuer, inter_broker_login

KEY = "listener.name.b.oauthbearer.sasl.jaas.config"
URL = "https://issuer.example/token"
SETTINGS = {
    "listeners": "B://:9092",
    "listener.security.protocol.map": "B:SASL_PLAINTEXT",
    "inter.broker.listener.name": "B",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": URL,
    "krust.sasl.oauthbearer.allowed.urls": f"https://keys.example, {URL}",
    "sasl.login.retry.backoff.ms": "100",
    "sasl.login.retry.backoff.max.ms": "10000",
    KEY: f'{jaas.OAUTHBEARER} required clientId="me" clientSecret="a-secret" scope="s" '
    'extension_cluster="one";',
}


def test_brokers_get_tokens_by_the_options_that_kafka_has_for_them() -> None:
    login = inter_broker_login(SETTINGS.get)
    issuer = TokenIssuer(URL, "me", "a-secret", "s", [("cluster", "one")], (0.1, 10.0))
    assert login == Login("OAUTHBEARER", issuer=issuer)
    assert "a-secret" not in repr(login) + repr(issuer)
    own = {"listener.name.b.oauthbearer.sasl.oauthbearer.token.endpoint.url": f"{URL}/b"}
    own |= {"krust.sasl.oauthbearer.allowed.urls": f"{URL}/b"}
    found = inter_broker_login({**SETTINGS, **own}.get)
    assert found is not None
    assert found.issuer is not None
    assert found.issuer.url == f"{URL}/b"


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "is no address of an issuer"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///token"}, "is no address of an issuer"),
        ({"krust.sasl.oauthbearer.allowed.urls": ""}, "does not name https://issuer"),
        ({KEY: ""}, "is no JAAS string"),
        ({KEY: f'{jaas.OAUTHBEARER} required clientId="me";'}, "has no clientId and clientSecret"),
        ({"sasl.login.retry.backoff.ms": "soon"}, "is no number from 0 up"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "which listener B does not offer"),
    ],
)
def test_what_is_missing_for_a_login_by_tokens_is_named(
    changed: dict[str, str], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong) as refused:
        inter_broker_login({**SETTINGS, **changed}.get)
    assert refused.value.hint
    assert "a-secret" not in f"{refused.value} {refused.value.hint}"
