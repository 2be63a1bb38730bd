"""The nodes of ACLs in the tree: their paths, and their bytes as Kafka 3.9.1 writes them.

/kafka-acl/TYPE/NAME                     the entries of a literal pattern
/kafka-acl-extended/prefixed/TYPE/NAME   the entries of a prefixed pattern
/kafka-acl-changes/acl_changes_N         names a literal pattern that changed, as `TOPIC:orders`
/kafka-acl-extended-changes/acl_changes_N  names a prefixed one, as JSON
Names of resources are not escaped. Each set of entries is written in a fixed order; Kafka's order
is that of a hash table. As in Kafka, a node without bytes has no entries.
Bytes may come from anyone: BadZnodeError says what is wrong with them. A permission or operation
that nobody knows makes the whole node invalid, since nobody can tell what it denies.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from krust.controller.acls import (
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    AclBinding,
    ResourcePattern,
    is_name,
)
from krust.metadata.json_fields import BadZnodeError, parse
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ROOTS = {LITERAL: "/kafka-acl", PREFIXED: "/kafka-acl-extended/prefixed"}
"""where the patterns of each type are, below them a node for each type of resource"""
CHANGES = {LITERAL: "/kafka-acl-changes", PREFIXED: "/kafka-acl-extended-changes"}
"""the parents of the nodes that name changed patterns"""
CHANGE_PREFIX = "acl_changes_"

_TYPE_NAMES = {number: name for name, number in RESOURCE_TYPES.items()}
_PATTERN_NAMES = {number: name for name, number in PATTERN_TYPES.items()}
_OPERATION_NAMES = {number: name for name, number in OPERATIONS.items()}
_PERMISSION_NAMES = {number: name for name, number in PERMISSIONS.items()}

FOLDERS = {
    f"{root}/{name}": (resource_type, pattern_type)
    for pattern_type, root in ROOTS.items()
    for name, resource_type in RESOURCE_TYPES.items()
}
"""the parents of the nodes of patterns, with the types of these"""

PERSISTENT = (
    "/kafka-acl",
    "/kafka-acl-extended",
    "/kafka-acl-extended/prefixed",
    *FOLDERS,
    *CHANGES.values(),
)
"""The nodes that an authorizer creates at its start, parents first."""


class AclEntry(NamedTuple):
    """One ACL without the resource that it is about."""

    principal: str
    host: str
    operation: int
    permission: int

    def of(self, pattern: ResourcePattern) -> AclBinding:
        """The binding of this entry and a resource pattern."""
        return AclBinding(*pattern, self.principal, self.host, self.operation, self.permission)


def path(pattern: ResourcePattern) -> str:
    """The node with the entries of a pattern."""
    return f"{ROOTS[pattern.pattern_type]}/{_TYPE_NAMES[pattern.resource_type]}/{pattern.name}"


def is_storable(pattern: ResourcePattern) -> bool:
    """Whether there can be a node for a pattern."""
    return is_name(pattern.name)


def change_path(pattern: ResourcePattern) -> str:
    """The path of the sequential node that says that a pattern has changed."""
    return f"{CHANGES[pattern.pattern_type]}/{CHANGE_PREFIX}"


def encode(entries: Collection[AclEntry]) -> bytes:
    """The entries of a pattern, as its node has them."""
    listed = [
        {
            "principal": each.principal,
            "permissionType": _PERMISSION_NAMES[each.permission],
            "host": each.host,
            "operation": _OPERATION_NAMES[each.operation],
        }
        for each in sorted(entries)
    ]
    return _encode({"acls": listed, "version": 1})


def decode(data: bytes) -> frozenset[AclEntry]:
    """The entries in a pattern's node. BadZnodeError: the bytes are invalid."""
    if not data:
        return frozenset()
    fields = _fields(data)
    rows = fields.get("acls")
    if not isinstance(rows, list):
        raise BadZnodeError("acls is no list")
    return frozenset(_entry(each) for each in rows)


def encode_change(pattern: ResourcePattern) -> bytes:
    """The bytes of the node that says that a pattern has changed."""
    kind = _enum_name(_TYPE_NAMES[pattern.resource_type])
    if pattern.pattern_type == LITERAL:
        return f"{kind}:{pattern.name}".encode()
    fields = {"version": 1, "resourceType": kind, "name": pattern.name}
    return _encode({**fields, "patternType": _PATTERN_NAMES[pattern.pattern_type]})


def decode_change(pattern_type: int, data: bytes | None) -> ResourcePattern:
    """The pattern that has changed. BadZnodeError: it is not known.

    pattern_type  whose folder the node is in
    data          None: the node is gone, or cannot be read
    """
    if data is None:
        raise BadZnodeError("it cannot be read")
    if pattern_type == LITERAL:
        try:
            kind, colon, name = data.decode().partition(":")
        except ValueError as error:
            raise BadZnodeError(f"it is no text: {error}") from None
        if not (colon and name):
            raise BadZnodeError(f"it names no resource: {data[:100]!r}")
        return ResourcePattern(_known(kind, RESOURCE_TYPES), LITERAL, name)
    fields = _fields(data)
    name = _text(fields, "name")
    if not name:
        raise BadZnodeError("name is empty")
    found = _known(_text(fields, "patternType"), PATTERN_TYPES)
    return ResourcePattern(_known(_text(fields, "resourceType"), RESOURCE_TYPES), found, name)


def _entry(row: object) -> AclEntry:
    if not isinstance(row, dict):
        raise BadZnodeError("one of acls is no object")
    principal = _text(row, "principal")
    if ":" not in principal:
        raise BadZnodeError(f"{principal[:100]!r} is no principal")
    return AclEntry(
        principal,
        _text(row, "host"),
        _known(_text(row, "operation"), OPERATIONS),
        _known(_text(row, "permissionType"), PERMISSIONS),
    )


def _known(text: str, numbers: Mapping[str, int]) -> int:
    """The number of a name, which may be written as Kafka's enums are, or in another case."""
    wanted = _folded(text)
    for name, number in numbers.items():
        if _folded(name) == wanted:
            return number
    raise BadZnodeError(f"{text[:100]!r} is none of {', '.join(numbers)}")


def _folded(text: str) -> str:
    return text.replace("_", "").lower()


def _enum_name(name: str) -> str:
    """`TransactionalId` as `TRANSACTIONAL_ID`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str):
        raise BadZnodeError(f"{name} is no text")
    return found


def _fields(data: bytes) -> dict[str, Any]:
    """A JSON object of version 1."""
    found = parse(data)
    if found.get("version") != 1 or isinstance(found["version"], bool):
        raise BadZnodeError(f"its version is {str(found.get('version'))[:40]}, known is 1")
    return found


_CONTROL = r"(\\\\)|\\u00[01][a-f]"


def _encode(value: object) -> bytes:
    """JSON as Kafka writes it: without spaces, and with capital digits in escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if "\\u" in text:
        text = re.sub(_CONTROL, lambda found: found[0] if found[1] else _capital(found[0]), text)
    return text.encode()


def _capital(escape: str) -> str:
    return escape[:2] + escape[2:].upper()
