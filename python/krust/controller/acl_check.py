"""Whether ACLs allow an operation, and which one decides: Kafka's rules, for `krust acl check`.

An ACL counts if its resource, principal, host and operation fit. A DENY that counts wins over every
ALLOW. An ALLOW of Read, Write, Delete or Alter implies Describe, and one of AlterConfigs implies
DescribeConfigs; a DENY implies nothing. If no ACL at all names the resource, the brokers' setting
allow.everyone.if.no.acl.found decides. Pure; for requests the core has the same rules.
Not known here: super users, whom brokers allow everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller.acls import (
    ALL,
    DENY,
    EVERYONE,
    MATCH,
    OPERATIONS,
    WILDCARD,
    AclBinding,
    AclFilter,
)
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_IMPLIED_BY = {
    OPERATIONS["Describe"]: {OPERATIONS[each] for each in ("Read", "Write", "Delete", "Alter")},
    OPERATIONS["DescribeConfigs"]: {OPERATIONS["AlterConfigs"]},
}


class Access(NamedTuple):
    """Who wants to do what."""

    principal: str
    host: str | None
    """the client's address; None: any, so that only ACLs of all hosts count"""
    operation: int
    resource_type: int
    name: str


class AccessDecision(NamedTuple):
    """Whether an access is allowed, and why."""

    allowed: bool
    binding: AclBinding | None
    """the ACL that decides; None: none counts"""
    is_named: bool
    """whether any ACL names the resource"""
    otherwise: tuple[AclBinding, ...]
    """for an access without a host: ACLs that make it the other way round for some hosts"""


def decide(bindings: Iterable[AclBinding], access: Access) -> AccessDecision:
    """Decide one access. If several ACLs would decide it, the first one is named."""
    resource = AclFilter(access.resource_type, MATCH, access.name)
    named = [each for each in bindings if resource.matches(each)]
    fitting = [each for each in named if _is_of(each, access)]
    counting = [each for each in fitting if each.host in (WILDCARD, access.host)]
    denies = [each for each in counting if each.permission == DENY]
    allows = [each for each in counting if each.permission != DENY]
    allowed = bool(allows) and not denies
    otherwise: tuple[AclBinding, ...] = ()
    if access.host is None and not denies:
        others = (each for each in fitting if each.host != WILDCARD)
        otherwise = tuple(each for each in others if (each.permission == DENY) is allowed)
    return AccessDecision(allowed, next(iter(denies or allows), None), bool(named), otherwise)


def _is_of(binding: AclBinding, access: Access) -> bool:
    """Whether the principal and the operation of an access are the binding's."""
    operations = {ALL, access.operation}
    if binding.permission != DENY:
        operations |= _IMPLIED_BY.get(access.operation, set())
    return binding.principal in (EVERYONE, access.principal) and binding.operation in operations
