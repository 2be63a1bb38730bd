"""SCRAM credentials: what brokers know of passwords (RFC 5802, KIP-84).

A user's node holds one text for each mechanism, as Kafka writes it:
`salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=4096`. Nobody can log in with it; who
reads it can pretend to be a broker, and try passwords.
Pure: no clock, no store.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.messages.alter_user_scram_credentials import ScramCredentialUpsertion

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, each with the name of its hash."""
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Their numbers in requests."""
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384

_TEXT = r"salt=([^,]*),stored_key=([^,]*),server_key=([^,]*),iterations=([0-9]{1,9})\Z"


class ScramCredential(NamedTuple):
    """What proves a password by one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"

    @property
    def text(self) -> str:
        """As the user's node holds it."""
        salt, stored_key, server_key = (base64.b64encode(each).decode() for each in self[:3])
        rest = f"server_key={server_key},iterations={self.iterations}"
        return f"salt={salt},stored_key={stored_key},{rest}"


def of_salted_password(
    mechanism: str, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that was salted and hashed (RFC 5802, section 3)."""
    import hashlib
    import hmac

    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def upsertion(
    user: str, mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredentialUpsertion:
    """What AlterUserScramCredentials carries for a user's password."""
    return {
        "name": user,
        "mechanism": MECHANISMS[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted_password(mechanism, password, salt, iterations),
    }


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """A password, salted and hashed."""
    import hashlib

    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def parse(mechanism: str, text: str) -> ScramCredential | None:
    """The credential that a node's text describes; None: it is none."""
    match = re.match(_TEXT, text, re.ASCII)
    if match is None:
        return None
    try:
        salt, stored_key, server_key = (
            base64.b64decode(each, validate=True) for each in match.groups()[:3]
        )
    except ValueError:
        return None
    if not salt or {len(stored_key), len(server_key)} != {hash_bytes(mechanism)}:
        return None
    return ScramCredential(salt, stored_key, server_key, int(match[4]))


def rows(
    users: Mapping[str, Mapping[str, ScramCredential]],
) -> list[tuple[str, str, tuple[bytes, bytes, bytes, int]]]:
    """All credentials as the core takes them: user, mechanism, parts."""
    found = []
    for user, of_user in users.items():
        for mechanism, each in of_user.items():
            parts = (each.salt, each.stored_key, each.server_key, each.iterations)
            found.append((user, mechanism, parts))
    return found


def hash_bytes(mechanism: str) -> int:
    """How long the hashes of a mechanism are."""
    import hashlib

    return hashlib.new(HASHES[mechanism]).digest_size
