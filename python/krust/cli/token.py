"""`krust token`: delegation tokens, on krust and on any Kafka since 1.1 that has a key for them.

A token lets programs log in as its owner for a while, without the owner's password. A program logs
in by SCRAM with the token's id as name and its HMAC as password, and `tokenauth="true"` in the JAAS
string. The HMAC is shown by `create` alone: other commands name a token by its id, and ask the
broker for the HMAC.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from krust import _krust, jaas
from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.acl_words import Principal
from krust.cli.exits import Exit
from krust.cli.options import Duration
from krust.errors import Code, KrustError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust.cli.options import Options

COLUMNS = ("token", "owner", "requester", "renewers", "issued", "expires", "longest")
_DEFAULT = -1
"""The broker's own period for a new or renewed token; for one that expires: at once."""
_HINTS = {
    Code.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers need the setting delegation.token.secret.key",
    Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in by a password or a certificate: who has no "
    "login, or logged in by a token, makes and changes no tokens",
}

_token = click.argument("token", metavar="ID")


@click.group(no_args_is_help=True)
def command() -> None:
    """Show, make, renew and end delegation tokens: logins for a while, without a password."""


@command.command("list")
@click.option(
    *("--owner", "owners"), multiple=True, type=Principal(), help="Only those of this principal."
)
@shared.client
@click.pass_obj
def list_(options: Options, /, owners: tuple[str, ...]) -> None:
    """List tokens: your own, those that you may renew, and others that you may describe."""
    found = _described(session.client(options), owners or None)
    if not found:
        session.note(options, "there are no tokens that you may see")
    output.rows(options, COLUMNS, [_row(each, "_timestamp") for each in found])


@command.command()
@click.option(
    "--owner", type=Principal(), help="As whom it lets log in. [you]", metavar="PRINCIPAL"
)
@click.option(
    *("--renewer", "renewers"),
    multiple=True,
    type=Principal(),
    help="Who may renew and end it too; may be repeated.",
)
@click.option(
    *("--lifetime", "lifetime_ms"), type=Duration(), help="How long it can be renewed. [7d]"
)
@shared.client
@click.pass_obj
def create(
    options: Options,
    /,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime_ms: int | None,
) -> None:
    """Make a token. Its HMAC is a password: who has it logs in as the owner.

    \b
    krust token create --renewer User:scheduler --lifetime 1d
    """  # noqa: D301, click wants the character
    kind, _, name = (owner or "").partition(":")
    body = {
        "owner_principal_type": kind or None,
        "owner_principal_name": name or None,
        "renewers": _principals(renewers),
        "max_lifetime_ms": lifetime_ms or _DEFAULT,
    }
    made = session.client(options).request("CreateDelegationToken", body)
    _check(made, "a delegation token")
    secret = base64.b64encode(made["hmac"]).decode()
    words = f'{jaas.SCRAM} required username="{made["token_id"]}" password="{secret}"'
    row = _row({**made, "renewers": body["renewers"]}, "_timestamp_ms")
    output.one(options, {**row, "hmac": secret, "sasl.jaas.config": f'{words} tokenauth="true";'})


@command.command()
@_token
@click.option(
    *("--for", "period_ms"), type=Duration(), help="From now on. [the broker's setting, 1d]"
)
@shared.client
@click.pass_obj
def renew(options: Options, /, token: str, period_ms: int | None) -> None:
    """Have a token expire later, though not after its longest life.

    An ID that begins with a dash comes last, after --.
    """
    _change(options, token, "RenewDelegationToken", {"renew_period_ms": period_ms})


@command.command()
@_token
@click.option(*("--in", "period_ms"), type=Duration(), help="From now on. [at once]")
@shared.client
@click.pass_obj
def expire(options: Options, /, token: str, period_ms: int | None) -> None:
    """End a token, at once or later. Open connections last until it would have expired.

    An ID that begins with a dash comes last, after --.
    """
    _change(options, token, "ExpireDelegationToken", {"expiry_time_period_ms": period_ms})


def _change(options: Options, token: str, api: str, period: Mapping[str, int | None]) -> None:
    asked = session.client(options)
    found = {each["token_id"]: each for each in _described(asked, None)}
    if token not in found:
        error = KrustError(
            f"there is no delegation token {token} that you may see",
            hint="krust token list shows those there are",
        )
        error.exit = int(Exit.NOT_FOUND)
        raise error
    given = {name: _DEFAULT if ms is None else ms for name, ms in period.items()}
    answer = asked.request(api, {"hmac": found[token]["hmac"], **given})
    _check(answer, f"delegation token {token}")
    output.one(options, {"token": token, "expires": _time(answer["expiry_timestamp_ms"])})


def _described(asked: _krust.Client, owners: Sequence[str] | None) -> list[dict[str, Any]]:
    body = {"owners": None if owners is None else _principals(owners)}
    answer = asked.request("DescribeDelegationToken", body)
    _check(answer, "delegation tokens")
    return sorted(answer["tokens"], key=lambda each: (each["issue_timestamp"], each["token_id"]))


def _principals(given: Iterable[str]) -> list[dict[str, str]]:
    parts = (each.partition(":") for each in given)
    return [{"principal_type": kind, "principal_name": name} for kind, _, name in parts]


def _check(answer: dict[str, Any], subject: str) -> None:
    code = answer["error_code"]
    if code in _HINTS:
        text = f"{subject}: {_krust.error_info(code)[0].replace('_', ' ').lower()}"
        raise session.refused(code, text, hint=_HINTS[code])
    session.check(answer, subject)


def _row(token: Mapping[str, Any], suffix: str) -> dict[str, object]:
    """A token as it is shown; `suffix` ends the names of its times."""
    return {
        "token": token["token_id"],
        "owner": _named(token, ""),
        "requester": _named(token, "token_requester_"),
        "renewers": [_named(each, "") for each in token["renewers"]],
        "issued": _time(token[f"issue{suffix}"]),
        "expires": _time(token[f"expiry{suffix}"]),
        "longest": _time(token[f"max{suffix}"]),
    }


def _named(fields: Mapping[str, Any], prefix: str) -> str:
    return f"{fields[f'{prefix}principal_type']}:{fields[f'{prefix}principal_name']}"


def _time(ms: int) -> str:
    """A time for people, in UTC; one that no calendar has is a number."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return str(ms)
