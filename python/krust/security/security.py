"""`krust.Security`: what a secured broker of a test or a developer is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ADMIN = "admin"
"""The user that may do everything."""
BROKERS_USER = "brokers"
"""As whom brokers log in at each other, on their own listener."""
DEFAULT_USERS = (ADMIN, "alice", "bob")

_RESERVED = {
    BROKERS_USER: "the brokers log in at each other by this name",
    "client": "client.properties is a file of its own",
}
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\Z", re.ASCII)


@dataclass(frozen=True, kw_only=True, repr=False)
class Security:
    """TLS, logins and ACLs for `krust.Broker` and `krust.Cluster`: `Broker(secure=Security(...))`.

    users           names and passwords; None: a random one. Without any there are alice and bob.
                    There is always admin, a super user
    acls_for_users  whether users may do everything with topics, groups and transactions. False:
                    they may do nothing until `krust.Admin.create_acls` or `krust acl` allows it
    hosts           names and addresses that the brokers' certificate has beside localhost and this
                    machine's
    raises          ConfigError: a name or a password that cannot be
    """

    users: Mapping[str, str | None] = field(default_factory=dict)
    acls_for_users: bool = True
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, password in self.users.items():
            _check(name, password)

    def __repr__(self) -> str:
        """Names no password."""
        return f"Security(users={sorted(self.users)}, acls_for_users={self.acls_for_users})"


def _check(name: str, password: str | None) -> None:
    if not _USER.match(name):
        raise ConfigError(
            f"{name!r} is no name of a user here",
            hint="write up to 64 letters, digits and . _ @ - (krust user add takes any name)",
        )
    if name in _RESERVED:
        raise ConfigError(f"no user may be called {name}: {_RESERVED[name]}", hint="rename it")
    if password is not None and not _is_usable(password):
        raise ConfigError(
            f"the password of {name} cannot be used in every client's configuration",
            hint="write printable characters, at least one, without blanks at both ends",
        )


def _is_usable(password: str) -> bool:
    return bool(password) and password.isprintable() and password == password.strip()
