"""The contract of an authorizer in Python: it gives clients their ACLs (`authorizer.class.name`).

An authorizer is any object with a `name` and an `acls`. It needs no base class:

    class Teams:
        name = "teams"

        def acls(self, client):
            team = client.user.partition("-")[0]
            return [ClientAcl.allow("topic", f"{team}-*", "read", "write")]

It is asked for a client, not for a request: the broker evaluates the ACLs itself, by Kafka's rules.
An operation is allowed if one of them allows it and none denies it; Read, Write, Delete and Alter
include Describe, and AlterConfigs includes DescribeConfigs. krust asks when a client's first
request comes, and again twice a second while it is connected (`krust.authorizer.cache.ms`). The
calls come one at a time, in a process of its own, so `acls` should answer from memory. It may
raise; nothing is allowed to that client then. It is never asked for super users.
Pure: `rows` checks what user code returns. The broker gets plain numbers and texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypedDict, runtime_checkable

from krust.controller.acls import CLUSTER, CLUSTER_NAME, WILDCARD, number
from krust.errors import ConfigError
from krust.named_tuple import NamedTuple
from krust.plugins import Plugins, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ACLS = 10_000
"""ACLs of one client; each operation counts"""
MOST_CHARACTERS = 32_767
"""of a name"""


class AclClient(NamedTuple):
    """A client that is connected, or has been.

    user      the name of its principal; `ANONYMOUS` without a login and without a certificate
    host      the address it comes from
    listener  the name of the listener it came through
    """

    user: str
    host: str
    listener: str


@dataclass(frozen=True, slots=True)
class ClientAcl:
    """Whether the client may do operations with resources. Words are Kafka's, in any case, with or
    without hyphens. ConfigError: there is no such word.

    resource_type  `topic`, `group`, `cluster`, `transactional-id`, `delegation-token`, `user`
    name           `*`: all of the type; the only cluster is `kafka-cluster`
    operations     `read`, `write`, `describe`, `create` ...; `all`
    pattern_type   `literal`, or `prefixed`: names that begin so
    permission     `allow`, or `deny`, which wins
    """

    resource_type: str
    name: str
    operations: tuple[str, ...]
    pattern_type: str = "literal"
    permission: str = "allow"

    def __post_init__(self) -> None:
        self.rows()

    @classmethod
    def allow(cls, resource_type: str, name: str, *operations: str) -> Self:
        """Allow operations. A name that ends with `*` is the beginning of names."""
        return cls(resource_type, *_pattern(name, operations))

    @classmethod
    def deny(cls, resource_type: str, name: str, *operations: str) -> Self:
        """Deny operations, whatever else allows them. Names as in `allow`."""
        return cls(resource_type, *_pattern(name, operations), "deny")

    def rows(self) -> list[tuple[int, int, str, int, int]]:
        """Type of the resource, type of the pattern, name, operation, permission, for each
        operation, with Kafka's numbers.

        raises  ConfigError: a word that Kafka does not have, or no operation
        """
        kind, pattern = number("resource_type", self.resource_type), self.pattern_type
        pattern_type, permission = number("pattern_type", pattern), self.permission
        allows = number("permission", permission)
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MOST_CHARACTERS:
            raise ConfigError(f"{shown(self.name)} is no name of a {self.resource_type}")
        if kind == CLUSTER and self.name not in (CLUSTER_NAME, WILDCARD):
            raise ConfigError(f"the only cluster is {CLUSTER_NAME}, not {shown(self.name)}")
        if isinstance(self.operations, str) or not self.operations:
            raise ConfigError(f"an ACL for {self.resource_type} {self.name} has no operations")
        return [
            (kind, pattern_type, self.name, number("operation", each), allows)
            for each in self.operations
        ]


@runtime_checkable
class Authorizer(Protocol):
    """Says what clients may do."""

    name: str

    def acls(self, client: AclClient) -> Iterable[ClientAcl]:
        """The ACLs that hold for a client. None at all: it may do nothing."""


class AnswerError(ValueError):
    """What an authorizer returned is no list of ACLs; the message says why."""


class Answer(TypedDict, total=False):
    """What an authorizer answers: one of these."""

    acls: list[tuple[int, int, str, int, int]]
    """type of the resource, type of the pattern, name, operation, permission"""
    wrong: str
    """why what it returned is no list of ACLs"""


def asked(authorizer: Authorizer, client: AclClient) -> Answer:
    """Call an authorizer. What it raises is raised."""
    answer = authorizer.acls(client)
    try:
        return {"acls": rows(answer)}
    except AnswerError as error:
        return {"wrong": str(error)}


def rows(answer: object) -> list[tuple[int, int, str, int, int]]:
    """The rows of what user code returned. AnswerError: it is no list of ACLs."""
    if isinstance(answer, str | bytes) or not hasattr(answer, "__iter__"):
        raise AnswerError(f"acls() returned {shown(answer)}, which is no list of ClientAcl")
    found: list[tuple[int, int, str, int, int]] = []
    for each in answer:
        if not isinstance(each, ClientAcl):
            raise AnswerError(f"acls() returned {shown(each)} in its list, which is no ClientAcl")
        found += each.rows()
        if len(found) > MOST_ACLS:
            raise AnswerError(f"acls() returned more than {MOST_ACLS} ACLs: use prefixes")
    return found


def _pattern(name: str, operations: tuple[str, ...]) -> tuple[str, tuple[str, ...], str]:
    """The name, the operations and the type of pattern of an ACL with such a name."""
    if isinstance(name, str) and name.endswith(WILDCARD) and name != WILDCARD:
        return name[:-1], operations, "prefixed"
    return name, operations, "literal"


AUTHORIZERS: Plugins[Authorizer] = Plugins(
    "authorizer",
    "krust.authorizers",
    {},
    "acls",
    "`name` and `acls(client)`",
)
"""Authorizers of packages (entry points of `krust.authorizers`), and by import path."""
