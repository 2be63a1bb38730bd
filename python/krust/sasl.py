"""What listeners with SASL ask of their clients, and how brokers log in at each other.

Settings of a listener are `listener.name.NAME.KEY`, those of one of its mechanisms
`listener.name.NAME.MECHANISM.KEY`, all names in lower case (KIP-103, KIP-85).
Settings of OAUTHBEARER have Kafka's names (KIP-768).
Functions of text alone: `Config` uses them for its checks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krust import jaas
from krust.errors import ConfigError
from krust.listeners import PREFIX, inter_broker_listener, listener_text, listeners
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from krust.listeners import Listener, SettingLookup

MECHANISMS = {
    "PLAIN": jaas.PLAIN,
    "SCRAM-SHA-256": jaas.SCRAM,
    "SCRAM-SHA-512": jaas.SCRAM,
    "OAUTHBEARER": jaas.OAUTHBEARER,
}
"""The mechanisms that krust has, with the login module of each in JAAS strings."""

_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_USER = "user_"
_EXTENSION = "extension_"
_OAUTH = "sasl.oauthbearer."
_ALLOWED_URLS = "krust.sasl.oauthbearer.allowed.urls"


class _NotGivenError(ConfigError):
    """No setting has a JAAS string. The metadata store may have it, if it has passwords."""


class TokenIssuer(NamedTuple):
    """Who grants this broker the tokens that it shows the others (RFC 6749, section 4.4)."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None
    extensions: list[tuple[str, str]]
    """what it shows beside a token (KIP-342)"""
    retry_s: tuple[float, float]
    """the first pause after a failure, and the longest"""

    def __repr__(self) -> str:
        return f"TokenIssuer({self.url}, {self.client_id})"


class Login(NamedTuple):
    """How this broker logs in at the others."""

    mechanism: str
    user: str = ""
    password: str = ""
    issuer: TokenIssuer | None = None
    """of OAUTHBEARER, which has neither user nor password"""

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user})"


class TokenRules(NamedTuple):
    """Which tokens of OAUTHBEARER a listener accepts."""

    issuer: str | None
    """that they must name; None: any"""
    audiences: list[str]
    """of which they must name one; empty: none"""
    skew_ms: int
    """by how much the issuer's clock may differ"""
    user_claim: str
    """the claim that has the user's name"""


class KeySource(NamedTuple):
    """Where the keys are that sign a listener's tokens."""

    url: str
    refresh_s: float
    retry_s: tuple[float, float]
    """the first pause after a failure, and the longest"""


class ListenerLogins(NamedTuple):
    """What a listener asks of its clients."""

    offered: list[tuple[str, int]]
    """its mechanisms, each with the milliseconds that a login lasts; 0: without end"""
    plain_users: dict[str, str]
    """the passwords of those that log in by PLAIN"""
    tokens: TokenRules | None = None
    """what OAUTHBEARER asks of tokens; None: it is not offered"""

    def __repr__(self) -> str:
        return f"ListenerLogins({self.offered}, {len(self.plain_users)} users)"


def logins(text: SettingLookup, listener: str) -> ListenerLogins:
    """What a listener asks. ConfigError: its settings say nothing usable."""
    names = mechanisms(text, listener)
    lasts = [_milliseconds(_of_mechanism(text, listener, name, _REAUTH)) for name in names]
    users: dict[str, str] = {}
    if "PLAIN" in names:
        users = plain_users(text, listener)
    rules = token_rules(text, listener) if "OAUTHBEARER" in names else None
    return ListenerLogins(list(zip(names, lasts, strict=True)), users, rules)


def mechanisms(text: SettingLookup, listener: str) -> list[str]:
    """The mechanisms that a listener offers. ConfigError: one that krust does not have."""
    given = listener_text(text, listener, "sasl.enabled.mechanisms") or ""
    names = [name.strip().upper() for name in given.split(",") if name.strip()]
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        what = f"offers {unknown[0]}, which krust does not have" if unknown else "offers no login"
        raise ConfigError(
            f"listener {listener} {what}",
            hint=f"sasl.enabled.mechanisms may name {', '.join(MECHANISMS)} (or "
            f"{PREFIX}{listener.lower()}.sasl.enabled.mechanisms)",
        )
    return names


def jaas_settings(text: SettingLookup, listener: str) -> list[str]:
    """The names of the JAAS strings that a listener may have."""
    return [_key(listener, name, _JAAS) for name in mechanisms(text, listener)]


def plain_users(text: SettingLookup, listener: str) -> dict[str, str]:
    """The users of PLAIN: the options `user_NAME` of the listener's JAAS string."""
    key = _key(listener, "PLAIN", _JAAS)
    given = text(key)
    if given is None:
        raise _NotGivenError(
            f"listener {listener} offers PLAIN and has no users",
            hint=f'{key}={jaas.PLAIN} required user_NAME="PASSWORD"; (one option for each user)',
        )
    options = jaas.parse(given, key).options
    return {
        name.removeprefix(_USER): password
        for name, password in options.items()
        if name.startswith(_USER) and password
    }


def token_rules(text: SettingLookup, listener: str) -> TokenRules:
    """Which tokens a listener accepts. ConfigError: it has no usable source of keys."""
    key_source(text, listener)
    audiences = _token_setting(text, listener, "expected.audience") or ""
    return TokenRules(
        _token_setting(text, listener, "expected.issuer") or None,
        [name.strip() for name in audiences.split(",") if name.strip()],
        _token_number(text, listener, "clock.skew.seconds") * 1000,
        _token_setting(text, listener, "sub.claim.name") or "sub",
    )


def key_source(text: SettingLookup, listener: str) -> KeySource:
    """Where a listener's keys are. ConfigError: nowhere, or at an address that is not allowed.

    The list of allowed addresses keeps whoever may write the other settings from having the broker
    read its files or ask its network (CVE-2025-27817).
    """
    key = _key(listener, "OAUTHBEARER", f"{_OAUTH}jwks.endpoint.url")
    url = _token_setting(text, listener, "jwks.endpoint.url")
    if not url:
        raise ConfigError(
            f"listener {listener} offers OAUTHBEARER and has no keys to check tokens with",
            hint=f"{key}=https://HOST/PATH or file:///PATH names a JSON web key set, and "
            f"{_ALLOWED_URLS} allows it; krust has no login by unsigned tokens",
        )
    _check_allowed(text, key, url)
    if not _is_address(url):
        raise ConfigError(
            f"{key}: {url!r} is no address of a key set",
            hint="write https://HOST/PATH, http://HOST/PATH or file:///PATH",
        )
    number = partial(_token_number, text, listener)
    retry, retry_max = "jwks.endpoint.retry.backoff.ms", "jwks.endpoint.retry.backoff.max.ms"
    retry_s = (number(retry) / 1000, number(retry_max) / 1000)
    return KeySource(url, number("jwks.endpoint.refresh.ms") / 1000, retry_s)


def inter_broker_login(text: SettingLookup) -> Login | None:
    """How this broker logs in at the others; None: their listener has no logins.

    raises  ConfigError: it has, and the settings do not say how
    """
    listener = inter_broker_listener(text)
    if listener not in {each.name for each in listeners(text) if each.has_logins}:
        return None
    name = (text("sasl.mechanism.inter.broker.protocol") or "").upper()
    if name not in mechanisms(text, listener):
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol is {name}, which listener {listener} does not "
            "offer",
            hint=f"name one of {', '.join(mechanisms(text, listener))}",
        )
    if name == "OAUTHBEARER":
        return Login(name, issuer=token_issuer(text, listener))
    options = _own_options(text, listener, name, ("username", "password"))
    return Login(name, options["username"], options["password"])


def token_issuer(text: SettingLookup, listener: str) -> TokenIssuer:
    """Who grants this broker its tokens. ConfigError: nobody, or at an address not allowed."""
    key = _key(listener, "OAUTHBEARER", f"{_OAUTH}token.endpoint.url")
    url = _token_setting(text, listener, "token.endpoint.url")
    if not url or not url.startswith(("https://", "http://")) or not _is_address(url):
        raise ConfigError(
            f"the brokers log in at listener {listener} by OAUTHBEARER, and {key} is no address of "
            "an issuer",
            hint=f"{key}=https://HOST/PATH grants them tokens, and {_ALLOWED_URLS} allows it",
        )
    _check_allowed(text, key, url)
    options = _own_options(text, listener, "OAUTHBEARER", ("clientId", "clientSecret"))
    extensions = [
        (name.removeprefix(_EXTENSION), value)
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    ]
    login = (options["clientId"], options["clientSecret"], options.get("scope") or None)
    retry = ("sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms")
    first_s, longest_s = (_number(text(name), name) / 1000 for name in retry)
    return TokenIssuer(url, *login, extensions, (first_s, longest_s))


def _own_options(
    text: SettingLookup, listener: str, mechanism: str, needed: tuple[str, str]
) -> Mapping[str, str]:
    """The options of a listener's JAAS string by which this broker logs in there itself.

    raises  ConfigError: the needed ones are not among them
    """
    key = _key(listener, mechanism, _JAAS)
    given = text(key)
    options = {} if given is None else jaas.parse(given, key).options
    if not all(options.get(name) for name in needed):
        example = " ".join(f'{name}="{name.upper()}"' for name in needed)
        raise (_NotGivenError if given is None else ConfigError)(
            f"the brokers log in at listener {listener} by {mechanism}, and {key} has no "
            f"{' and '.join(needed)}",
            hint=f"{key}={MECHANISMS[mechanism]} required {example};",
        )
    return options


def problems(text: SettingLookup) -> Iterator[ConfigError]:
    """What is wrong with the logins of the listeners."""
    for each in listeners(text):
        yield from _of_listener(text, each)
    if text("zookeeper.connect"):
        try:
            inter_broker_login(text)
        except ConfigError as error:
            yield from _problem(text, error)


def _of_listener(text: SettingLookup, listener: Listener) -> Iterator[ConfigError]:
    if listener.has_logins:
        try:
            logins(text, listener.name)
        except ConfigError as error:
            yield from _problem(text, error)


def _problem(text: SettingLookup, error: ConfigError) -> Iterator[ConfigError]:
    if not (isinstance(error, _NotGivenError) and text("password.encoder.secret")):
        yield error


def _of_mechanism(text: SettingLookup, listener: str, mechanism: str, name: str) -> str | None:
    """A setting of a mechanism on a listener: its own, the listener's, or that of all."""
    own = text(_key(listener, mechanism, name))
    return listener_text(text, listener, name) if own is None else own


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path != ""
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _token_setting(text: SettingLookup, listener: str, name: str) -> str | None:
    return _of_mechanism(text, listener, "OAUTHBEARER", _OAUTH + name)


def _token_number(text: SettingLookup, listener: str, name: str) -> int:
    return _number(_token_setting(text, listener, name), f"{_OAUTH}{name}")


def _number(given: str | None, name: str) -> int:
    if not (given or "0").isdecimal():
        raise ConfigError(
            f"{name}: {given!r} is no number from 0 up", hint=f"write {name}=100, or leave it out"
        )
    return int(given or "0")


def _check_allowed(text: SettingLookup, key: str, url: str) -> None:
    """ConfigError: nobody has allowed this address."""
    if url not in [allowed.strip() for allowed in (text(_ALLOWED_URLS) or "").split(",")]:
        raise ConfigError(
            f"{key}: {_ALLOWED_URLS} does not name {url}",
            hint=f"{_ALLOWED_URLS}={url}",
        )


def _key(listener: str, mechanism: str, name: str) -> str:
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"


def _milliseconds(text: str | None) -> int:
    try:
        return max(int(text or 0), 0)
    except ValueError:
        raise ConfigError(f"{_REAUTH}: {text!r} is no number") from None
