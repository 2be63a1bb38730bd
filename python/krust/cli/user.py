"""`krust user`: the users that log in by SCRAM, on krust and on any Kafka since 2.7 (KIP-554).

The broker gets the salted and hashed password, never the password. With `--data-dir` or
`--zookeeper` the command writes where the brokers read, so the first user can be made before any
broker runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import click

from krust.cli import offline, output, session
from krust.cli import options as shared
from krust.cli.exits import Exit
from krust.controller import scram
from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from krust.cli.options import Options
    from krust.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ScramCredentialDeletion,
    )

COLUMNS = ("user", "mechanism", "iterations")
_SALT_BYTES = 25
_NAMES = {number: name for name, number in scram.MECHANISMS.items()}


@click.group(no_args_is_help=True)
def command() -> None:
    """Show, make and delete users that log in by SCRAM."""


def _mechanisms(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        *("-m", "--mechanism", "mechanisms"),
        multiple=True,
        type=click.Choice(list(scram.MECHANISMS), case_sensitive=False),
        help="The mechanism; may be repeated. [both]",
    )(function)


@command.command("list")
@shared.client
@click.pass_obj
def list_(options: Options, /) -> None:
    """List users, with their mechanisms."""
    answer = session.client(options).request("DescribeUserScramCredentials", {"users": None})
    session.check(answer, "users")
    rows = []
    for each in answer["results"]:
        session.check(each, f"user {each['user']}")
        for info in each["credential_infos"]:
            name = _NAMES.get(info["mechanism"], str(info["mechanism"]))
            rows.append({"user": each["user"], "mechanism": name, "iterations": info["iterations"]})
    if not rows:
        session.note(options, "there are no users")
    output.rows(options, COLUMNS, rows)


@command.command()
@click.argument("name")
@click.option(
    "--password-file", type=click.File(), metavar="FILE", help="Has the password; - is stdin."
)
@_mechanisms
@click.option(
    "--iterations",
    type=click.IntRange(scram.MIN_ITERATIONS, scram.MAX_ITERATIONS),
    default=scram.MIN_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
@offline.where
@shared.client
@click.pass_obj
def add(
    options: Options,
    /,
    name: str,
    password_file: TextIO | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    **where: str | None,
) -> None:
    """Make a user, or give it another password.

    Without --password-file the command asks for the password. It acts at once on every broker;
    connections that are open stay open.
    """
    password = _password(password_file)
    upsertions = [
        scram.upsertion(name, mechanism, password, os.urandom(_SALT_BYTES), iterations)
        for mechanism in _chosen(mechanisms)
    ]
    _alter(options, name, {"deletions": [], "upsertions": upsertions}, where)
    session.note(options, f"user {name} logs in by {' and '.join(_chosen(mechanisms))}")


@command.command()
@click.argument("name")
@_mechanisms
@offline.where
@shared.client
@click.pass_obj
def delete(
    options: Options, /, name: str, mechanisms: tuple[str, ...], **where: str | None
) -> None:
    """Delete a user, or its login by some mechanisms. Exit 5: there is no such user.

    Connections that are open stay open.
    """
    chosen = _chosen(mechanisms) if mechanisms or any(where.values()) else _known(options, name)
    deletions: list[ScramCredentialDeletion] = [
        {"name": name, "mechanism": scram.MECHANISMS[each]} for each in chosen
    ]
    _alter(options, name, {"deletions": deletions, "upsertions": []}, where)
    session.note(options, f"user {name} logs in no more by {' and '.join(chosen)}")


def _chosen(mechanisms: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(mechanisms)) or list(scram.MECHANISMS)


def _known(options: Options, name: str) -> list[str]:
    """The mechanisms by which a user logs in."""
    body = {"users": [{"name": name}]}
    answer = session.client(options).request("DescribeUserScramCredentials", body)
    session.check(answer, "users")
    infos = [info for each in answer["results"] for info in each["credential_infos"]]
    if not infos:
        error = KrustError(f"there is no user {name}", hint="krust user list shows those there are")
        error.exit = int(Exit.NOT_FOUND)
        raise error
    return [_NAMES[info["mechanism"]] for info in infos]


def _password(file: TextIO | None) -> str:
    if file is not None:
        password = file.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    if not password:
        raise click.UsageError("the password is empty")
    return str(password)


def _alter(
    options: Options,
    name: str,
    message: AlterUserScramCredentialsRequest,
    where: dict[str, str | None],
) -> None:
    """Have a controller alter credentials, or write them where the brokers read them."""
    answer: Any
    if any(where.values()):
        answer = _written(message, where)
    else:
        answer = session.client(options).request("AlterUserScramCredentials", cast("Any", message))
    for each in answer["results"]:
        session.check(each, f"user {name}")


def _written(
    message: AlterUserScramCredentialsRequest, where: dict[str, str | None]
) -> AlterUserScramCredentialsResponse:
    """Write credentials without a broker."""
    from krust.runtime import offline_users

    with offline.settings(where, "change its users", create=True) as config:
        return offline_users.alter(config, message)
