"""The listeners of a broker: addresses, security protocols, and the settings of each.

`listener.name.NAME.KEY`, with the listener's name in lower case, wins over `KEY` (KIP-103).
Functions of text alone: they take a `SettingLookup`, because `Config` uses them for its checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from krust.errors import ConfigError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFERED = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols that listeners may have."""
PREFIX = "listener.name."
TLS_SETTINGS = (
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""The settings of TLS that act. Each listener may have its own."""
TOKEN_SETTINGS = (
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
)
"""The settings of OAUTHBEARER that act."""
SASL_SETTINGS = ("connections.max.reauth.ms", "sasl.enabled.mechanisms", *TOKEN_SETTINGS)
"""The same of SASL."""
CONNECTION_SETTINGS = ("max.connection.creation.rate", "max.connections")
"""The limits that each listener may have for itself."""
PER_IP = "max.connections.per.ip"
PER_IP_OVERRIDES = "max.connections.per.ip.overrides"
PRINCIPAL_RULES = "ssl.principal.mapping.rules"
"""How a listener names the clients that show certificates."""
MECHANISM_SETTINGS = ("connections.max.reauth.ms", "sasl.jaas.config", *TOKEN_SETTINGS)
"""Those that each mechanism of a listener may have for itself."""


class SettingLookup(Protocol):
    """The text of a setting by its name; None: unset."""

    def __call__(self, name: str, /) -> str | None:
        """Look one up."""


class Listener(NamedTuple):
    """One listener."""

    name: str
    host: str
    """"" is every interface"""
    port: int
    protocol: str
    """a security protocol of Kafka, or "" if the name is in no map"""

    @property
    def is_encrypted(self) -> bool:
        """Whether its connections use TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_logins(self) -> bool:
        """Whether its clients log in by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def names_by_certificates(self) -> bool:
        """Whether the certificates of its clients say who they are."""
        return self.protocol == "SSL"


def addresses(text: str) -> list[tuple[str, str, int]]:
    """`A://:9092,B://[::1]:9093` as (name, host, port); host "" is every interface."""
    found: list[tuple[str, str, int]] = []
    for item in text.split(","):
        name, slashes, address = item.strip().partition("://")
        host, colon, port = address.rpartition(":")
        if not (name and slashes and colon and port.isdecimal() and int(port) < 65536):
            raise ConfigError(
                f"{item.strip()!r} is no listener",
                hint="write NAME://host:port, as PLAINTEXT://:9092",
            )
        found.append((name.upper(), host.removeprefix("[").removesuffix("]"), int(port)))
    if len({name for name, _, _ in found}) < len(found):
        raise ConfigError(
            f"two listeners of one name in {text!r}",
            hint="give each a name of its own, and map it in listener.security.protocol.map",
        )
    return found


def protocols(text: SettingLookup) -> dict[str, str]:
    """The security protocol of each name in `listener.security.protocol.map`."""
    pairs = (item.partition(":") for item in str(text("listener.security.protocol.map")).split(","))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def listeners(text: SettingLookup) -> list[Listener]:
    """The listeners of a broker with these settings."""
    mapped = protocols(text)
    return [
        Listener(name, host, port, mapped.get(name, ""))
        for name, host, port in addresses(str(text("listeners")))
    ]


def listener_text(text: SettingLookup, listener: str, name: str) -> str | None:
    """A setting of a listener: its own value, or that of all listeners."""
    own = text(f"{PREFIX}{listener.lower()}.{name}")
    return text(name) if own is None else own


def tls_settings(text: SettingLookup, listener: str) -> dict[str, str]:
    """The settings of a listener's TLS that are set, by their names without a prefix."""
    found = {name: listener_text(text, listener, name) for name in TLS_SETTINGS}
    return {name: value for name, value in found.items() if value is not None}


def check_overrides(text: str) -> None:
    """ConfigError: `max.connections.per.ip.overrides` is no list of `host:count`."""
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, count = item.rpartition(":")
        if not (host.strip() and count.strip().isdecimal() and int(count) < 2**31):
            raise ConfigError(
                f"{PER_IP_OVERRIDES} = {item!r} is no host with its limit",
                hint="write HOST:COUNT, with commas between",
            )


def base_name(name: str) -> str | None:
    """`ssl.keystore.key` of `listener.name.NAME.ssl.keystore.key`, or `sasl.jaas.config` of
    `listener.name.NAME.MECHANISM.sasl.jaas.config`; None: it is no such name.
    """
    if not name.startswith(PREFIX):
        return None
    listener, dot, rest = name.removeprefix(PREFIX).partition(".")
    if not (listener and dot):
        return None
    _, _, of_mechanism = rest.partition(".")
    if rest in (*TLS_SETTINGS, *SASL_SETTINGS, *CONNECTION_SETTINGS, PRINCIPAL_RULES):
        return rest
    return of_mechanism if of_mechanism in MECHANISM_SETTINGS else None


def inter_broker_listener(text: SettingLookup) -> str:
    """The listener between brokers: the one that the settings name, or the one that Kafka names
    after its security protocol, or the first.
    """
    named = text("inter.broker.listener.name")
    if named:
        return named.upper()
    known = [name for name, _, _ in addresses(str(text("listeners")))]
    wanted = text("security.inter.broker.protocol")
    return wanted if wanted in known else known[0]


def problems(text: SettingLookup) -> Iterator[ConfigError]:
    """What is wrong with the listeners: protocols that are not offered, names that are unknown."""
    named = listeners(text)
    offered = ", ".join(OFFERED)
    for each in named:
        if each.protocol not in OFFERED:
            what = f"stands for {each.protocol}" if each.protocol else "stands for no protocol"
            yield ConfigError(
                f"listener {each.name} {what}; offered are {offered}",
                hint=f"take it out of listeners, or map it: "
                f"listener.security.protocol.map={each.name}:PLAINTEXT",
            )
    between = text("security.inter.broker.protocol")
    if between not in OFFERED:
        yield ConfigError(
            f"security.inter.broker.protocol is {between}; offered are {offered}",
            hint="leave it out",
        )
    elif inter_broker_listener(text) not in {each.name for each in named}:
        yield ConfigError(
            f"inter.broker.listener.name is {inter_broker_listener(text)}, which listeners does "
            "not have",
            hint="name one of the listeners",
        )
    if text(PER_IP) == "0" and not text(PER_IP_OVERRIDES):
        yield ConfigError(
            f"{PER_IP} is 0, so nobody could connect",
            hint=f"name those who may in {PER_IP_OVERRIDES}",
        )
    also = {
        name.upper() for name in (text("krust.inter.broker.listeners") or "").split(",") if name
    }
    for name in sorted(also - {each.name for each in named}):
        yield ConfigError(
            f"krust.inter.broker.listeners names {name}, which listeners does not have",
            hint="take it out: it is for the listeners that brokers still use",
        )
    yield from _advertised_problems(text, {each.name for each in named})


def _advertised_problems(text: SettingLookup, known: set[str]) -> Iterator[ConfigError]:
    advertised = text("advertised.listeners")
    for name, host, _ in addresses(advertised) if advertised else ():
        if name not in known:
            yield ConfigError(
                f"advertised.listeners names {name}, which listeners does not have",
                hint=f"add {name} to listeners, or take it out",
            )
        if host in ("", "0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
            yield ConfigError(
                f"advertised.listeners tells clients to use {host or 'no host'}, no address",
                hint="name the host that clients reach",
            )
