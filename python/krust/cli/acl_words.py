"""The words of `krust acl`: principals, operations and resources, and the rights that they mean.

A right is an operation with a resource. `--producer` and `--consumer` stand for the operations that
Kafka's own producer and consumer need.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import click

from krust.cli import completion
from krust.clients import acls as named_acls
from krust.controller.acls import (
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    GROUP,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    SUPPORTED_OPERATIONS,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WILDCARD,
    ResourcePattern,
    number,
)
from krust.errors import ConfigError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    F = TypeVar("F", bound=Callable[..., Any])

_PRODUCER = {TOPIC: ("Write", "Describe", "Create"), TRANSACTIONAL_ID: ("Write", "Describe")}
_CONSUMER = {TOPIC: ("Read", "Describe"), GROUP: ("Read",)}
_IDEMPOTENT = {CLUSTER: ("IdempotentWrite",)}
_OPTIONS = {
    "topics": TOPIC,
    "groups": GROUP,
    "transactional_id": TRANSACTIONAL_ID,
    "delegation_token": DELEGATION_TOKEN,
    "user_principal": USER,
}
_FLAGS = {TOPIC: "--topic", GROUP: "--group", TRANSACTIONAL_ID: "--transactional-id"}
_FLAGS |= {CLUSTER: "--cluster", DELEGATION_TOKEN: "--delegation-token", USER: "--user-principal"}


class Resource(NamedTuple):
    """A resource, or a pattern of resources."""

    resource_type: int
    name: str


class Right(NamedTuple):
    """An operation with a resource."""

    resource: Resource
    operation: int


class Principal(click.ParamType[str]):
    """`User:alice`."""

    name = "principal"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The principal as it is."""
        kind, colon, name = str(value).partition(":")
        if not (kind and colon and name):
            self.fail(f"{value!r} is no principal; write User:{value or 'alice'}", param, ctx)
        return str(value)


class Operations(click.ParamType["tuple[int, ...]"]):
    """`read`, `read,write`, `describe-configs`."""

    name = "operation,.."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers of operations. Numbers are returned unchanged."""
        if isinstance(value, tuple):
            return value
        try:
            words = str(value).split(",")
            return tuple(number("operation", word.strip()) for word in words)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def resource_options(function: F) -> F:
    """The options that name resources."""
    many: dict[str, Any] = {"multiple": True}
    topic: dict[str, Any] = {**many, "metavar": "NAME", "shell_complete": completion.topics}
    group: dict[str, Any] = {**many, "metavar": "NAME", "shell_complete": completion.groups}
    user: dict[str, Any] = {**many, "metavar": "User:NAME", "type": Principal()}
    for option in (
        click.option("--user-principal", **user, help="A user, for its tokens."),
        click.option("--delegation-token", **many, metavar="ID", help="A delegation token."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--transactional-id", **many, metavar="ID", help="A transactional id."),
        click.option("-g", "--group", "groups", **group, help="A group; '*': all."),
        click.option("-t", "--topic", "topics", **topic, help="A topic; '*': all."),
    ):
        function = option(function)
    return function


def right_options(function: F) -> F:
    """The options that name operations, and for which names and hosts they are meant."""
    of_operation: dict[str, Any] = {"multiple": True, "type": Operations()}
    for option in (
        click.option("--deny", is_flag=True, help="Forbid; this wins over what is allowed."),
        click.option(
            "--host", "hosts", multiple=True, metavar="ADDRESS", help="Only from this address."
        ),
        click.option("--prefixed", is_flag=True, help="All that have the name as their prefix."),
        click.option(
            "--idempotent", is_flag=True, help="What idempotent producers need before Kafka 3.0."
        ),
        click.option("--consumer", is_flag=True, help="What consumers of TOPIC in GROUP need."),
        click.option("--producer", is_flag=True, help="What producers to TOPIC need."),
        click.option("--operation", "operations", **of_operation, help="read,write .. or all."),
    ):
        function = option(function)
    return function


def resources(named: Mapping[str, Any]) -> list[Resource]:
    """The resources that the options name."""
    found = [Resource(kind, name) for option, kind in _OPTIONS.items() for name in named[option]]
    if any(not each.name for each in found):
        raise click.UsageError("a name is empty")
    return found + [Resource(CLUSTER, CLUSTER_NAME)] * bool(named["cluster"])


def operations(named: Mapping[str, Any]) -> list[int]:
    """The operations that the options name."""
    return list(dict.fromkeys(each for several in named["operations"] for each in several))


def rights(named: Mapping[str, Any], *, every: bool = False) -> list[Right]:
    """The rights that the options mean.

    every  without an operation all are meant, instead of an error
    """
    roles = [role for role in ("producer", "consumer", "idempotent") if named.get(role)]
    found = resources(named)
    wanted = operations(named)
    if roles:
        if wanted:
            raise click.UsageError(f"--operation or --{roles[0]}, not both")
        return _of_roles(roles, found)
    if not found:
        raise click.UsageError(f"on what? {', '.join(_FLAGS.values())}")
    if not wanted and not every:
        raise click.UsageError("which --operation? or --producer, --consumer")
    return [Right(resource, each) for resource, each in product(found, wanted or [ANY])]


def pattern(resource: Resource, *, prefixed: bool) -> ResourcePattern:
    """The pattern of a resource. There are no prefixes of the cluster."""
    kind, name = resource
    return ResourcePattern(kind, PREFIXED if prefixed and kind != CLUSTER else LITERAL, name)


def must_be_supported(found: Iterable[Right]) -> None:
    """Raise UsageError for an operation that the type of resource does not have."""
    for (kind, _), operation in found:
        if operation not in SUPPORTED_OPERATIONS[kind]:
            known = sorted(SUPPORTED_OPERATIONS[kind])
            names = ", ".join(named_acls.name_of("operation", each) for each in known)
            given = named_acls.name_of("operation", operation)
            type_name = named_acls.name_of("resource_type", kind)
            raise click.UsageError(f"{type_name} has no operation {given}; it has {names}")


def must_hold(found: Iterable[Right], *, prefixed: bool) -> None:
    """Raise UsageError for rights that would never hold."""
    for (kind, name), _ in found:
        if prefixed and name == WILDCARD:
            raise click.UsageError("'*' is no prefix; without --prefixed it stands for all")
        if kind == TOPIC and name != WILDCARD and WILDCARD in name:
            hint = f"; write {name[:-1]} --prefixed" if name.find(WILDCARD) == len(name) - 1 else ""
            raise click.UsageError(f"no topic is called {name!r}{hint}")


def _of_roles(roles: Sequence[str], found: Sequence[Resource]) -> list[Right]:
    """The rights of producers and consumers."""
    kinds = {each.resource_type for each in found}
    needed = {TOPIC} if {"producer", "consumer"} & set(roles) else set()
    needed |= {GROUP} if "consumer" in roles else set()
    for kind in sorted(needed - kinds):
        raise click.UsageError(f"--{roles[0]} needs {_FLAGS[kind]}")
    tables = {"producer": _PRODUCER, "consumer": _CONSUMER}
    chosen = [tables[role] for role in roles if role in tables]
    rights_of = {
        each: dict.fromkeys(name for table in chosen for name in table.get(each.resource_type, ()))
        for each in found
    }
    for each, names in rights_of.items():
        if not names:
            flag = _FLAGS[each.resource_type]
            raise click.UsageError(f"{flag} says nothing beside --{' and --'.join(roles)}")
    if "idempotent" in roles:
        rights_of[Resource(CLUSTER, CLUSTER_NAME)] = dict.fromkeys(_IDEMPOTENT[CLUSTER])
    return [Right(each, OPERATIONS[name]) for each, names in rights_of.items() for name in names]
