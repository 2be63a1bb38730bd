"""The nodes of ACLs. Bytes and paths are those that a Kafka 3.9.1 wrote."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.controller import acl_nodes
from krust.controller.acl_nodes import AclEntry
from krust.controller.acls import (
    LITERAL,
    OPERATIONS,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    ResourcePattern,
)
from krust.metadata.json_fields import BadZnodeError

ANN_READS = AclEntry("User:a", "*", 3, 3)
BOB_DENIED = AclEntry("User:b", "10.0.0.1", 4, 2)
ONE = (
    b'{"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"}],'
    b'"version":1}'
)
TWO = (
    b'{"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"},'
    b'{"principal":"User:b","permissionType":"Deny","host":"10.0.0.1","operation":"Write"}],'
    b'"version":1}'
)
ODD = (
    '{"acls":[{"principal":"User:ü\\"\\\\\\u0001\\u001F\x7f","permissionType":"Allow","host":"*",'
    '"operation":"All"}],"version":1}'
).encode()
CHANGED = {
    ResourcePattern(2, LITERAL, "orders"): b"TOPIC:orders",
    ResourcePattern(5, LITERAL, "t1"): b"TRANSACTIONAL_ID:t1",
    ResourcePattern(6, LITERAL, "d"): b"DELEGATION_TOKEN:d",
    ResourcePattern(7, LITERAL, "User:x"): b"USER:User:x",
    ResourcePattern(2, PREFIXED, "ord"): (
        b'{"version":1,"resourceType":"TOPIC","name":"ord","patternType":"PREFIXED"}'
    ),
    ResourcePattern(5, PREFIXED, "t"): (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"t","patternType":"PREFIXED"}'
    ),
}


def test_paths_are_kafkas() -> None:
    assert acl_nodes.path(ResourcePattern(5, LITERAL, "t 1")) == "/kafka-acl/TransactionalId/t 1"
    prefixed = ResourcePattern(2, PREFIXED, "*")
    assert acl_nodes.path(prefixed) == "/kafka-acl-extended/prefixed/Topic/*"
    assert acl_nodes.change_path(prefixed) == "/kafka-acl-extended-changes/acl_changes_"
    assert len(acl_nodes.PERSISTENT) == 17


def test_a_name_that_is_no_part_of_a_path_is_not_storable() -> None:
    assert acl_nodes.is_storable(ResourcePattern(2, LITERAL, "*"))
    for name in ("", "a/b", "..", "a\x00"):
        assert not acl_nodes.is_storable(ResourcePattern(2, LITERAL, name))


def test_entries_are_written_with_kafkas_bytes_and_read_back() -> None:
    odd = AclEntry('User:ü"\\\x01\x1f\x7f', "*", 2, 3)
    for entries, data in (
        ({ANN_READS}, ONE),
        ({BOB_DENIED, ANN_READS}, TWO),
        ({odd}, ODD),
        (set[AclEntry](), b'{"acls":[],"version":1}'),
    ):
        assert acl_nodes.encode(entries) == data
        assert acl_nodes.decode(data) == entries


def test_a_backslash_before_what_looks_like_an_escape_stays() -> None:
    entry = AclEntry("User:\\u001f\\\x1f", "*", 2, 3)
    data = acl_nodes.encode({entry})
    assert b"User:\\\\u001f\\\\\\u001F" in data
    assert acl_nodes.decode(data) == {entry}


def test_a_node_without_bytes_has_no_entries() -> None:
    assert acl_nodes.decode(b"") == frozenset()


def test_names_in_another_case_and_unknown_keys_are_read() -> None:
    data = ONE.replace(b'"Read"', b'"READ"').replace(b'"version"', b'"more":null,"version"')
    assert acl_nodes.decode(data) == {ANN_READS}
    described = ONE.replace(b'"Read"', b'"DESCRIBE_CONFIGS"')
    assert acl_nodes.decode(described) == {ANN_READS._replace(operation=10)}


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        ONE.replace(b":1}", b":2}"),
        ONE.replace(b":1}", b":true}"),
        ONE.replace(b":1}", b':"1"}'),
        b'{"acls":{},"version":1}',
        b'{"acls":[1],"version":1}',
        ONE.replace(b'"Read"', b'"Reed"'),
        ONE.replace(b'"Allow"', b'"Any"'),
        ONE.replace(b'"Allow"', b"3"),
        ONE.replace(b"User:a", b"User"),
        ONE.replace(b"User:a", b"User:\\ud800"),
        ONE.replace(b'"host":"*",', b""),
    ],
)
def test_other_bytes_are_bad(data: bytes) -> None:
    with pytest.raises(BadZnodeError):
        acl_nodes.decode(data)


def test_changes_are_written_with_kafkas_bytes_and_read_back() -> None:
    for pattern, data in CHANGED.items():
        assert acl_nodes.encode_change(pattern) == data
        assert acl_nodes.decode_change(pattern.pattern_type, data) == pattern


def test_changes_that_an_older_kafka_wrote_are_read() -> None:
    for name, number in RESOURCE_TYPES.items():
        found = acl_nodes.decode_change(LITERAL, f"{name}:x:y".encode())
        assert found == ResourcePattern(number, LITERAL, "x:y")


@pytest.mark.parametrize(
    ("pattern_type", "data"),
    [
        (LITERAL, None),
        (LITERAL, b""),
        (LITERAL, b"TOPIC"),
        (LITERAL, b"TOPIC:"),
        (LITERAL, b"PLACE:x"),
        (LITERAL, b"\xff:x"),
        (PREFIXED, b"TOPIC:orders"),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"","patternType":"PREFIXED"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"x","patternType":"MATCH"}'),
        (PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"x","patternType":"PREFIXED"}'),
    ],
)
def test_a_change_that_names_nothing_is_bad(pattern_type: int, data: bytes | None) -> None:
    with pytest.raises(BadZnodeError):
        acl_nodes.decode_change(pattern_type, data)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KNOWN = st.sampled_from([*OPERATIONS.values()])
ENTRIES = st.frozensets(
    st.builds(
        AclEntry,
        TEXTS.map("User:{}".format),
        TEXTS,
        KNOWN,
        st.sampled_from([*PERMISSIONS.values()]),
    ),
    max_size=4,
)
WORDS = st.sampled_from(["User:a", "*", "Read", "READ", "Allow", "TOPIC", "PREFIXED", "x", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("principal", "permissionType", "host", "operation"), VALUES)
)
NODES = st.fixed_dictionaries(
    {"version": st.just(1) | VALUES},
    optional={
        "acls": st.lists(ROWS | VALUES, max_size=3) | VALUES,
        **dict.fromkeys(("resourceType", "name", "patternType"), VALUES),
    },
)


@given(ENTRIES, st.data())
def test_any_entries_are_read_as_they_were_written_and_damage_is_named(
    entries: frozenset[AclEntry], draw: st.DataObject
) -> None:
    data = acl_nodes.encode(entries)
    assert acl_nodes.decode(data) == entries
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    _is_read_or_bad(bytes(damaged))


@given(NODES.map(lambda node: json.dumps(node).encode()) | st.binary(max_size=40))
def test_no_node_of_acls_ends_in_another_error_than_that_it_is_bad(data: bytes) -> None:
    _is_read_or_bad(data)


def _is_read_or_bad(data: bytes) -> None:
    """Whatever a node has is read, and written so that it is read again; or it is named as bad."""
    with contextlib.suppress(BadZnodeError):
        read = acl_nodes.decode(data)
        assert acl_nodes.decode(acl_nodes.encode(read)) == read
    for pattern_type in (LITERAL, PREFIXED):
        with contextlib.suppress(BadZnodeError):
            pattern = acl_nodes.decode_change(pattern_type, data)
            again = acl_nodes.encode_change(pattern)
            assert acl_nodes.decode_change(pattern.pattern_type, again) == pattern
