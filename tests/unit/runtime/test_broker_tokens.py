"""The tokens of a broker that logs in at others: granted at the start, and again in time."""

from __future__ import annotations

import json
import logging
import time
from base64 import urlsafe_b64encode
from itertools import count
from threading import Event

import pytest

from krust.errors import KrustError
from krust.runtime.broker_tokens import BrokerTokens
from krust.sasl import TokenIssuer
from tests import waiting
from tests.issuer_server import Asked, issuer_server

EXTENSIONS = [("cluster", "one")]


def issuer_of(at: str) -> TokenIssuer:
    return TokenIssuer(f"{at}/token", "id", "a-secret", None, EXTENSIONS, (0.1, 10.0))


def tokens_of(at: str) -> BrokerTokens:
    made = BrokerTokens(issuer_of(at))
    made.load()
    return made


def answered(token: str, **other: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"access_token": token, **other}).encode()


def test_a_token_is_there_at_the_start_and_replaced_after_four_fifths_of_its_time() -> None:
    numbers = count(1)

    def answer(_: Asked) -> tuple[int, dict[str, str], bytes]:
        return answered(f"t{next(numbers)}", expires_in=100)

    with issuer_server(answer) as at:
        tokens = tokens_of(at)
        begun_s = time.monotonic()
        assert tokens() == ("t1", EXTENSIONS)
        tokens.follow(begun_s + 60)
        assert tokens() == ("t1", EXTENSIONS)

        def is_second() -> bool:
            tokens.follow(begun_s + 80)
            return tokens() == ("t2", EXTENSIONS)

        waiting.until(is_second)
        tokens.follow(begun_s + 100)
        assert (tokens(), next(numbers)) == (("t2", EXTENSIONS), 3)


def test_an_issuer_that_fails_is_asked_again_and_the_old_token_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down: tuple[int, dict[str, str], bytes] = (500, {}, b"a canary")
    answers = iter([down, answered("t1", expires_in=1), down, answered("t2", expires_in=100)])
    with issuer_server(lambda _: next(answers)) as at, caplog.at_level(logging.ERROR):
        tokens = tokens_of(at)
        with pytest.raises(KrustError, match=r"has no token: the issuer .* answered 500"):
            tokens()
        times_s = count(time.monotonic() + 10, 10)

        def has(token: str) -> bool:
            tokens.follow(next(times_s))
            try:
                return tokens()[0] == token
            except KrustError:
                return False

        waiting.until(lambda: has("t1"))
        waiting.until(lambda: has("t2"))
    assert "no new token for logins at other brokers" in caplog.text
    assert "canary" not in caplog.text


def test_another_issuer_is_asked_at_once_and_what_the_one_before_still_answers_is_dropped() -> None:
    asked, goes_on = Event(), Event()
    old = iter(["t1", "t2"])

    def slow(_: Asked) -> tuple[int, dict[str, str], bytes]:
        token = next(old)
        if token == "t2":
            asked.set()
            assert goes_on.wait(waiting.WAIT_S)
        return answered(token, expires_in=100)

    with (
        issuer_server(slow) as at,
        issuer_server(lambda _: answered("of the other", expires_in=100)) as other,
    ):
        tokens = tokens_of(at)
        later_s = time.monotonic() + 90
        tokens.follow(later_s)
        assert asked.wait(waiting.WAIT_S)
        tokens.replace(issuer_of(other))
        goes_on.set()
        seen = []

        def is_of_the_other() -> bool:
            tokens.follow(later_s)
            seen.append(tokens()[0])
            return seen[-1] == "of the other"

        waiting.until(is_of_the_other)
        assert set(seen) == {"t1", "of the other"}


def test_a_token_whose_end_only_the_token_itself_names_is_accepted() -> None:
    claims = urlsafe_b64encode(json.dumps({"exp": time.time() + 100}).encode()).rstrip(b"=")
    token = f"head.{claims.decode()}.signature"
    with issuer_server(lambda _: answered(token)) as at:
        assert tokens_of(at)() == (token, EXTENSIONS)


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "a.e30.c", "a.W10.c"])
def test_a_token_that_nobody_says_the_end_of_is_refused(token: str) -> None:
    with (
        issuer_server(lambda _: answered(token)) as at,
        pytest.raises(KrustError, match="does not say when its token expires"),
    ):
        tokens_of(at)()
