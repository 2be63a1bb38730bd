"""Which ACL decides: the rules by which Kafka allows and denies."""

from __future__ import annotations

from typing import Any

import pytest

from krust.controller.acl_check import Access, decide
from krust.controller.acls import (
    ALLOW,
    DENY,
    GROUP,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    RESOURCE_TYPES,
    TOPIC,
    AclBinding,
)
from tests.acl_matrix.reference import Reference
from tests.acl_matrix.rules import CLUSTER, SUPPORTED, Rule
from tests.acl_matrix.scenarios import HERE, scenarios

ALICE, HOST = "User:alice", "10.0.0.7"


def acl(operation: str = "Read", permission: int = ALLOW, **other: Any) -> AclBinding:
    one = AclBinding(TOPIC, LITERAL, "orders", ALICE, "*", OPERATIONS[operation], permission)
    return one._replace(**other)


def access(operation: str = "Read", host: str | None = HOST) -> Access:
    return Access(ALICE, host, OPERATIONS[operation], TOPIC, "orders")


@pytest.mark.parametrize(
    "allowing",
    [
        acl(),
        acl("All"),
        acl(principal="User:*"),
        acl(host=HOST),
        acl(name="*"),
        acl(name="ord", pattern_type=PREFIXED),
        acl(name="orders", pattern_type=PREFIXED),
    ],
)
def test_an_acl_that_fits_allows(allowing: AclBinding) -> None:
    decision = decide([allowing], access())
    assert (decision.allowed, decision.binding) == (True, allowing)


@pytest.mark.parametrize(
    ("other", "is_named"),
    [
        (acl("Write"), True),
        (acl("Describe"), True),
        (acl(principal="User:bob"), True),
        (acl(principal="Group:*"), True),
        (acl(host="10.0.0.8"), True),
        (acl(name="order"), False),
        (acl(name="*", pattern_type=PREFIXED), False),
        (acl(name="orders2", pattern_type=PREFIXED), False),
        (acl(resource_type=GROUP), False),
    ],
)
def test_an_acl_that_does_not_fit_decides_nothing(other: AclBinding, is_named: bool) -> None:
    decision = decide([other], access())
    assert (decision.allowed, decision.binding, decision.is_named) == (False, None, is_named)


@pytest.mark.parametrize("denying", [acl("Read", DENY), acl("All", DENY, name="*")])
def test_a_denial_wins_whatever_its_place(denying: AclBinding) -> None:
    for bindings in ([denying, acl()], [acl(), denying]):
        assert decide(bindings, access())[:2] == (False, denying)


@pytest.mark.parametrize(
    ("has", "wants"),
    [
        *((each, "Describe") for each in ("Read", "Write", "Delete", "Alter")),
        ("AlterConfigs", "DescribeConfigs"),
    ],
)
def test_some_operations_imply_a_description_if_they_are_allowed(has: str, wants: str) -> None:
    assert decide([acl(has)], access(wants)).allowed
    assert not decide([acl(wants)], access(has)).allowed
    both = [acl(wants), acl(has, DENY)]
    assert decide(both, access(wants)).allowed


@pytest.mark.parametrize("has", ["Create", "DescribeConfigs", "AlterConfigs"])
def test_other_operations_imply_no_description(has: str) -> None:
    assert not decide([acl(has)], access("Describe")).allowed


def test_without_a_host_the_acls_of_certain_hosts_are_told_apart() -> None:
    here, not_here = acl(host=HOST), acl("All", DENY, host=HOST)
    assert decide([here], access(host=None)) == (False, None, True, (here,))
    assert decide([acl(), not_here, here], access(host=None)) == (True, acl(), True, (not_here,))
    everywhere = acl("Read", DENY)
    assert decide([here, everywhere], access(host=None)) == (False, everywhere, True, ())
    assert decide([here], access(host=HOST)).otherwise == ()


def test_it_decides_as_the_reference_of_the_matrix() -> None:
    """So it decides as the core and as Kafka, which the matrix compares with that reference."""
    compared = 0
    for each in scenarios():
        reference = Reference(each.rules, each.user, HERE, set(), is_open=False)
        bindings = [binding(rule) for rule in each.rules]
        for resource, operations in SUPPORTED.items():
            for operation in operations:
                for name in (each.names.there, each.names.group, each.names.txn, CLUSTER):
                    numbers = OPERATIONS[operation], RESOURCE_TYPES[resource]
                    asked = Access(f"User:{each.user}", HERE, *numbers, name)
                    allowed = reference.allows(resource, operation, name)
                    assert decide(bindings, asked).allowed == allowed, (each.user, asked)
                    compared += 1
    assert compared > 20_000


def binding(rule: Rule) -> AclBinding:
    return AclBinding(
        RESOURCE_TYPES[rule.resource],
        PREFIXED if rule.pattern == "prefixed" else LITERAL,
        rule.name,
        rule.principal,
        rule.host,
        OPERATIONS[rule.operation],
        DENY if rule.permission == "Deny" else ALLOW,
    )
