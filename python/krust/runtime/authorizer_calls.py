"""Asks a user's authorizer for the ACLs of clients, and hands the core the answers.

The core says for which clients, keeps the answers and evaluates them
(`rust/src/broker/state/class_acls.rs`). So no request waits for Python once its client has an
answer. The authorizer runs in a process of its own, which starts with the broker; an object of this
process, as tests have, on a thread that is abandoned if it is late. If it raises,
returns no list of ACLs, is late or ends its process, nothing is allowed to that client, and krust
asks again: after `krust.authorizer.cache.ms`, or after a longer pause if the call was late, so that
one client does not delay the answers for the others for ever.
A failure is an error in the log, for each kind of failure once a minute.
Threads: the policy thread calls `load`, `start` and `close`. The calls have a thread.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from krust.authorizer import CLASS
from krust.controller.acls import EVERYONE, WILDCARD
from krust.controller.authorizers import AclClient, asked
from krust.errors import ConfigError
from krust.named_tuple import NamedTuple
from krust.plugin_process import PluginFailedError
from krust.plugin_worker import PluginLostError, PluginWorker
from krust.plugins import parameters
from krust.runtime import own_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust._krust import AclQuestions
    from krust.config import Config
    from krust.controller.authorizers import Authorizer

CACHE, TIMEOUT = "krust.authorizer.cache.ms", "krust.authorizer.timeout.ms"
_LATE_TIMES = 5
"""A client whose call was late is asked for again after this many such times."""
_SAY_S = 60.0
"""after which a failure of a kind is logged again"""
_TAKE_MS, _CLOSE_S = 60_000, 5.0

_log = logging.getLogger("krust.authorizer")


class AuthorizerWorker(Protocol):
    """Calls one authorizer: a `PluginWorker`, or `ObjectWorker`."""

    def warm(self) -> None:
        """Load the authorizer. PluginFailedError: it cannot be loaded."""

    def call(self, client: AclClient, seconds: float) -> Mapping[str, Any]:
        """The answer for a client. PluginFailedError: it raised; PluginLostError: it gave none."""

    def kill(self) -> None:
        """Make the current call and all later ones fail soon."""

    def close(self) -> None:
        """End all processes."""


class ObjectWorker:
    """Calls an authorizer object of this process."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def warm(self) -> None:
        """Nothing has to be loaded."""

    def call(self, client: AclClient, seconds: float) -> Mapping[str, Any]:
        """Call the authorizer on a new thread."""
        return own_thread.call("acls", lambda: asked(self._authorizer, client), seconds)

    def kill(self) -> None:
        """Nothing: a thread cannot be ended. A call ends at its deadline."""

    def close(self) -> None:
        """Nothing: abandoned threads go on."""


class _Failure(NamedTuple):
    """How a call fails, and what to do about it."""

    kind: str
    hint: str


_RAISED = _Failure("raised an exception", "mend it; ACLs that it cannot know it should leave out")
_WRONG = _Failure("returned no ACLs", "return a list of krust.ClientAcl")
_LATE = _Failure("gave no answer", f"answer from memory, or raise {TIMEOUT}")


class AuthorizerCalls:
    """The calls of one broker's authorizer: an object, or one with a name or import path."""

    def __init__(self, config: Config, name: str, authorizer: Authorizer | None = None) -> None:
        self._name = name
        self._retry_ms = config.whole(CACHE)
        self._late_ms = config.whole(TIMEOUT)
        self._worker: AuthorizerWorker
        if authorizer is not None:
            self._worker = ObjectWorker(authorizer)
        else:
            given = {key: setup.text for key, setup in config.given().items()}
            self._worker = PluginWorker(
                "krust.runtime.authorizer_worker", name, parameters(given, CLASS), pause_s=0.0
            )
        self._questions: AclQuestions | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._said: dict[_Failure, tuple[float, int]] = {}
        """when a failure was logged last, and how many were left out since"""

    @property
    def times(self) -> tuple[int, int]:
        """After how long it is asked again, and how long a call may take, in milliseconds."""
        return self._retry_ms, self._late_ms

    def load(self) -> None:
        """Start the process, which loads the authorizer. ConfigError: it cannot be loaded."""
        try:
            self._worker.warm()
        except PluginFailedError as error:
            raise ConfigError(
                f"{CLASS} = {self._name} cannot be used: {error}",
                hint="it has to be module:Class, with `name` and `acls(client)`",
            ) from None

    def start(self, questions: AclQuestions) -> None:
        """Answer the core's questions from now on."""
        self._questions = questions
        self._thread = threading.Thread(
            target=self._run, args=(questions,), name="krust-authorizer", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the calls and the process."""
        self._stopping = True
        if self._questions is not None:
            self._questions.close()
        self._worker.kill()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        else:
            self._worker.close()

    def _run(self, questions: AclQuestions) -> None:
        while (asked := questions.take(_TAKE_MS)) is not None:
            for number, *client in asked:
                try:
                    self._serve(questions, number, AclClient(*client))
                except Exception:
                    _log.exception("krust cannot ask its authorizer")
                    questions.refuse(number, self._retry_ms)
        self._worker.close()

    def _serve(self, questions: AclQuestions, number: int, client: AclClient) -> None:
        """Answer one question."""
        try:
            answer = self._worker.call(client, self._late_ms / 1000)
        except PluginLostError as error:
            self._say(_LATE, client, str(error))
            questions.refuse(number, max(self._retry_ms, _LATE_TIMES * self._late_ms))
            return
        except PluginFailedError as error:
            self._say(_RAISED, client, str(error))
            questions.refuse(number, self._retry_ms)
            return
        try:
            rows = [_row(*each) for each in answer["acls"]]
            questions.answer(number, rows)
        except (KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
            why = str(answer.get("wrong") or f"{type(error).__name__}: {error}")
            self._say(_WRONG, client, why)
            questions.refuse(number, self._retry_ms)

    def _say(self, failure: _Failure, client: AclClient, why: str) -> None:
        """Log a failure, unless one of its kind was logged within the last minute."""
        said_s, more = self._said.get(failure, (float("-inf"), 0))
        now_s = time.monotonic()
        if self._stopping or now_s - said_s < _SAY_S:
            self._said[failure] = (said_s, more + 1)
            return
        self._said[failure] = (now_s, 0)
        before = f" ({more} more since the last such line)" if more else ""
        _log.error(
            "authorizer %s %s for user %r from %s%s: nothing is allowed to it now (%s): %s",
            *(self._name, failure.kind, client.user, client.host, before, failure.hint, why),
        )


def _row(
    resource_type: int, pattern_type: int, name: str, operation: int, permission: int
) -> tuple[int, int, str, str, str, int, int]:
    """An ACL as the core takes it, for whoever the table is asked about."""
    numbers = int(operation), int(permission)
    return (int(resource_type), int(pattern_type), str(name), EVERYONE, WILDCARD, *numbers)
