"""`krust acl`: who may do what, on krust and on any Kafka since 2.0 that has an authorizer.

An ACL allows or denies a principal an operation on a resource. Operations may be written in any
case, with or without hyphens; results have Kafka's names. With `--data-dir` or `--zookeeper` a
command reads and writes where the brokers read, so the first ACLs can be made before any broker
runs.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from krust.cli import acl_words, offline, output, session
from krust.cli import options as shared
from krust.cli.acl_words import Operations, Principal
from krust.cli.exits import Exit
from krust.clients import acls
from krust.controller.acl_check import Access, decide
from krust.controller.acls import (
    ALLOW,
    ANY,
    DENY,
    MATCH,
    PREFIXED,
    WILDCARD,
    AclBinding,
    AclFilter,
)
from krust.errors import KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krust.cli.options import Options
    from krust.controller.acl_check import AccessDecision

COLUMNS = (
    *("principal", "permission", "operation", "resource_type", "pattern_type", "name", "host"),
)
CHECK_COLUMNS = ("operation", "resource_type", "name", "allowed", "reason")
_PLACES = ("data_dir", "zookeeper")

_principals = click.argument(
    "principals", metavar="PRINCIPAL...", nargs=-1, required=True, type=Principal()
)


@click.group(no_args_is_help=True)
def command() -> None:
    """Show, create, delete and try out ACLs: who may do what."""


@command.command("list")
@acl_words.resource_options
@click.option("--prefixed", is_flag=True, help="Only ACLs of this very prefix.")
@click.option("--match", is_flag=True, help="All ACLs that hold for it: by prefix and by '*' too.")
@click.option(
    *("--principal", "principals"), multiple=True, type=Principal(), help="Only of this principal."
)
@offline.where
@shared.client
@click.pass_obj
def list_(
    options: Options,
    /,
    principals: tuple[str, ...],
    prefixed: bool,
    match: bool,
    **named: Any,
) -> None:
    """List ACLs; with a resource, those that name it.

    \b
    krust acl list --topic orders --match        # all that hold for this topic
    krust acl list --principal User:alice        # User:* is a principal of its own
    """  # noqa: D301, click wants the character
    resources = acl_words.resources(named)
    if prefixed and match:
        raise click.UsageError("--prefixed or --match, not both")
    if (prefixed or match) and not resources:
        raise click.UsageError("--prefixed and --match need --topic, --group ..")
    pattern = PREFIXED if prefixed else MATCH if match else ANY
    patterns: list[tuple[int, str | None]] = [*resources] or [(ANY, None)]
    filters = [
        AclFilter(kind, pattern, name, principal)
        for (kind, name), principal in product(patterns, principals or [None])
    ]
    found = _found(options, named, filters)
    if not found:
        more = " with that name; --match finds others too" if resources and not match else ""
        session.note(options, f"there are no ACLs{more}")
    _show(options, found)


@command.command()
@_principals
@acl_words.resource_options
@acl_words.right_options
@offline.where
@shared.client
@click.pass_obj
def grant(
    options: Options,
    /,
    principals: tuple[str, ...],
    hosts: tuple[str, ...],
    prefixed: bool,
    deny: bool,
    **named: Any,
) -> None:
    """Create ACLs that allow operations, or with --deny forbid them.

    They act at once on every broker.

    \b
    krust acl grant User:alice --operation read,describe-configs --topic orders
    krust acl grant User:loader --producer --topic eu- --prefixed
    krust acl grant User:billing --consumer --topic orders --group billing
    krust acl grant 'User:*' --deny --operation all --topic secrets --host 10.0.0.9
    """  # noqa: D301, click wants the character
    rights = acl_words.rights(named)
    acl_words.must_be_supported(rights)
    acl_words.must_hold(rights, prefixed=prefixed)
    permission = DENY if deny else ALLOW
    bindings = [
        AclBinding(
            *acl_words.pattern(each.resource, prefixed=prefixed),
            principal,
            host,
            each.operation,
            permission,
        )
        for principal, host, each in product(principals, hosts or [WILDCARD], rights)
    ]
    with _opened(options, named, create=True) as asked:
        refusals = acls.create(asked, bindings)
    results = session.ItemResults(len(bindings))
    for refusal in refusals:
        with results.item():
            if refusal is not None:
                raise refusal
    done = [each for each, refusal in zip(bindings, refusals, strict=True) if refusal is None]
    if done:
        session.note(options, f"{counted(len(done), 'ACL')} created:")
        _show(options, done)
    results.raise_failure()


@command.command()
@_principals
@acl_words.resource_options
@click.option("--any-resource", is_flag=True, help="All resources, however they are named.")
@acl_words.right_options
@offline.where
@shared.client
@click.pass_obj
def revoke(
    options: Options,
    /,
    principals: tuple[str, ...],
    hosts: tuple[str, ...],
    prefixed: bool,
    deny: bool,
    any_resource: bool,
    **named: Any,
) -> None:
    """Delete ACLs, and show which. Exit 5: there are none like that.

    Without --operation all operations are meant, without --host all hosts. Only with --deny ACLs
    go that deny, and then no others. An ACL of a prefix goes only with --prefixed, one of all
    topics only with --topic '*'.

    \b
    krust acl revoke User:alice --operation write --topic orders
    krust acl revoke User:loader --producer --topic eu- --prefixed
    krust acl revoke User:alice --any-resource
    """  # noqa: D301, click wants the character
    what: list[AclFilter]
    if any_resource:
        if prefixed or acl_words.resources(named):
            raise click.UsageError("--any-resource, or --topic, --group .., not both")
        what = [AclFilter(operation=each) for each in acl_words.operations(named) or [ANY]]
    else:
        what = [
            AclFilter(
                *acl_words.pattern(each.resource, prefixed=prefixed), operation=each.operation
            )
            for each in acl_words.rights(named, every=True)
        ]
    permission = DENY if deny else ALLOW
    filters = [
        each._replace(principal=principal, host=host, permission=permission)
        for principal, host, each in product(principals, hosts or [None], what)
    ]
    with _opened(options, named) as asked:
        gone = acls.delete(asked, filters)
    if not gone:
        error = KrustError(
            f"{', '.join(principals)} {'have' if len(principals) > 1 else 'has'} no such ACL",
            hint="krust acl list shows those there are",
        )
        error.exit = int(Exit.NOT_FOUND)
        raise error
    session.note(options, f"{counted(len(gone), 'ACL')} deleted:")
    _show(options, gone)


@command.command()
@click.argument("principal", type=Principal())
@acl_words.resource_options
@click.option(
    "--operation", "operations", multiple=True, type=Operations(), help="read,write or all."
)
@click.option("--host", metavar="ADDRESS", help="The address of the client. [any]")
@offline.where
@shared.client
@click.pass_obj
def check(options: Options, /, principal: str, host: str | None, **named: Any) -> None:
    """Say whether ACLs allow operations, and which ACL decides. Exit 7: one is denied.

    Super users are not known here: brokers allow them everything.

    \b
    krust acl check User:alice --operation read,write --topic orders --host 10.0.0.7
    """  # noqa: D301, click wants the character
    rights = acl_words.rights(named)
    acl_words.must_be_supported(rights)
    resources = dict.fromkeys(each.resource for each in rights)
    filters = [AclFilter(kind, MATCH, name) for kind, name in resources]
    found = _found(options, named, filters)
    rows = []
    for each in rights:
        access = Access(principal, host, each.operation, *each.resource)
        rows.append(_check_row(access, decide(found, access)))
    output.rows(options, CHECK_COLUMNS, rows)
    for row in rows:
        if row["other_hosts"]:
            text = f"{row['operation']} depends on the client's address: --host ADDRESS checks one"
            session.note(options, text)
    if not all(row["allowed"] for row in rows):
        session.note(options, "super users, whom only the brokers know, are allowed everything")
        session.sys_exit(Exit.REFUSED)


def _check_row(access: Access, decision: AccessDecision) -> dict[str, Any]:
    kind = acls.name_of("resource_type", access.resource_type)
    if decision.binding is not None:
        reason = acls.described(decision.binding)
    elif decision.is_named:
        reason = "no ACL allows it"
    else:
        reason = "no ACL names it, so allow.everyone.if.no.acl.found decides"
    return {
        "principal": access.principal,
        "host": access.host,
        "operation": acls.name_of("operation", access.operation),
        "resource_type": kind,
        "name": access.name,
        "allowed": decision.allowed,
        "reason": reason,
        "acl": None if decision.binding is None else acls.shown(decision.binding),
        "other_hosts": [acls.shown(each) for each in decision.otherwise],
    }


def _found(options: Options, named: dict[str, Any], filters: Iterable[AclFilter]) -> list[Any]:
    """The ACLs that any of the filters finds."""
    with _opened(options, named) as asked:
        return sorted({each for one in filters for each in acls.describe(asked, one)})


@contextmanager
def _opened(
    options: Options, named: dict[str, Any], *, create: bool = False
) -> Iterator[acls.Answers]:
    """What answers: the brokers, or a store that brokers will read."""
    places = {place: named[place] for place in _PLACES}
    if not any(places.values()):
        yield session.client(options)
        return
    from krust.runtime import offline_acls

    with (
        offline.settings(places, "do this", create=create) as config,
        offline_acls.opened(config) as asked,
    ):
        yield asked


def _show(options: Options, found: Iterable[AclBinding]) -> None:
    output.rows(options, COLUMNS, [acls.shown(each) for each in found])
