"""The tokens with which this broker logs in at the others by OAUTHBEARER.

An issuer grants them. It is asked at the start, and again when a token has used up four fifths of
its time, so the newest one is there when a login ends with its token. It is asked on a thread of
its own, so nobody waits for it but the start. Whoever logs in takes the newest token; while the
issuer grants none, that is the old one, and the log says why at most once a minute.
Threads: any may ask for a token; the policy thread calls the methods.
"""

from __future__ import annotations

import json
import logging
import time
from base64 import urlsafe_b64decode
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from krust import issuers
from krust.errors import KrustError

if TYPE_CHECKING:
    from krust.sasl import TokenIssuer

_USED = 0.8
"""the part of a token's time after which another one is asked for"""
_WARN_S = 60.0

_log = logging.getLogger("krust")


class BrokerTokens:
    """What the core and the connections of `peers` call for a token.

    issuer  who grants them
    """

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer
        self._token: str | None = None
        self._why = "the issuer has not answered yet"
        self._answers: SimpleQueue[tuple[TokenIssuer, tuple[str, float] | KrustError]] = (
            SimpleQueue()
        )
        self._asking: Thread | None = None
        self._due_s = 0.0
        self._retry_s = issuer.retry_s[0]
        self._quiet_until_s = 0.0

    def __call__(self) -> tuple[str, list[tuple[str, str]]]:
        """The newest token, and what is shown beside it. KrustError: none was granted yet."""
        token = self._token
        if token is None:
            raise KrustError(f"this broker has no token: {self._why}")
        return token, self._issuer.extensions

    def replace(self, issuer: TokenIssuer) -> None:
        """Have the next token from this issuer, soon if it is another one. What the one before
        still answers is dropped.
        """
        if issuer != self._issuer:
            self._issuer, self._due_s = issuer, 0.0

    def load(self) -> None:
        """Have a token for the first login, if the issuer answers in time."""
        now_s = time.monotonic()
        self._ask().join(issuers.TIMEOUT_S)
        self._use(now_s)

    def follow(self, now_s: float) -> None:
        """Have another token when it is time."""
        self._use(now_s)
        if now_s >= self._due_s and not (self._asking and self._asking.is_alive()):
            self._ask()

    def _ask(self) -> Thread:
        asking = self._asking = Thread(
            target=self._fetch, args=(self._issuer,), name="krust-token", daemon=True
        )
        asking.start()
        return asking

    def _fetch(self, issuer: TokenIssuer) -> None:
        try:
            self._answers.put((issuer, _granted(issuer)))
        except KrustError as error:
            self._answers.put((issuer, error))

    def _use(self, now_s: float) -> None:
        try:
            issuer, answer = self._answers.get_nowait()
        except Empty:
            return
        if issuer != self._issuer:
            return
        if isinstance(answer, KrustError):
            self._why = str(answer)
            self._due_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, self._issuer.retry_s[1])
            if now_s >= self._quiet_until_s:
                self._quiet_until_s = now_s + _WARN_S
                _log.error("no new token for logins at other brokers: %s", answer)
            return
        self._token, lasts_s = answer
        self._due_s = now_s + _USED * lasts_s
        self._retry_s = self._issuer.retry_s[0]


def _granted(issuer: TokenIssuer) -> tuple[str, float]:
    """A token, and for how many seconds it is valid."""
    token, expires_s = issuers.granted(
        issuer.url, issuer.client_id, issuer.client_secret, issuer.scope
    )
    if expires_s is None:
        expires_s = _named_end(token)
    if expires_s is None:
        raise KrustError(f"the issuer {issuer.url} does not say when its token expires")
    return token, expires_s - time.time()


def _named_end(token: str) -> float | None:
    """When a JWT says that it expires, in seconds since 1970; None: it does not."""
    _, _, rest = token.partition(".")
    claims, _, _ = rest.partition(".")
    try:
        return float(json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, LookupError, TypeError):
        return None
