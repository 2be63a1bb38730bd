"""A user's authorizer, and every way in which it can fail."""

from __future__ import annotations

import logging
import queue
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from krust import plugin_worker
from krust.config import load
from krust.errors import ConfigError
from krust.plugin_worker import PluginWorker
from krust.runtime import authorizer_calls
from krust.runtime.authorizer_calls import AuthorizerCalls
from tests.leftovers import nothing_left

if TYPE_CHECKING:
    from krust._krust import AclQuestions

MODULE = '''
import os, time
from krust import ClientAcl

class Mine:
    """Every user has a topic."""
    name = "mine"
    suffix = ""

    def configure(self, configs):
        self.suffix = configs.get("suffix", "")

    def acls(self, client):
        print("not for the broker's ears")
        match client.user:
            case "raises":
                raise LookupError("planted")
            case "hangs":
                time.sleep(3600)
            case "dies":
                os._exit(7)
            case "wrong":
                return [client]
            case "none":
                return None
            case "word":
                return [ClientAcl.allow("topik", "a", "read")]
        return [ClientAcl.allow("topic", f"{client.user}{self.suffix}@{client.host}", "read")]

class NoAuthorizer:
    name = "none"
'''
CALM_MS, HANGS_MS, CACHE_MS = 60_000, 4_000, 700
PATIENCE_S = 90


class Double:
    """A core with questions, which keeps the answers."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[list[tuple[int, str, str, str]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def ask(self, *users: str) -> list[Any]:
        """The answers for users: the rows, or for how long the class is not asked."""
        self._asked.put([(number, user, "::1", "SASL") for number, user in enumerate(users)])
        found = [self._answers.get(timeout=PATIENCE_S) for _ in users]
        assert [number for number, _ in found] == list(range(len(users)))
        return [answer for _, answer in found]

    def take(self, timeout_ms: int) -> list[tuple[int, str, str, str]] | None:
        return self._asked.get(timeout=max(timeout_ms / 1000, PATIENCE_S))

    def answer(self, number: int, rows: list[Any]) -> None:
        if rows[0][2].startswith("refused"):
            raise ConfigError("no ACL: type 9, 9")
        self._answers.put((number, rows))

    def refuse(self, number: int, retry_ms: int) -> None:
        self._answers.put((number, retry_ms))

    def close(self) -> None:
        self._asked.put(None)


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "authorizers_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("GRACE_S", "START_S"):
        monkeypatch.setattr(plugin_worker, name, CALM_MS / 1000)


def calls(name: str = "Mine", more: dict[str, object] | None = None) -> AuthorizerCalls:
    given: dict[str, object] = {
        "authorizer.class.name": f"authorizers_of_mine:{name}",
        "krust.authorizer.cache.ms": CACHE_MS,
        "krust.authorizer.timeout.ms": CALM_MS,
    }
    config = load(options={**given, **(more or {})})
    return AuthorizerCalls(config, f"authorizers_of_mine:{name}")


@contextmanager
def asked(**more: object) -> Iterator[Double]:
    one, core = calls(more=more), Double()
    try:
        one.load()
        one.start(cast("AclQuestions", core))
        yield core
    finally:
        one.close()


def read(topic: str) -> list[Any]:
    return [(2, 3, topic, "User:*", "*", 3, 3)]


def test_a_client_gets_the_acls_that_the_class_returns() -> None:
    with asked() as core:
        assert core.ask("ann", "bob") == [read("ann@::1"), read("bob@::1")]


def test_the_class_has_parameters() -> None:
    with asked(**{"authorizer.class.name.mine.suffix": "-x"}) as core:
        assert core.ask("ann") == [read("ann-x@::1")]


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("raises", "raised an exception for user 'raises' from ::1.*LookupError: planted"),
        ("word", "raised an exception.*resource type must be Topic.*not 'topik'"),
        ("wrong", "returned no ACLs.*in its list, which is no ClientAcl"),
        ("none", "returned no ACLs.*acls.. returned None"),
        ("refused", "returned no ACLs.*ConfigError: no ACL"),
    ],
)
def test_a_failure_allows_nothing_is_logged_and_harms_no_other_client(
    user: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "krust.authorizer"), asked() as core:
        failed, good = core.ask(user, "ann")
        assert (failed, good) == (CACHE_MS, read("ann@::1"))
    [record] = caplog.records
    assert "authorizer authorizers_of_mine:Mine" in record.message
    assert re.search(says, record.message, re.DOTALL)


@pytest.mark.parametrize(("user", "says"), [("hangs", "in acls"), ("dies", "exit code 7")])
def test_a_client_without_an_answer_is_not_asked_for_soon_and_others_are(
    user: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"krust.authorizer.timeout.ms": HANGS_MS}
    with caplog.at_level(logging.ERROR, "krust.authorizer"), asked(**more) as core:
        assert core.ask(user, user, "ann") == [5 * HANGS_MS, 5 * HANGS_MS, read("ann@::1")]
    [record] = caplog.records
    assert "gave no answer" in record.message
    assert "krust.authorizer.timeout.ms" in record.message
    assert says in record.message


def test_a_failure_of_a_kind_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.ERROR, "krust.authorizer"), asked() as core:
        core.ask("raises", "raises", "raises", "none")
        assert len(caplog.records) == 2
        monkeypatch.setattr(authorizer_calls, "_SAY_S", 0)
        core.ask("raises")
    assert "(2 more since the last such line)" in caplog.records[-1].message


def test_a_process_that_was_killed_is_replaced_without_a_failure() -> None:
    one, core = calls(), Double()
    one.load()
    one.start(cast("AclQuestions", core))
    assert core.ask("ann") == [read("ann@::1")]
    assert isinstance(one._worker, PluginWorker)
    child = one._worker._child
    assert child is not None
    child.kill()
    child.wait()
    assert core.ask("ann") == [read("ann@::1")]
    one.close()


@pytest.mark.parametrize(
    ("name", "says"), [("Missing", "has no Missing"), ("NoAuthorizer", "is no authorizer")]
)
def test_a_class_that_cannot_be_used_is_an_error_of_its_setting(name: str, says: str) -> None:
    one = calls(name)
    with pytest.raises(ConfigError, match=f"authorizer.class.name = .*{name} .*{says}"):
        one.load()
    one.close()


def test_the_end_leaves_no_process_thread_or_descriptor() -> None:
    with nothing_left():
        with asked() as core:
            core.ask("ann")
        calls().close()
        one = calls()
        one.load()
        one.close()
