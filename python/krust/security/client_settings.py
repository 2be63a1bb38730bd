"""The settings by which clients of each project log in, by the names that each has for them.

Pure text, but for aiokafka: it takes an `ssl.SSLContext`, which reads the authority's file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust import jaas
from krust.errors import ConfigError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SECURITY_PROTOCOL = "SASL_SSL"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"
MECHANISMS = (SCRAM, PLAIN)
CLIENTS = ("krust", "confluent-kafka", "kafka-python", "aiokafka", "java")


class ClientLogin(NamedTuple):
    """How a client logs in, and where."""

    bootstrap: str
    user: str
    password: str
    authority: Path
    """the file with the certificate that it trusts"""
    mechanism: str = SCRAM

    def __repr__(self) -> str:
        return f"ClientLogin({self.user} at {self.bootstrap} by {self.mechanism})"


def settings(login: ClientLogin, client: str = "krust") -> dict[str, Any]:
    """The settings for a client of a project. ConfigError: the project is not known.

    client  krust, confluent-kafka: keys with dots, for a dict; kafka-python, aiokafka: keywords;
            java: the keys of Kafka's own clients and tools
    """
    if client not in CLIENTS:
        raise ConfigError.choice("client", CLIENTS, client)
    if client == "java":
        return java(login)
    if client in ("krust", "confluent-kafka"):
        return dotted(login)
    found = keywords(login)
    if client == "aiokafka":
        import ssl

        found["ssl_context"] = ssl.create_default_context(cafile=found.pop("ssl_cafile"))
    return found


def dotted(login: ClientLogin) -> dict[str, Any]:
    """The keys of librdkafka, which krust's clients know too."""
    return {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": SECURITY_PROTOCOL,
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.user,
        "sasl.password": login.password,
        "ssl.ca.location": str(login.authority),
    }


def keywords(login: ClientLogin) -> dict[str, Any]:
    """The keywords of kafka-python, which krust's clients know too."""
    return {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": SECURITY_PROTOCOL,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
        "ssl_cafile": str(login.authority),
    }


def java(login: ClientLogin) -> dict[str, Any]:
    """The keys of Kafka's own clients."""
    module = jaas.PLAIN if login.mechanism == PLAIN else jaas.SCRAM
    options = f"username={jaas.quoted(login.user)} password={jaas.quoted(login.password)}"
    return {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": SECURITY_PROTOCOL,
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": f"{module} required {options};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(login.authority),
    }
