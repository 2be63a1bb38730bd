"""Where clients get their tokens from."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from krust.clients import oauth, options
from krust.clients.oauth import Tokens
from krust.errors import ConfigError, KrustError
from tests.issuer_server import Asked, issuer_server


def read(**given: object) -> dict[str, object]:
    return options.read(options.COMMON, {"bootstrap.servers": "x:1"}, given)


def token_of(**given: object) -> tuple[str, list[tuple[str, str]]]:
    found = read(**given)[oauth.TOKEN]
    assert isinstance(found, Tokens)
    return found()


class Provider:
    """As kafka-python's."""

    def token(self) -> str:
        return "of a provider"

    def extensions(self) -> dict[str, str]:
        return {"traceId": "1"}


def test_a_token_is_given_as_text_function_or_provider_under_other_clients_names() -> None:
    assert token_of(sasl_oauthbearer_token="text") == ("text", [])
    assert token_of(sasl_oauthbearer_token=lambda: ("made", 9e9)) == ("made", [])
    assert token_of(sasl_oauth_token_provider=Provider()) == ("of a provider", [("traceId", "1")])
    named = token_of(
        oauth_cb=lambda text: (text, 9e9, "me", {"a": "b"}), sasl_oauthbearer_config="c"
    )
    assert named == ("c", [("a", "b")])
    given = options.read(options.COMMON, {"bootstrap.servers": "x:1", "oauth_cb": lambda: "k"}, {})
    assert isinstance(given[oauth.TOKEN], Tokens)
    assert "sasl.oauthbearer.config" not in read(sasl_oauthbearer_config="unused")


def test_a_token_is_used_for_four_fifths_of_its_time() -> None:
    now_s, asked = [1000.0], [0]

    def ask() -> tuple[str, float]:
        asked[0] += 1
        return f"t{asked[0]}", now_s[0] + 100

    tokens = Tokens(ask, lambda: now_s[0])
    found = []
    for now_s[0] in (1000.0, 1079.0, 1080.0, 1081.0):
        found.append(tokens()[0])
    assert found == ["t1", "t1", "t2", "t2"]


def test_a_token_without_an_end_is_asked_for_at_each_login() -> None:
    asked = iter(["t1", "t2"])
    tokens = Tokens(lambda: next(asked))
    assert (tokens()[0], tokens()[0]) == ("t1", "t2")


@pytest.mark.parametrize("given", [None, 1, (None, 1), ("t", "soon"), (), b"t"])
def test_what_is_no_token_is_refused(given: object) -> None:
    with pytest.raises(KrustError, match="returned no"):
        Tokens(lambda: given)()


def test_settings_that_name_no_source_are_refused() -> None:
    with pytest.raises(ConfigError, match="neither a token nor a function"):
        read(sasl_oauthbearer_token=1)
    with pytest.raises(ConfigError, match="is no address of an issuer"):
        read(sasl_oauthbearer_token_endpoint_url="file:///etc/passwd")
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.client\.id"):
        read(sasl_oauthbearer_token_endpoint_url="https://x/")


def test_an_issuer_grants_a_token_for_the_clients_credentials() -> None:
    seen: list[Asked] = []

    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        seen.append(asked)
        return 200, {}, json.dumps({"access_token": "granted", "expires_in": 60}).encode()

    login = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="a secret" scope="s";'
    )
    with issuer_server(answer) as at:
        url = f"{at}/token"
        found = read(sasl_oauthbearer_token_endpoint_url=url, sasl_jaas_config=login)[oauth.TOKEN]
        assert isinstance(found, Tokens)
        assert [found(), found()] == [("granted", [])] * 2
    basic = b64encode(b"me:a+secret").decode()
    assert seen == [Asked("/token", f"Basic {basic}", "grant_type=client_credentials&scope=s")]


@pytest.mark.parametrize("answer", [(500, b"canary"), (200, b"canary"), (200, b'["canary"]')])
def test_what_an_issuer_answers_is_not_shown(answer: tuple[int, bytes]) -> None:
    with issuer_server(lambda _: (answer[0], {}, answer[1])) as at:
        tokens = read(
            sasl_oauthbearer_token_endpoint_url=at,
            sasl_oauthbearer_client_id="me",
            sasl_oauthbearer_client_secret="canary",
        )[oauth.TOKEN]
        assert isinstance(tokens, Tokens)
        with pytest.raises(KrustError, match="the issuer") as refused:
            tokens()
    assert "canary" not in str(refused.value)
