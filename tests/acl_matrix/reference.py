"""What Kafka answers to a row under some ACLs, in as few lines as say it.

A DENY wins over every ALLOW; All stands for each operation; some operations imply others, but
only for ALLOW; a prefix, the name `*`, the host `*` and the principal `User:*` match more than
one; super users may do all; without an ACL on a resource nobody may, unless the settings say that
everybody may.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.acl_matrix.rows import Names
from tests.acl_matrix.rules import BITS, CLUSTER, IMPLIED, SUPPORTED, Rule


class Reference:
    """The answers that one user gets from one host."""

    def __init__(
        self, rules: Iterable[Rule], user: str, host: str, supers: set[str], *, is_open: bool
    ) -> None:
        self.rules, self.is_open, self.is_super = list(rules), is_open, user in supers
        mine = (f"User:{user}", "User:*"), (host, "*")
        self.mine = [r for r in self.rules if r.principal in mine[0] and r.host in mine[1]]

    def allows(self, resource: str, operation: str, name: str) -> bool:
        if self.is_super:
            return True
        if name == "any":
            return self._allows_any(resource, operation)
        if not any(rule.covers(resource, name) for rule in self.rules):
            return self.is_open
        mine = [rule for rule in self.mine if rule.covers(resource, name)]
        if any(r.permission == "Deny" and r.operation in ("All", operation) for r in mine):
            return False
        enough = {"All", operation, *IMPLIED.get(operation, ())}
        return any(r.permission == "Allow" and r.operation in enough for r in mine)

    def _allows_any(self, resource: str, operation: str) -> bool:
        """Whether some resource may exist on which the operation is allowed."""
        about = [rule for rule in self.mine if rule.resource == resource]
        mine = [rule for rule in about if rule.operation in ("All", operation)]
        denied = [rule for rule in mine if rule.permission == "Deny"]
        if any(rule.pattern == "literal" and rule.name == "*" for rule in denied):
            return False
        return self.is_open or any(
            rule.permission == "Allow" and not any(_outdoes(each, rule) for each in denied)
            for rule in mine
        )

    def expected(self, checks: dict[str, str], names: Names) -> dict[str, int]:
        """The outcome of each item of a row."""
        return {item: self._outcome(each, names) for item, each in checks.items()}

    def _outcome(self, checks: str, names: Names) -> int:
        for check in filter(None, checks.split("; ")):
            code, _, permissions = check.partition(" ")
            if code == "bits":
                resource, _, of = permissions.partition(" ")
                name = getattr(names, of) if of else CLUSTER
                wanted = [op for op in SUPPORTED[resource] if self.allows(resource, op, name)]
                return sum(1 << BITS[operation] for operation in wanted)
            if not any(self._has(each.split(), names) for each in permissions.split(" | ")):
                return int(code)
        return 0

    def _has(self, permission: list[str], names: Names) -> bool:
        resource, operation, *of = permission
        name = CLUSTER if not of else "any" if of == ["any"] else getattr(names, of[0])
        return self.allows(resource, operation, name)


def _outdoes(denied: Rule, allowed: Rule) -> bool:
    """Whether a DENY covers all that an ALLOW does."""
    if denied.pattern == "prefixed":
        return allowed.name != "*" and allowed.name.startswith(denied.name)
    return allowed.pattern == "literal" and allowed.name == denied.name
