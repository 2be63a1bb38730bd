"""How clients are told their settings, and by which other names people know them.

Given as a dict in Kafka's keys, as keywords with `_` for `.`, or both; the keyword wins. A key that
is not supported is an error, never silence.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from krust.clients.keywords import CommonSettings, FetchSettings, ProducerSettings, keys
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOTSTRAP = "bootstrap.servers"
COMMON = keys(CommonSettings)
PRODUCER = keys(ProducerSettings)
FETCH = keys(FetchSettings)
_TELLER = "krust.report.reachability"
_NUMBERS = count(1)
"""A number for each client: in its name the core has "krust.clients.reach" tell who is away."""
ALIASES = {
    "auto.commit": "auto.commit.enable",
    "metadata.broker.list": BOOTSTRAP,
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""librdkafka's names of the same settings, and those of the clients of 2013."""
_NO_TRANSACTIONS = "krust has no transactions yet: leave it out"
_ABSENT = {"transactional.id": _NO_TRANSACTIONS, "transaction.timeout.ms": _NO_TRANSACTIONS}
"""Settings of Kafka's clients that this client does not have, and what to do about each."""


def read(
    supported: frozenset[str],
    config: Mapping[str, object] | None,
    more: Mapping[str, object],
    *,
    named: bool = True,
) -> dict[str, object]:
    """The settings given, by Kafka's keys; `bootstrap.servers` is among them, where it is needed.

    config  Kafka's keys, or librdkafka's, with dots
    more    the same with `_`
    named   whether a broker has to be named
    raises  ConfigError: one that is not supported, or no broker is named
    """
    given = dict(config or {}) | {name.replace("_", "."): value for name, value in more.items()}
    options: dict[str, object] = {_TELLER: next(_NUMBERS)}
    for name, value in given.items():
        key = ALIASES.get(name, name)
        if key not in supported and key != _TELLER:
            hint = _ABSENT.get(key) or _near(name, supported)
            raise ConfigError(f"this client has no setting {name!r}", hint=hint)
        if key == "security.protocol" and str(value or "PLAINTEXT").upper() != "PLAINTEXT":
            hint = "krust's clients have no TLS and no SASL yet: use a PLAINTEXT listener"
            raise ConfigError(f"security.protocol: {value!r} is not supported", hint=hint)
        if value is not None:
            options[key] = value
    servers = options.get(BOOTSTRAP)
    if not isinstance(servers, str) and isinstance(servers, (list, tuple)):
        options[BOOTSTRAP] = servers = ",".join(map(str, servers))
    if not named and servers is None:
        return options
    if not isinstance(servers, str) or not servers.strip():
        raise ConfigError("no broker is named", hint='give bootstrap_servers="host:9092"')
    return options


def core(options: Mapping[str, object], known: frozenset[str]) -> dict[str, object]:
    """Those of the settings that the native core takes, as it takes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in options.items()
        if name == _TELLER or (name in known and name != BOOTSTRAP)
    }


def number(options: Mapping[str, object], name: str, default: int) -> int:
    """A setting that is a number. ConfigError: it is none, or below zero."""
    value = options.get(name, default)
    try:
        parsed = int(str(value))
    except ValueError:
        parsed = -1
    if parsed < 0:
        raise ConfigError(f"{name}: {value!r} is not a number from 0 up")
    return parsed


def switch(options: Mapping[str, object], name: str, default: bool) -> bool:
    """A setting that is true or false."""
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}: {text!r} is neither true nor false")
    return text == "true"


def choice(options: Mapping[str, object], name: str, default: str, *others: str) -> str:
    """A setting that is one of some words."""
    text = str(options.get(name, default)).lower()
    if text not in (default, *others):
        raise ConfigError.choice(name, (default, *others), text)
    return text


def _near(name: str, supported: frozenset[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [*supported, *ALIASES], 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(supported))}"
