"""ACLs: who may do what with which resource, and the filters that find them.

A binding joins a resource pattern (type, pattern type, name) and an entry (principal, host,
operation, permission). A literal pattern holds for the resource of that name, `*` for all; a
prefixed one for every resource whose name begins so. Numbers are those of Kafka's protocol.
Pure: this knows no znode and no request.
Not here: whether a request is allowed. The core decides that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import ConfigError
from krust.metadata.store import is_path
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.messages.create_acls import AclCreation

ANY = 1
"""in a filter: every type, pattern type, operation or permission"""
MATCH = 2
"""in a filter: every pattern that holds for the resource of that name"""

RESOURCE_TYPES = {
    "Topic": 2,
    "Group": 3,
    "Cluster": 4,
    "TransactionalId": 5,
    "DelegationToken": 6,
    "User": 7,
}
PATTERN_TYPES = {"LITERAL": 3, "PREFIXED": 4}
OPERATIONS = {
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
    "CreateTokens": 13,
    "DescribeTokens": 14,
}
PERMISSIONS = {"Deny": 2, "Allow": 3}

PATTERNS = {name.capitalize(): number for name, number in PATTERN_TYPES.items()}
TABLES: Mapping[str, Mapping[str, int]] = {
    "resource_type": RESOURCE_TYPES,
    "pattern_type": PATTERNS,
    "operation": OPERATIONS,
    "permission": PERMISSIONS,
}
"""The fields that are numbers in requests, with their names."""

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = RESOURCE_TYPES.values()
LITERAL, PREFIXED = PATTERN_TYPES.values()
DENY, ALLOW = PERMISSIONS.values()
ALL = OPERATIONS["All"]

WILDCARD = "*"
"""all resources of a type, or all hosts"""
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
BY_CLASS = "a class of the user's decides what clients may do"
"""in the message of SECURITY_DISABLED, if it is so"""

_OPERATIONS_OF = {
    TOPIC: "Read Write Create Delete Alter Describe DescribeConfigs AlterConfigs",
    GROUP: "Read Delete Describe",
    CLUSTER: "Create Alter Describe ClusterAction DescribeConfigs AlterConfigs IdempotentWrite",
    TRANSACTIONAL_ID: "Write Describe",
    DELEGATION_TOKEN: "Describe",
    USER: "CreateTokens DescribeTokens",
}
SUPPORTED_OPERATIONS = {
    kind: frozenset({ALL, *(OPERATIONS[name] for name in names.split())})
    for kind, names in _OPERATIONS_OF.items()
}
"""The operations that mean something for each type of resource. Brokers store others too."""


class ResourcePattern(NamedTuple):
    """What a binding is about."""

    resource_type: int
    pattern_type: int
    name: str


class AclBinding(NamedTuple):
    """One ACL, as the core gets it."""

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    """such as `User:alice`"""
    host: str
    operation: int
    permission: int

    @property
    def pattern(self) -> ResourcePattern:
        """Its resource pattern."""
        return ResourcePattern(*self[:3])


class AclFilter(NamedTuple):
    """Finds bindings. None, or ANY: every value."""

    resource_type: int | None = None
    pattern_type: int | None = None
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int | None = None
    permission: int | None = None

    def matches(self, binding: AclBinding) -> bool:
        """Whether it finds this binding."""
        return self.matches_pattern(binding.pattern) and self._matches_entry(binding)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether it finds bindings with this resource pattern."""
        if not _equal(self.resource_type, pattern.resource_type):
            return False
        if self.pattern_type != MATCH:
            named = self.name is None or self.name == pattern.name
            return named and _equal(self.pattern_type, pattern.pattern_type)
        if self.name is None:
            return True
        if pattern.pattern_type == PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    @property
    def named_pattern(self) -> ResourcePattern | None:
        """The only pattern that it finds bindings of; None: there may be several."""
        kind, pattern_type, name = self.resource_type, self.pattern_type, self.name
        if kind is None or pattern_type is None or name is None:
            return None
        if kind == ANY or pattern_type in (ANY, MATCH):
            return None
        return ResourcePattern(kind, pattern_type, name)

    def _matches_entry(self, binding: AclBinding) -> bool:
        return (
            self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and _equal(self.operation, binding.operation)
            and _equal(self.permission, binding.permission)
        )


def number(field: str, text: str) -> int:
    """The number of a name, in any case, with or without hyphens. ConfigError: there is no such
    name.
    """
    known = TABLES[field]
    numbers = {_plain(name): value for name, value in known.items()}
    if _plain(text) not in numbers:
        raise ConfigError.choice(field.replace("_", " "), known, text)
    return numbers[_plain(text)]


def validate(binding: AclBinding) -> str | None:
    """What is wrong with a binding that is to be created; None: nothing."""
    checks = (
        ("resourceType", binding.resource_type, RESOURCE_TYPES),
        ("patternType", binding.pattern_type, PATTERN_TYPES),
        ("operation", binding.operation, OPERATIONS),
        ("permissionType", binding.permission, PERMISSIONS),
    )
    for name, number, known in checks:
        if number not in known.values():
            return f"Invalid {name} {_NO_NAMES.get((name, number), 'UNKNOWN')}"
    if binding.resource_type == CLUSTER and binding.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not binding.name:
        return "Invalid empty resource name"
    if not is_name(binding.name):
        return f"ACL binding contains invalid resource name: {binding.name}"
    if ":" not in binding.principal:
        return (
            f"Could not parse principal from `{binding.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    return None


def is_name(name: str) -> bool:
    """Whether ACLs of a resource with this name can be stored: a node of the tree has the name."""
    return "/" not in name and bool(name) and is_path(f"/{name}")


def creation(binding: AclBinding) -> AclCreation:
    """A binding as CreateAcls asks for it."""
    return {
        "resource_type": binding.resource_type,
        "resource_name": binding.name,
        "resource_pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }


def rows(bindings: Iterable[AclBinding]) -> list[tuple[int, int, str, str, str, int, int]]:
    """The bindings as the core takes them."""
    return list(bindings)


def _plain(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")


def _equal(asked: int | None, there: int) -> bool:
    return asked in (None, ANY, there)


_NO_NAMES = {
    ("resourceType", ANY): "ANY",
    ("patternType", ANY): "ANY",
    ("patternType", MATCH): "MATCH",
    ("operation", ANY): "ANY",
    ("permissionType", ANY): "ANY",
}
"""Kafka's names of numbers that no binding has."""
