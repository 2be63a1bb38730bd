"""`krust quotas`: quotas of users, clients and addresses, on krust and on any Kafka since 2.6.

The owner is `--user`, `--client`, both, or `--ip`, each by name, or the default of all without a
quota of their own. In results a default is `<default>`, and an absent part is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.exits import Exit
from krust.cli.options import KeyValue
from krust.controller.quotas import OF_CLIENTS, OF_IPS
from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from krust.cli.options import Options

    F = TypeVar("F", bound=Callable[..., Any])
    Whose = dict[str, str | None]

KINDS = {"user": "user", "client": "client-id", "ip": "ip"}
KEYS = (*OF_CLIENTS, *OF_IPS)
DEFAULT = "<default>"
EXACT, DEFAULTS = 0, 1


@click.group(no_args_is_help=True)
def command() -> None:
    """Show and change quotas of users, clients and addresses."""


def _whose(function: F) -> F:
    for flag, word in reversed({"user": "NAME", "client": "ID", "ip": "ADDRESS"}.items()):
        everybody = click.option(f"--default-{flag}", is_flag=True, help=f"The default {flag}.")
        one = click.option(f"--{flag}", metavar=word, help=f"This {flag}.")
        function = one(everybody(function))
    return function


@command.command("list")
@_whose
@shared.client
@click.pass_obj
def list_(options: Options, /, **named: Any) -> None:
    """List quotas; with a user, client or address, those that name it."""
    rows = []
    for entity, values in _found(options, _owner(named), strict=False):
        row: dict[str, object] = {name: entity.get(kind) for name, kind in KINDS.items()}
        rows.append({**row, **{key: values.get(key) for key in KEYS}})
    rows.sort(key=lambda row: [str(row[name] or "") for name in KINDS])
    columns = (*KINDS, *KEYS)
    if not rows:
        session.note(options, "no quotas are set")
    elif options.output in ("table", "wide"):
        used = [key for key in columns if any(row[key] is not None for row in rows)]
        output.table(used, rows)
        return
    output.rows(options, columns, rows)


@command.command("set")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True, type=KeyValue())
@_whose
@shared.client
@click.pass_obj
def set_(options: Options, /, pairs: tuple[tuple[str, str], ...], **named: Any) -> None:
    """Set quotas. They take effect at once.

    producer_byte_rate, consumer_byte_rate (bytes a second), request_percentage (of a thread),
    controller_mutation_rate (partitions a second); for an address connection_creation_rate.
    """
    ops = []
    for key, text in pairs:
        try:
            ops.append({"key": key, "value": float(text), "remove": False})
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a number") from None
    whose = _must(_owner(named))
    _alter(options, whose, ops)
    session.note(options, f"set {', '.join(key for key, _ in pairs)} of {_entity_text(whose)}")


@command.command()
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@_whose
@shared.client
@click.pass_obj
def delete(options: Options, /, keys: tuple[str, ...], **named: Any) -> None:
    """Delete quotas; without KEY, all of that user, client or address.

    Exit 5: there is no such quota.
    """
    whose = _must(_owner(named))
    there = [key for _, values in _found(options, whose, strict=True) for key in values]
    gone = [key for key in keys or there if key in there]
    absent = [key for key in keys if key not in there]
    if absent or not gone:
        error = KrustError(
            f"{_entity_text(whose)} has no {', '.join(absent) or 'quotas'}",
            hint="krust quotas list shows what there is",
        )
        error.exit = int(Exit.NOT_FOUND)
        raise error
    _alter(options, whose, [{"key": key, "value": 0.0, "remove": True} for key in gone])
    session.note(options, f"deleted {', '.join(gone)} of {_entity_text(whose)}")


def _owner(named: dict[str, Any]) -> Whose:
    """The given kinds and names; None: the default."""
    whose: Whose = {}
    for flag, kind in KINDS.items():
        name, everybody = named[flag], named[f"default_{flag}"]
        if name is not None and everybody:
            raise click.UsageError(f"give --{flag} or --default-{flag}, not both")
        if name is not None or everybody:
            whose[kind] = name
    return whose


def _must(whose: Whose) -> Whose:
    if not whose:
        raise click.UsageError("whose? --user, --client, --ip, or a --default- of these")
    return whose


def _found(
    options: Options, whose: Whose, *, strict: bool
) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Owners with their quotas."""
    components = [
        {"entity_type": kind, "match_type": DEFAULTS if name is None else EXACT, "match": name}
        for kind, name in whose.items()
    ]
    body = {"components": components, "strict": strict}
    answer = session.client(options).request("DescribeClientQuotas", body)
    session.check(answer, "quotas")
    return [
        (
            {each["entity_type"]: each["entity_name"] or DEFAULT for each in entry["entity"]},
            {each["key"]: _number(each["value"]) for each in entry["values"]},
        )
        for entry in answer["entries"] or ()
    ]


def _alter(options: Options, whose: Whose, ops: list[dict[str, Any]]) -> None:
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in whose.items()]
    body = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    [answer] = session.client(options).request("AlterClientQuotas", body)["entries"]
    session.check(answer, _entity_text(whose))


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value


def _entity_text(whose: Whose) -> str:
    return " ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in whose.items())
