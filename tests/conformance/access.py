"""How the clients of a foreign suite reach krust: by a listener of each security protocol.

There is one user, who logs in by PLAIN and SCRAM. It is the one of kafka-python's own suite.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from krust import jaas
from tests.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping

USER, PASSWORD = "alice", "alice-secret"
MECHANISM = "SCRAM-SHA-512"
"""by which clients log in that do not choose"""
PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")


class Access(NamedTuple):
    """The listeners of the broker that a suite is told of."""

    at: Mapping[str, str]
    """the address of each, by its protocol"""
    protocol: str
    """which of them the suite's clients use"""
    authority: Path
    """the certificate of who has signed the broker's"""

    @property
    def bootstrap(self) -> str:
        """The address for the suite's clients."""
        return self.at[self.protocol]

    @property
    def has_logins(self) -> bool:
        """Whether they have to log in."""
        return self.protocol.startswith("SASL_")

    @property
    def is_encrypted(self) -> bool:
        """Whether they have to use TLS."""
        return self.protocol.endswith("SSL")

    @property
    def librdkafka(self) -> dict[str, str]:
        """What librdkafka needs beside the address."""
        settings = {"security.protocol": self.protocol}
        if self.is_encrypted:
            settings["ssl.ca.location"] = str(self.authority)
        if self.has_logins:
            settings["sasl.mechanism"] = MECHANISM
            settings |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return settings

    @property
    def java(self) -> str:
        """The properties of a Java client."""
        lines = [f"security.protocol={self.protocol}"]
        if self.is_encrypted:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.authority}"]
        if self.has_logins:
            login = f'{jaas.SCRAM} required username="{USER}" password="{PASSWORD}";'
            lines += [f"sasl.mechanism={MECHANISM}", f"sasl.jaas.config={login}"]
        return "\n".join(lines)


def listener_settings(authority: Authority, at: Mapping[str, str]) -> dict[str, str]:
    """The settings of a broker with a listener of each protocol. Brokers use the plain one."""
    users = f'{jaas.PLAIN} required user_{USER}="{PASSWORD}";'
    return {
        "listeners": ",".join(f"{protocol}://{address}" for protocol, address in at.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.location": str(authority.certify("broker", "DNS:localhost", "IP:127.0.0.1")),
        **{
            f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": users
            for protocol in at
            if protocol.startswith("SASL_")
        },
    }


def add_user(folder: Path, *place: str) -> None:
    """Make the user of SCRAM, before the first broker runs."""
    file = folder / "password"
    file.write_text(f"{PASSWORD}\n")
    add = ["user", "add", USER, "--password-file", str(file), *place]
    command = [sys.executable, "-m", "krust", *add]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
