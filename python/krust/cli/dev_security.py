"""`krust dev --secure`: its options, and how each kind of client connects."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from krust.cluster import Cluster
    from krust.security.security import Security

    F = TypeVar("F", bound=Callable[..., Any])


class User(click.ParamType[tuple[str, str | None]]):
    """`NAME:PASSWORD`, or `NAME` alone, for a random password."""

    name = "name[:password]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        """The pair. A pair is returned unchanged."""
        if isinstance(value, tuple):
            return value
        name, colon, password = str(value).partition(":")
        return name, password if colon else None


def options(function: F) -> F:
    """Give a command `--secure` and what belongs to it."""
    for option in (
        click.option(
            "--acls-for-users/--no-acls-for-users",
            default=True,
            help="Whether new users may do everything with topics, groups and transactions. [yes]",
        ),
        click.option(
            *("--user", "users"),
            multiple=True,
            type=User(),
            metavar="NAME[:PASSWORD]",
            help="A user of --secure, beside admin; repeatable. [alice and bob, random passwords]",
        ),
        click.option(
            "--secure",
            is_flag=True,
            help="TLS, logins and ACLs: make an authority, a certificate and users, and show how "
            "clients connect.",
        ),
    ):
        function = option(function)
    return function


def asked(
    *, secure: bool, users: tuple[tuple[str, str | None], ...], acls_for_users: bool
) -> Security | None:
    """What the options ask for; None: no security."""
    if not secure:
        if users or not acls_for_users:
            raise click.UsageError("--user and --no-acls-for-users need --secure")
        return None
    from krust.security.security import Security

    return Security(users=dict(users), acls_for_users=acls_for_users)


def details(cluster: Cluster) -> dict[str, object]:
    """What the ready file says about security. It has no passwords, because others may read it."""
    folder = cluster.security_dir
    return {} if folder is None else {"security": str(folder)}


def shown(cluster: Cluster) -> str:
    """Lines for people: users, files, and how clients connect; empty: it is not secured."""
    security = cluster.security
    if security is None:
        return ""
    from krust.security.client_settings import dotted, keywords

    folder, user = shlex.quote(str(security.folder)), security.first_user
    login = security.login(cluster.bootstrap, user)
    width = max(map(len, security.users))
    users = [
        f"{name:{width}}  {password}  {security.rights_of(name)}"
        for name, password in security.users.items()
    ]
    simple, words = dotted(login), keywords(login)
    context = f"ssl.create_default_context(cafile={_literal(words['ssl_cafile'])})"
    clients = {
        "krust": f"krust -F {folder}/client.properties topic list",
        "kcat": f"kcat -F {folder}/{user}.conf -L",
        "Java": f"kafka-topics.sh --bootstrap-server {cluster.bootstrap} "
        f"--command-config {folder}/client.properties --list",
        "confluent-kafka": f"Producer({_literal(simple)})",
        "kafka-python": f"KafkaProducer({_arguments(words)})",
        "aiokafka": f"AIOKafkaProducer({_arguments(words, ssl_context=context)})",
    }
    lines = [
        *_rows(
            "security",
            [str(security.folder), "ca.pem, secure.json, and each user's .properties, .conf"],
        ),
        *_rows("notes", security.notes),
        *_rows("users", users),
        f"  connect as {user}, by the settings in {folder}/client.properties",
        *(f"    {name:15}  {text}" for name, text in clients.items()),
    ]
    return "\n".join(lines) + "\n"


def _rows(head: str, texts: list[str]) -> list[str]:
    heads = [head, *[""] * len(texts)]
    return [f"  {left:8}  {text}" for left, text in zip(heads, texts, strict=False)]


def _arguments(words: Mapping[str, object], **code: str) -> str:
    """Keyword arguments as Python. `code` has values that are code, and no file beside them."""
    simple = {name: each for name, each in words.items() if not (code and name == "ssl_cafile")}
    texts = {name: _literal(each) for name, each in simple.items()} | code
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _literal(value: object) -> str:
    """Printable texts, and dicts of them, as Python and JSON write them."""
    return json.dumps(value, ensure_ascii=False)
