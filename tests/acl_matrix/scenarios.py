"""The users of the matrix, each with ACLs of its own.

    allow   one operation and nothing else
    deny    All on everything, but for one operation

on each pair of resource type and operation; by a literal name, a prefix or `*`; for the user
itself, by the right or a wrong host, for another principal, or for everybody. Besides, users
without ACLs, super users, and pairs of ACLs that meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from tests.acl_matrix.rows import Names, Row
from tests.acl_matrix.rules import CLUSTER, SUPPORTED, Rule

HERE, ELSEWHERE = "127.0.0.1", "10.0.0.1"
SUPER = "super"
PATTERNS = ("literal", "prefix", "star")
WHO = ("host", "elsewhere", "another", "everyone")
COVERED = {
    "Topic": ("there", "auto", "doomed"),
    "Group": ("group",),
    "TransactionalId": ("txn",),
}
"""what a literal ACL is about; the rest has none"""


class Scenario(NamedTuple):
    """A user and the ACLs that the matrix makes for it.

    shared  whether they are about others' resources too
    """

    user: str
    rules: list[Rule]
    shared: bool

    def versions(self, row: Row) -> Sequence[int]:
        """Those of a row that it asks: all of them, or the last."""
        asks_all = self.user in ("none", SUPER) or self.user.endswith("-literal-own")
        return row.versions if asks_all else row.versions[-1:]

    @property
    def names(self) -> Names:
        return Names.of(self.user)


def scenarios() -> list[Scenario]:
    """All of them."""
    return [Scenario("none", [], False), Scenario(SUPER, [], False), *_single(), *_pairs()]


def few() -> list[Scenario]:
    """Those that are asked again where everybody may do what no ACL is about."""
    names = ("-literal-own", "-host", "-elsewhere", "-everyone", "none", SUPER)
    return [each for each in scenarios() if each.user.endswith(names)] + list(_pairs())


def _single() -> Iterator[Scenario]:
    turn = cycle(PATTERNS)
    for permission in ("Allow", "Deny"):
        for resource, operations in SUPPORTED.items():
            for operation in ("All", *operations):
                for who in ("own", *WHO):
                    for pattern in _patterns(resource, PATTERNS if who == "own" else (next(turn),)):
                        yield _scenario(permission, resource, operation, pattern, who)


def _patterns(resource: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    return ("literal",) if resource == "Cluster" else wanted


def _scenario(permission: str, resource: str, operation: str, pattern: str, who: str) -> Scenario:
    user = f"{permission}-{resource}-{operation}-{pattern}-{who}".lower()
    principal = {"another": "User:another", "everyone": "User:*"}.get(who, f"User:{user}")
    host = {"host": HERE, "elsewhere": ELSEWHERE}.get(who, "*")
    rules = [
        Rule(permission, resource, kind, name, principal, host, operation)
        for kind, name in _resources(resource, pattern, Names.of(user), user)
    ]
    if permission == "Deny":
        rules += everything(user)
    return Scenario(user, rules, who == "everyone" and (pattern == "star" or resource == "Cluster"))


def _resources(resource: str, pattern: str, names: Names, user: str) -> list[tuple[str, str]]:
    if resource == "Cluster":
        return [("literal", CLUSTER)]
    if pattern == "literal":
        return [("literal", getattr(names, name)) for name in COVERED[resource]]
    return [("literal", "*")] if pattern == "star" else [("prefixed", user)]


def everything(user: str) -> list[Rule]:
    """All on all resources."""
    common = (f"User:{user}", "*", "All")
    kinds = [each for each in SUPPORTED if each != "Cluster"]
    rows = [Rule("Allow", each, "literal", "*", *common) for each in kinds]
    return [*rows, Rule("Allow", "Cluster", "literal", CLUSTER, *common)]


def _pairs() -> Iterator[Scenario]:
    """An ALLOW and a DENY of Write and Read that meet on the same names, in all ways."""
    kinds = ("literal", "prefix", "shorter", "longer", "star")
    for operation in ("Write", "Read"):
        for allowed in kinds:
            for denied in kinds:
                user = f"meet-{operation}-{allowed}-{denied}".lower()
                rules = [
                    Rule(permission, "Topic", *_place(kind, user), f"User:{user}", "*", operation)
                    for permission, kind in (("Allow", allowed), ("Deny", denied))
                ]
                yield Scenario(user, rules, False)


def _place(kind: str, user: str) -> tuple[str, str]:
    places = {
        "literal": ("literal", Names.of(user).there),
        "prefix": ("prefixed", user),
        "shorter": ("prefixed", user[:6]),
        "longer": ("prefixed", f"{user}-the"),
        "star": ("literal", "*"),
    }
    return places[kind]
