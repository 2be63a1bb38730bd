"""The tokens with which clients log in by OAUTHBEARER.

`sasl.oauthbearer.token` is a token, a function that returns one, or an object with a method
`token` (as kafka-python's). A function may have no parameter, or one for the text of
`sasl.oauthbearer.config` (as confluent-kafka's `oauth_cb`). It returns (token, when it expires in
seconds since 1970), or a token alone, which is asked for again at each login. Or it asks an issuer
(`sasl.oauthbearer.token.endpoint.url`) by OAuth's client credentials (RFC 6749, section 4.4).

The core asks on the thread of a connection, while it holds the client: a function must not use the
client that it serves.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from krust import issuers
from krust.errors import ConfigError, KrustError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN = "sasl.oauthbearer.token"  # noqa: S105 -- the name of a setting
CONFIG = "sasl.oauthbearer.config"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.secret"  # noqa: S105 -- the same
SCOPE = "sasl.oauthbearer.scope"
OPTIONS = (CONFIG, ENDPOINT, CLIENT_ID, CLIENT_SECRET, SCOPE)
"""the settings that the core does not need"""

_USED = 0.8
"""the part of a token's time after which another one is asked for; logins end later"""


class _Token(NamedTuple):
    text: str
    extensions: list[tuple[str, str]]
    renew_s: float
    """when another one is asked for, in seconds since 1970"""

    def __repr__(self) -> str:
        return "a token"


class Tokens:
    """A function for the core that returns a token and its extensions, the same until it is old."""

    def __init__(self, ask: Callable[[], object], now_s: Callable[[], float] = time.time) -> None:
        self._ask, self._now_s = ask, now_s
        self._known: _Token | None = None
        self._lock = Lock()

    def __call__(self) -> tuple[str, list[tuple[str, str]]]:
        """A token that is valid now. KrustError: it was given none."""
        with self._lock:
            now_s = self._now_s()
            known = self._known
            if known is None or now_s >= known.renew_s:
                self._known = known = _read(self._ask(), now_s)
            return known.text, known.extensions


def source(options: dict[str, object]) -> Tokens | None:
    """Take the settings of tokens out of `options`: what returns tokens. None: there are none.

    raises  ConfigError: they do not say where tokens are from
    """
    taken = {name: options.pop(name, None) for name in (TOKEN, *OPTIONS)}
    given, config = taken[TOKEN], str(taken[CONFIG] or "")
    if isinstance(given, Tokens):
        return given
    if given is None:
        return None if taken[ENDPOINT] is None else Tokens(_endpoint(taken))
    if isinstance(given, str):
        return Tokens(lambda: given)
    if callable(getattr(given, "token", None)):
        return Tokens(lambda: _provided(given))
    if not callable(given):
        raise ConfigError(
            f"{TOKEN}: a {type(given).__name__} is neither a token nor a function",
            hint="give a function that returns (token, when it expires in seconds since 1970)",
        )
    return Tokens((lambda: given(config)) if _takes_config(given) else given)


def _provided(provider: Any) -> tuple[object, ...]:
    """What a provider returns: its token, and its extensions if it has any."""
    extensions = getattr(provider, "extensions", None)
    return (provider.token(), None, None, extensions() if callable(extensions) else None)


def _takes_config(ask: Callable[..., object]) -> bool:
    from inspect import Parameter, signature

    try:
        parameters = signature(ask).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in plain and each.default is each.empty for each in parameters)


def _read(given: object, now_s: float) -> _Token:
    """What a function of the application returned: TOKEN, (TOKEN, EXPIRY) or confluent-kafka's
    (TOKEN, EXPIRY, PRINCIPAL, EXTENSIONS).
    """
    parts = given if isinstance(given, tuple) else (given,)
    text, expiry, _, extensions = (*parts, None, None, None, None)[:4]
    if not isinstance(text, str) or not isinstance(expiry, int | float | None):
        raise KrustError(
            f"the function of {TOKEN} returned no (token, seconds since 1970)",
            hint="an asynchronous function is not supported; return the token itself",
        )
    pairs = extensions if isinstance(extensions, dict) else {}
    named = [(str(name), str(value)) for name, value in pairs.items()]
    renew_s = 0.0 if expiry is None else now_s + _USED * (expiry - now_s)
    return _Token(text, named, renew_s)


def _endpoint(taken: dict[str, object]) -> Callable[[], object]:
    url, user, secret = (str(taken[name] or "") for name in (ENDPOINT, CLIENT_ID, CLIENT_SECRET))
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"{ENDPOINT} is no address of an issuer", hint="write https://HOST/PATH")
    if not (user and secret):
        raise ConfigError(f"{ENDPOINT} needs {CLIENT_ID} and {CLIENT_SECRET}")
    scope = taken[SCOPE]
    return lambda: issuers.granted(url, user, secret, None if scope is None else str(scope))
