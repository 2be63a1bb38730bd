"""The security of a running broker or cluster: its certificates, users and the files about both.

Files, in a folder that only its owner reads, beside those of `authority.py`:
    secure.json        all of it: addresses, the authority's file, users with their passwords.
                       The next start reads it, so users keep their passwords
    USER.properties    for Kafka's own clients and tools, and for `krust -F`
    USER.conf          for kcat and others with librdkafka (`kcat -F`). It logs in by PLAIN, because
                       librdkafka before 2.2 cannot by SCRAM
    client.properties  the same as USER.properties, of the first user that is no super user

Clients log in on the listener SASL_SSL. Brokers log in at each other on one of their own, by a
password of this start. Users and ACLs are written before the broker takes its first connection.
A user gets its ACLs when it is new, so those that were revoked stay so.
Not promised: that a password changed meanwhile by `krust user` or a client outlives the next start.
"""

from __future__ import annotations

import json
import os
import secrets
import weakref
from typing import TYPE_CHECKING, Any

from krust import authorizer, properties
from krust.controller import acls, scram
from krust.controller.first_users import FirstUsers
from krust.errors import ConfigError, ServerError
from krust.jaas import PLAIN as PLAIN_MODULE
from krust.jaas import quoted
from krust.runtime.temporary import remove_when_dead, temporary_dir
from krust.security import client_settings
from krust.security.client_settings import MECHANISMS, PLAIN, SCRAM, SECURITY_PROTOCOL, ClientLogin
from krust.security.private import private_folder, write_private
from krust.security.security import ADMIN, BROKERS_USER, DEFAULT_USERS, Security

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from krust.messages.alter_user_scram_credentials import ScramCredentialUpsertion

STATE = "secure.json"
CLIENT = "client.properties"

_CLIENTS, _BROKERS = SECURITY_PROTOCOL, "BROKERS"
"""The names of the listeners for clients and for brokers."""
_LISTENERS = (
    *("listeners", "advertised.listeners", "inter.broker.listener.name"),
    *("listener.security.protocol.map", "security.inter.broker.protocol"),
)
"""Settings that only this module makes."""
_GRANTED = {
    acls.TOPIC: ("*", ("All",)),
    acls.GROUP: ("*", ("All",)),
    acls.TRANSACTIONAL_ID: ("*", ("All",)),
    acls.CLUSTER: (acls.CLUSTER_NAME, ("Describe", "DescribeConfigs", "IdempotentWrite")),
}
"""What users may do: type of resource -> name, operations."""


class OpenSecurity:
    """What `asked` came to.

    folder  where its files are; None: a temporary one, which `close` removes
    raises  ConfigError: no package cryptography; ServerError: a file cannot be read or written
    """

    def __init__(self, asked: Security, folder: Path | None = None) -> None:
        from krust.security import authority

        self.folder = temporary_dir() if folder is None else folder.absolute()
        self._removal = weakref.finalize(self, remove_when_dead, self.folder, os.getpid())
        if folder is not None:
            self._removal.detach()
        self._authority = self.folder / authority.CA
        self._brokers = self.folder / authority.BROKERS
        self._brokers_password = secrets.token_hex(16)
        self._has_users = False
        """whether the metadata has the users, or is getting them"""
        try:
            private_folder(self.folder)
            self.notes: list[str] = authority.prepare(self.folder, asked.hosts)
            """what replaced files of an earlier start"""
            kept = self._kept()
        except OSError as error:
            self.close()
            raise ServerError(
                f"cannot keep certificates in {error.filename or self.folder}: {error.strerror}",
                hint="choose another directory",
            ) from None
        except BaseException:
            self.close()
            raise
        self.users = _users(asked, kept)
        """the users with their passwords, admin first"""
        new = set(self.users) - set(kept) - {ADMIN}
        self._to_grant = sorted(new) if asked.acls_for_users else []

    def close(self) -> None:
        """Remove the files if they are temporary. Idempotent."""
        self._removal()

    @property
    def first_user(self) -> str:
        """The first user that is no super user; admin: there is no other."""
        return next((name for name in self.users if name != ADMIN), ADMIN)

    def rights_of(self, user: str) -> str:
        """What a user may do, in words."""
        if user == ADMIN:
            return "may do everything (super user)"
        if user in self._to_grant:
            return "may do everything with topics, groups and transactions"
        return "may do what ACLs allow (krust acl)"

    def login(self, bootstrap: str, user: str = ADMIN, mechanism: str = SCRAM) -> ClientLogin:
        """How a user logs in. ConfigError: there is no such user."""
        password = self.users.get(user)
        if password is None:
            raise ConfigError.choice("user", list(self.users), user)
        return ClientLogin(bootstrap, user, password, self._authority, mechanism)

    def broker_settings(
        self, given: Mapping[str, object], port: int, *, has_peers: bool
    ) -> dict[str, object]:
        """The settings of a broker on localhost. Those that were given win.

        has_peers  whether it needs a listener for other brokers of its process
        raises     ConfigError: listeners were given, or a ZooKeeper: it may have an admin already,
                   whose password would be replaced
        """
        if given.get("zookeeper.connect"):
            raise ConfigError(
                "secure makes users, and a ZooKeeper may have users of other brokers",
                hint="leave the ZooKeeper out, or make users with krust user: docs/security.md",
            )
        for name in _LISTENERS:
            if name in given:
                raise ConfigError(
                    f"{name} was given, and secure makes the listeners",
                    hint=f"leave {name} out, or set up security with settings: docs/security.md",
                )
        users = " ".join(f"user_{name}={quoted(text)}" for name, text in self.users.items())
        found: dict[str, object] = {
            "listeners": f"{_CLIENTS}://localhost:{port}",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"listener.name.{_CLIENTS.lower()}.plain.sasl.jaas.config": _jaas(users),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._brokers),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
            authorizer.CLASS: authorizer.CLASSES[0],
        }
        super_users = [f"User:{ADMIN}", f"User:{BROKERS_USER}", str(given.get("super.users", ""))]
        if has_peers:
            found |= self._between_brokers(str(found["listeners"]))
        return found | dict(given) | {"super.users": ";".join(filter(None, super_users))}

    def _between_brokers(self, listeners: str) -> dict[str, object]:
        """The listener that brokers alone can log in at: on a free port of 127.0.0.1."""
        password = quoted(self._brokers_password)
        login = f"username={quoted(BROKERS_USER)} password={password}"
        of_listener = f"listener.name.{_BROKERS.lower()}"
        return {
            "listeners": f"{listeners},{_BROKERS}://127.0.0.1:0",
            "listener.security.protocol.map": f"{_CLIENTS}:SASL_SSL,{_BROKERS}:SASL_SSL",
            "inter.broker.listener.name": _BROKERS,
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            f"{of_listener}.sasl.enabled.mechanisms": PLAIN,
            f"{of_listener}.plain.sasl.jaas.config": _jaas(
                f"{login} user_{BROKERS_USER}={password}"
            ),
        }

    def first_users(self) -> FirstUsers | None:
        """What the first broker writes before it takes a connection; None: it was written."""
        if self._has_users:
            return None
        self._has_users = True
        bindings = [
            acls.AclBinding(
                kind, acls.LITERAL, name, f"User:{user}", acls.WILDCARD,
                acls.OPERATIONS[operation], acls.ALLOW,
            )
            for user in self._to_grant
            for kind, (name, operations) in _GRANTED.items()
            for operation in operations
        ]  # fmt: skip
        return FirstUsers([_credential(*each) for each in self.users.items()], bindings)

    def started(self, bootstrap: str) -> None:
        """Write the files about users, after the start. ServerError: they cannot be written."""
        state: dict[str, Any] = {
            "bootstrap": bootstrap,
            "security_protocol": SECURITY_PROTOCOL,
            "mechanisms": MECHANISMS,
            "ca": str(self._authority),
            "users": self.users,
        }
        try:
            self._write(STATE, json.dumps(state, indent=2) + "\n")
            for user in self.users:
                java = client_settings.java(self.login(bootstrap, user))
                self._write(f"{user}.properties", properties.written(java))
                simple = client_settings.dotted(self.login(bootstrap, user, PLAIN))
                text = "".join(f"{name}={value}\n" for name, value in simple.items())
                self._write(f"{user}.conf", text)
            java = client_settings.java(self.login(bootstrap, self.first_user))
            self._write(CLIENT, properties.written(java))
        except OSError as error:
            raise ServerError(
                f"cannot write {error.filename}: {error.strerror}", hint="look at the disk"
            ) from None

    def _write(self, name: str, text: str) -> None:
        write_private(self.folder / name, text.encode())

    def _kept(self) -> dict[str, str]:
        """The users of an earlier start with their passwords."""
        path = self.folder / STATE
        try:
            state = json.loads(path.read_bytes())
            users = {str(name): str(text) for name, text in state["users"].items()}
            Security(users=users)
            return users
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
            raise ServerError(
                f"{path} cannot be read: {error}",
                hint="repair it, or remove it: then all users get new passwords",
            ) from None


def _users(asked: Security, kept: Mapping[str, str]) -> dict[str, str]:
    """All users with their passwords: kept ones, those asked for, new random ones."""
    names = (ADMIN, *kept, *asked.users) if kept or asked.users else DEFAULT_USERS
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        found[name] = asked.users.get(name) or kept.get(name) or secrets.token_hex(12)
    return found


def _credential(user: str, password: str) -> ScramCredentialUpsertion:
    return scram.upsertion(user, SCRAM, password, os.urandom(20))


def _jaas(options: str) -> str:
    return f"{PLAIN_MODULE} required {options};"
