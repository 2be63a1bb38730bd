"""ACLs: which bindings a filter finds, and which bindings cannot be."""

from itertools import product
from typing import Any

import pytest

from krust.controller import acls
from krust.controller.acls import ANY, LITERAL, MATCH, PREFIXED, AclBinding, AclFilter

READ = AclBinding(acls.TOPIC, LITERAL, "orders", "User:ann", "*", acls.OPERATIONS["Read"], 3)
NAMES = ("orders", "order", "ord", "*", "o", "other", "")


def pattern(pattern_type: int, name: str) -> AclBinding:
    return READ._replace(pattern_type=pattern_type, name=name)


def found(wanted: AclFilter) -> set[tuple[int, str]]:
    there = [pattern(kind, name) for kind, name in product((LITERAL, PREFIXED), NAMES)]
    return {(each.pattern_type, each.name) for each in there if wanted.matches(each)}


def test_the_numbers_are_those_of_kafkas_protocol() -> None:
    assert list(acls.RESOURCE_TYPES.values()) == list(range(2, 8))
    assert list(acls.OPERATIONS.values()) == list(range(2, 15))
    assert (acls.LITERAL, acls.PREFIXED, acls.DENY, acls.ALLOW) == (3, 4, 2, 3)


def test_an_empty_filter_and_one_of_anys_find_everything() -> None:
    anys = AclFilter(ANY, ANY, None, None, None, ANY, ANY)
    for wanted in (AclFilter(), anys):
        assert wanted.matches(READ)
        assert len(found(wanted)) == 2 * len(NAMES)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("resource_type", acls.GROUP),
        ("pattern_type", PREFIXED),
        ("name", "other"),
        ("principal", "User:bob"),
        ("host", "10.0.0.1"),
        ("operation", acls.ALL),
        ("permission", acls.DENY),
    ],
)
def test_each_field_of_a_filter_counts(field: str, other: Any) -> None:
    same = AclFilter(*READ)
    assert same.matches(READ)
    assert AclFilter(**{field: getattr(READ, field)}).matches(READ)
    assert not AclFilter(**{field: other}).matches(READ)
    assert not same._replace(**{field: other}).matches(READ)


def test_a_name_without_match_finds_that_very_name() -> None:
    for kind in (None, ANY):
        wanted = AclFilter(pattern_type=kind, name="orders")
        assert found(wanted) == {(LITERAL, "orders"), (PREFIXED, "orders")}
    assert found(AclFilter(pattern_type=PREFIXED, name="ord")) == {(PREFIXED, "ord")}
    assert found(AclFilter(pattern_type=LITERAL, name="*")) == {(LITERAL, "*")}


def test_match_finds_every_pattern_that_holds_for_a_resource() -> None:
    assert found(AclFilter(pattern_type=MATCH, name="orders")) == {
        (LITERAL, "orders"),
        (LITERAL, "*"),
        *((PREFIXED, name) for name in ("orders", "order", "ord", "o", "")),
    }
    assert found(AclFilter(pattern_type=MATCH, name="*")) == {
        (LITERAL, "*"),
        (PREFIXED, "*"),
        (PREFIXED, ""),
    }
    assert len(found(AclFilter(pattern_type=MATCH))) == 2 * len(NAMES)


def test_only_a_filter_with_type_pattern_type_and_name_names_one_pattern() -> None:
    assert AclFilter(*READ[:3]).named_pattern == READ.pattern
    for field in ("resource_type", "pattern_type", "name"):
        assert AclFilter(*READ[:3])._replace(**{field: None}).named_pattern is None
    for kind in (ANY, MATCH):
        assert AclFilter(*READ[:3])._replace(pattern_type=kind).named_pattern is None
    assert AclFilter(ANY, LITERAL, "orders").named_pattern is None


@pytest.mark.parametrize(
    "binding",
    [
        READ,
        pattern(PREFIXED, "*"),
        READ._replace(name="*"),
        READ._replace(principal="User:", host="no address"),
        READ._replace(operation=acls.OPERATIONS["IdempotentWrite"]),
        READ._replace(resource_type=acls.CLUSTER, name="kafka-cluster"),
        pattern(PREFIXED, "kafka-cluster")._replace(resource_type=acls.CLUSTER),
        READ._replace(resource_type=acls.USER, name="User:ann"),
    ],
)
def test_what_kafka_3_9_stores_can_be(binding: AclBinding) -> None:
    assert acls.validate(binding) is None


@pytest.mark.parametrize(
    ("binding", "text"),
    [
        (READ._replace(resource_type=ANY), "Invalid resourceType ANY"),
        (READ._replace(resource_type=0), "Invalid resourceType UNKNOWN"),
        (READ._replace(resource_type=8), "Invalid resourceType UNKNOWN"),
        (pattern(MATCH, "x"), "Invalid patternType MATCH"),
        (pattern(ANY, "x"), "Invalid patternType ANY"),
        (pattern(5, "x"), "Invalid patternType UNKNOWN"),
        (READ._replace(operation=ANY), "Invalid operation ANY"),
        (READ._replace(operation=15), "Invalid operation UNKNOWN"),
        (READ._replace(permission=ANY), "Invalid permissionType ANY"),
        (READ._replace(permission=0), "Invalid permissionType UNKNOWN"),
        (READ._replace(resource_type=acls.CLUSTER), "The only valid name for the CLUSTER resource"),
        (READ._replace(name=""), "Invalid empty resource name"),
        (READ._replace(name="a/b"), "invalid resource name: a/b"),
        (READ._replace(name=".."), "invalid resource name: .."),
        (READ._replace(name="a\x01"), "invalid resource name"),
        (READ._replace(principal="ann"), "Could not parse principal from `ann`"),
        (READ._replace(principal=""), "Could not parse principal"),
    ],
)
def test_what_cannot_be_is_told(binding: AclBinding, text: str) -> None:
    assert text in str(acls.validate(binding))


def test_the_core_gets_the_fields_in_their_order() -> None:
    assert acls.rows([READ]) == [(2, 3, "orders", "User:ann", "*", 3, 3)]
