"""The settings of the authorizer: whether ACLs are obeyed, and whom they do not bind.

Kafka names a Java class. krust has one authorizer, with the semantics of Kafka's AclAuthorizer, for
every class of Kafka's own; it loads no Java class. A Python class (`module:Class`, or the name of a
package's entry point) gives the ACLs of each client itself (`krust.controller.authorizers`).
Functions of text alone: `Config` uses them for its checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import ConfigError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust.listeners import SettingLookup

CLASS = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

CLASSES = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's authorizers: the one with ZooKeeper, its older name, the one with KRaft."""

_USER = "User:"


class Authorizer(NamedTuple):
    """What the authorizer is told besides the ACLs."""

    super_users: list[str]
    """principals that may do everything, such as `User:admin`"""
    allow_everyone: bool
    """whether everyone may use a resource that has no ACL"""


def is_configured(text: SettingLookup) -> bool:
    """Whether the cluster's ACLs are obeyed."""
    return bool(_class(text)) and not plug_in(text)


def plug_in(text: SettingLookup) -> str:
    """The Python class that gives clients their ACLs, or its name; empty: there is none."""
    name = _class(text)
    return name if is_plug_in(name) else ""


def is_plug_in(name: str) -> bool:
    """Whether a class of this name is in Python: `module:Class`, or the name of an entry point."""
    return ":" in name or "." not in name


def authorizer(text: SettingLookup) -> Authorizer | None:
    """The authorizer; None: there is none. ConfigError: the settings name none that krust has."""
    name = _class(text)
    if not name:
        return None
    if name not in CLASSES and not plug_in(text):
        raise ConfigError(
            f"{CLASS} is {name}, which krust does not have: it loads no Java class",
            hint=f"set {CLASS}={CLASSES[0]}, or module:Class for one in Python, or leave it out: "
            "then everybody may do everything",
        )
    everyone = (text(ALLOW_EVERYONE) or "").strip().lower() == "true"
    return Authorizer(super_users(text(SUPER_USERS) or ""), everyone)


def super_users(given: str) -> list[str]:
    """The principals in `User:a;User:b`. ConfigError: one of them is no user."""
    names = [each.strip() for each in given.split(";") if each.strip()]
    for name in names:
        if not name.startswith(_USER) or name == _USER:
            raise ConfigError(
                f"{SUPER_USERS} names {name}, which is no user",
                hint=f"write {SUPER_USERS}=User:NAME;User:NAME (divided by ;)",
            )
    return names


def problems(text: SettingLookup) -> Iterator[ConfigError]:
    """What is wrong with these settings."""
    for check in (lambda: authorizer(text), lambda: super_users(text(SUPER_USERS) or "")):
        try:
            check()
        except ConfigError as error:
            yield error
            return


def _class(text: SettingLookup) -> str:
    return (text(CLASS) or "").strip()
