"""The keys that sign OAUTHBEARER's tokens: read from files, or fetched from an issuer.

A file is read when it changes, within two seconds; an issuer is asked every `refresh.ms`, and soon
after a token names a key that is not known. What cannot be read leaves the keys as they were, and
is logged at most once a minute. An issuer is asked on a thread of its own, at most one question at
a time, so the policy thread never waits for it. A redirect is not followed: it would lead to an
address that `krust.sasl.oauthbearer.allowed.urls` does not name.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from krust import issuers
from krust.errors import ConfigError
from krust.runtime.file_state import file_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust._krust import Server
    from krust.runtime.file_state import FileState
    from krust.sasl import KeySource

_LOOK_S = 1.0
"""how often files are compared with what was read of them"""
_MISSING_S = 10.0
"""the least time between two questions because of tokens with unknown keys"""
_WARN_S = 60.0

_log = logging.getLogger("krust")


class TokenKeys:
    """The keys of the listeners with OAUTHBEARER.

    sources  where they are, by the listeners' names
    """

    def __init__(self, sources: Mapping[str, KeySource]) -> None:
        self._files = {
            name: _KeyFile(name, Path(unquote(urlsplit(source.url).path)))
            for name, source in sources.items()
            if source.url.startswith("file:")
        }
        self._issuers = {
            name: _Issuer(name, source)
            for name, source in sources.items()
            if name not in self._files
        }
        self._due_s = 0.0

    def load(self, server: Server) -> None:
        """Hand the core the keys, before the first login.

        An issuer that does not answer is asked again later: a broker starts without it.
        raises  ConfigError: a file has no keys
        """
        for file in self._files.values():
            file.load(server)
        now_s = time.monotonic()
        for issuer in self._issuers.values():
            issuer.ask(now_s).join(issuers.TIMEOUT_S)
            issuer.use(server, now_s)

    def follow(self, server: Server, now_s: float) -> None:
        """Hand the core keys that have changed."""
        if not (self._files or self._issuers) or now_s < self._due_s:
            return
        self._due_s = now_s + _LOOK_S
        for file in self._files.values():
            file.follow(server, now_s)
        missing = server.missing_token_keys
        for issuer in self._issuers.values():
            issuer.use(server, now_s)
            if issuer.is_due(now_s, missing):
                issuer.ask(now_s)


class _Warnings:
    """Logs what is wrong with a source of keys, at most once a minute."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._quiet_until_s = 0.0

    def failed(self, why: object, now_s: float) -> None:
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _WARN_S
            _log.error("listener %s keeps the keys of its tokens: %s", self._listener, why)


class _KeyFile:
    """A file with keys, `file:///PATH`."""

    def __init__(self, listener: str, path: Path) -> None:
        self._listener, self._path = listener, path
        self._read: FileState | None = None
        self._warnings = _Warnings(listener)

    def load(self, server: Server) -> None:
        self._read = file_state(self._path)
        try:
            with self._path.open("rb") as file:
                keys = file.read(issuers.MAX_BYTES + 1)
        except OSError as error:
            raise _unusable(self._listener, f"{self._path}: {error.strerror}") from None
        if len(keys) > issuers.MAX_BYTES:
            raise _unusable(
                self._listener, f"{self._path} is larger than {issuers.MAX_BYTES} bytes"
            )
        try:
            server.set_token_keys(self._listener, keys)
        except ConfigError as error:
            raise _unusable(self._listener, f"{self._path}: {error}") from None

    def follow(self, server: Server, now_s: float) -> None:
        if file_state(self._path) == self._read:
            return
        try:
            self.load(server)
        except ConfigError as error:
            self._warnings.failed(error, now_s)
        else:
            _log.info("listener %s checks tokens with new keys", self._listener)


class _Issuer:
    """An address of keys, `https://` or `http://`."""

    def __init__(self, listener: str, source: KeySource) -> None:
        self._listener, self._source = listener, source
        self._warnings = _Warnings(listener)
        self._answers: SimpleQueue[bytes | OSError] = SimpleQueue()
        self._asking: Thread | None = None
        self._asked_s = 0.0
        self._due_s = 0.0
        self._retry_s = source.retry_s[0]
        self._missing = 0

    def is_due(self, now_s: float, missing: int) -> bool:
        """Whether the issuer has to be asked: it is time, or tokens named unknown keys."""
        if self._asking is not None and self._asking.is_alive():
            return False
        is_missed = missing > self._missing and now_s >= self._asked_s + _MISSING_S
        if is_missed:
            self._missing = missing
        return is_missed or now_s >= self._due_s

    def ask(self, now_s: float) -> Thread:
        """Ask the issuer, on a thread of its own."""
        self._asked_s = now_s
        asking = self._asking = Thread(target=self._fetch, name="krust-token-keys", daemon=True)
        asking.start()
        return asking

    def use(self, server: Server, now_s: float) -> None:
        """Use the issuer's answer, if there is one."""
        try:
            answer = self._answers.get_nowait()
        except Empty:
            return
        try:
            if isinstance(answer, OSError):
                raise answer
            server.set_token_keys(self._listener, answer)
        except (OSError, ConfigError) as error:
            self._due_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, self._source.retry_s[1])
            self._warnings.failed(f"{self._source.url}: {error}", now_s)
        else:
            self._due_s = now_s + self._source.refresh_s
            self._retry_s = self._source.retry_s[0]

    def _fetch(self) -> None:
        try:
            self._answers.put(issuers.ask(self._source.url))
        except OSError as error:
            self._answers.put(error)


def _unusable(listener: str, why: str) -> ConfigError:
    return ConfigError(
        f"listener {listener} has no keys to check tokens with: {why}",
        hint="sasl.oauthbearer.jwks.endpoint.url names a JSON web key set",
    )
