"""The keys of tokens: read from files, fetched from issuers; the core is a list of what it got."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from krust._krust import Server
from krust.errors import ConfigError
from krust.runtime.token_keys import TokenKeys
from krust.sasl import KeySource
from tests import waiting
from tests.issuer_server import Asked, issuer_server

GOOD, BETTER = b'{"keys": 1}', b'{"keys": 2}'


class Core:
    """Takes keys as the core does."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.missing_token_keys = 0

    def set_token_keys(self, _: str, keys: bytes) -> int:
        if not keys.startswith(b"{"):
            raise ConfigError("it is no JSON object")
        self.keys.append(keys)
        return 1


def keys_at(url: str) -> tuple[TokenKeys, Core, Callable[[float], None]]:
    core = Core()
    keys = TokenKeys({"A": KeySource(url, 3600.0, (0.1, 10.0))})
    keys.load(cast("Server", core))
    return keys, core, lambda now_s: keys.follow(cast("Server", core), now_s)


def test_a_file_is_read_again_when_it_changes_and_kept_when_it_is_no_key_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(GOOD)
    _, core, follow = keys_at(file.as_uri())
    follow(10.0)
    assert core.keys == [GOOD]
    new = tmp_path / "new"
    new.write_bytes(BETTER)
    new.rename(file)
    follow(11.5)
    assert core.keys == [GOOD, BETTER]
    with caplog.at_level(logging.ERROR):
        for now_s, content in ((100.0, b"half"), (102.0, b"other half"), (170.0, b"none")):
            file.write_bytes(content)
            follow(now_s)
        file.unlink()
        follow(172.0)
    assert core.keys == [GOOD, BETTER]
    assert len(caplog.records) == 2, "once a minute"


def test_a_file_that_is_missing_or_too_large_at_the_start_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match="No such file"):
        keys_at(file.as_uri())
    file.write_bytes(b"{" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="is larger than"):
        keys_at(file.as_uri())


def test_an_issuer_is_asked_at_the_start_at_its_time_and_after_unknown_keys() -> None:
    asked: list[str] = []

    def answer(request: Asked) -> tuple[int, dict[str, str], bytes]:
        asked.append(request.path)
        return 200, {}, GOOD

    with issuer_server(answer) as at:
        _, core, follow = keys_at(f"{at}/keys")
        assert (core.keys, asked) == ([GOOD], ["/keys"])
        times_s = count(1_000_000_000, 2)

        def has(count: int) -> bool:
            follow(next(times_s))
            return len(core.keys) == count

        waiting.until(lambda: has(2))
        assert len(asked) == 2
        core.missing_token_keys = 1
        waiting.until(lambda: has(3))
        assert len(asked) == 3


def test_a_dead_issuer_keeps_the_keys_and_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bodies = iter([(200, GOOD), (500, b"secret"), (200, b"no json"), (200, BETTER)])
    asked: list[str] = []

    def answer(request: Asked) -> tuple[int, dict[str, str], bytes]:
        asked.append(request.path)
        status, body = next(bodies, (200, BETTER))
        return status, {}, body

    with issuer_server(answer) as at, caplog.at_level(logging.ERROR):
        _, core, follow = keys_at(f"{at}/keys")
        now_s = [1e9]

        def recovered() -> bool:
            now_s[0] += 5
            follow(now_s[0])
            return BETTER in core.keys

        waiting.until(recovered)
    assert core.keys[:2] == [GOOD, BETTER]
    assert "answered 500" in caplog.text
    assert "secret" not in caplog.text


def test_an_issuer_that_does_not_answer_at_the_start_does_not_stop_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        _, core, _ = keys_at("http://127.0.0.1:1/keys")
    assert core.keys == []
    assert "keeps the keys of its tokens: http://127.0.0.1:1/keys" in caplog.text


def test_a_redirect_is_not_followed_to_an_address_that_nobody_allowed() -> None:
    asked: list[str] = []

    def answer(request: Asked) -> tuple[int, dict[str, str], bytes]:
        asked.append(request.path)
        return (302, {"Location": "/other"}, b"") if request.path == "/keys" else (200, {}, GOOD)

    with issuer_server(answer) as at:
        _, core, _ = keys_at(f"{at}/keys")
    assert (core.keys, asked) == ([], ["/keys"])
