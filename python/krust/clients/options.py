"""Reads the settings of clients, and knows other names of them.

Settings are a dict with Kafka's keys, keywords with `_` for `.`, or both; a keyword wins. A key
that is not supported is an error.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from krust import jaas
from krust.clients import oauth
from krust.clients.keywords import CommonSettings, FetchSettings, ProducerSettings, keys
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOTSTRAP = "bootstrap.servers"
JAAS = "sasl.jaas.config"
COMMON = keys(CommonSettings)
PRODUCER = keys(ProducerSettings)
FETCH = keys(FetchSettings)
_TELLER = "krust.report.reachability"
_DELEGATED = "krust.sasl.tokenauth"
_OF_THE_CORE = (_TELLER, _DELEGATED)
"""Keys that no user gives."""
_NUMBERS = count(1)
"""A number for each client, with which the core names it to "krust.clients.reach"."""
ALIASES = {
    "auto.commit": "auto.commit.enable",
    "metadata.broker.list": BOOTSTRAP,
    "oauth.cb": oauth.TOKEN,
    "oauth_cb": oauth.TOKEN,
    "sasl.oauth.token.provider": oauth.TOKEN,
    "sasl.oauthbearer.client.credentials.client.id": oauth.CLIENT_ID,
    "sasl.oauthbearer.client.credentials.client.secret": oauth.CLIENT_SECRET,
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "request.required.acks": "acks",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""The names of these settings in librdkafka, in kafka-python, and in the clients of 2013."""


_JAAS_OPTIONS = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": oauth.CLIENT_ID,
    "clientSecret": oauth.CLIENT_SECRET,
    "scope": oauth.SCOPE,
}
"""Options of login modules, and the settings that they stand for."""


def read(
    supported: frozenset[str],
    config: Mapping[str, object] | None,
    more: Mapping[str, object],
    *,
    named: bool = True,
) -> dict[str, object]:
    """The given settings by Kafka's keys, including `bootstrap.servers` if it is needed.

    config  settings by the keys of Kafka or librdkafka, with dots
    more    settings by the same keys with `_`
    named   whether a broker has to be named
    raises  ConfigError: a setting that is not supported, or no broker is named
    """
    if isinstance(config, str):
        raise ConfigError(
            f"the settings of a client are a dict, and {config[:100]!r} is a text",
            hint=f"an address is given as bootstrap_servers={config[:100]!r}",
        )
    given = dict(config or {}) | {name.replace("_", "."): value for name, value in more.items()}
    options: dict[str, object] = {_TELLER: next(_NUMBERS)}
    for name, value in given.items():
        key = ALIASES.get(name, name)
        if key not in supported and key not in _OF_THE_CORE:
            hint = _near(name, supported)
            raise ConfigError(f"this client has no setting {name!r}", hint=hint)
        if value is not None:
            options[key] = value
    _read_jaas(options)
    _read_tokens(options)
    servers = options.get(BOOTSTRAP)
    if not isinstance(servers, str) and isinstance(servers, (list, tuple)):
        options[BOOTSTRAP] = servers = ",".join(map(str, servers))
    if not named and servers is None:
        return options
    if not isinstance(servers, str) or not servers.strip():
        raise ConfigError("no broker is named", hint='give bootstrap_servers="host:9092"')
    return options


def _read_jaas(options: dict[str, object]) -> None:
    """Replace a JAAS string by what is in it: the user and the password, or those of a delegation
    token, or a client of OAuth.
    """
    text = options.pop(JAAS, None)
    if text is None:
        return
    login = jaas.parse(str(text)).options
    for name, key in _JAAS_OPTIONS.items():
        if name in login:
            options.setdefault(key, login[name])
    if login.get("tokenauth", "").lower() == "true":  # the login module's option of that name
        options[_DELEGATED] = "true"


def _read_tokens(options: dict[str, object]) -> None:
    """Replace what says where tokens are from by a function that returns them."""
    tokens = oauth.source(options)
    if tokens is not None:
        options[oauth.TOKEN] = tokens


def renamed(given: Mapping[str, object]) -> dict[str, object]:
    """Settings by Kafka's keys, for the native core: other names replaced, JAAS strings read."""
    options = {ALIASES.get(name, name): value for name, value in given.items()}
    _read_jaas(options)
    _read_tokens(options)
    return options


def core(options: Mapping[str, object], known: frozenset[str]) -> dict[str, object]:
    """The settings of the native core."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in options.items()
        if name in _OF_THE_CORE or (name in known and name != BOOTSTRAP)
    }


def number(options: Mapping[str, object], name: str, default: int) -> int:
    """The value of a number setting. ConfigError: it is no number, or negative."""
    value = options.get(name, default)
    try:
        parsed = int(str(value))
    except ValueError:
        parsed = -1
    if parsed < 0:
        raise ConfigError(f"{name}: {value!r} is not a number from 0 up")
    return parsed


def switch(options: Mapping[str, object], name: str, default: bool) -> bool:
    """The value of a boolean setting."""
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}: {text!r} is neither true nor false")
    return text == "true"


def choice(options: Mapping[str, object], name: str, default: str, *others: str) -> str:
    """The value of a setting with a fixed set of values."""
    text = str(options.get(name, default)).lower()
    if text not in (default, *others):
        raise ConfigError.choice(name, (default, *others), text)
    return text


def _near(name: str, supported: frozenset[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [*supported, *ALIASES], 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(supported))}"
