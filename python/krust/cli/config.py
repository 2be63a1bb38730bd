"""`krust config`: settings of brokers and topics as a running cluster has them, and what they mean.

Without `--topic` or `--broker`: of the broker that answers; `set` and `unset` then change the
default of all brokers, as `kafka-configs --entity-default` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.exits import Exit
from krust.cli.options import KeyValue
from krust.cli.topic import DELETE, SET, TOPIC, alter_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from krust import _krust
    from krust.cli.options import Options
    from krust.errors import KrustError

    F = TypeVar("F", bound=Callable[..., Any])

BROKER = 4
SOURCES = {
    0: "unknown", 1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 6: "logger",
}  # fmt: skip
DEFAULT = 5


@click.group(no_args_is_help=True)
def command() -> None:
    """Show and change settings of brokers and topics."""


def _resource(function: F) -> F:
    whom = click.option("--broker", type=int, metavar="N", help="Of this broker.")
    what = click.option(
        "--topic", metavar="T", help="Of this topic.", shell_complete=completion.topics
    )
    return what(whom(shared.client(function)))


@command.command()
@click.option("-a", "--all", "everything", is_flag=True, help="Defaults too.")
@click.option("--source", is_flag=True, help="Where each value comes from.")
@_resource
@click.pass_obj
def show(
    options: Options, topic: str | None, broker: int | None, everything: bool, source: bool
) -> None:
    """List settings that are not at their default."""
    entries = _entries(options, topic, broker)
    rows = [_row(entry) for entry in entries if everything or not _is_default(entry)]
    columns = ["name", "value"] + (["source", "read_only"] if source else [])
    if not rows:
        session.note(options, "every setting is at its default; --all lists them")
    output.rows(options, columns, rows)


@command.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_resource
@click.pass_obj
def get(options: Options, topic: str | None, broker: int | None, keys: tuple[str, ...]) -> None:
    """Show the value of settings."""
    entries = {entry["name"]: entry for entry in _entries(options, topic, broker, keys)}
    many = session.Many(len(keys))
    rows = []
    for key in keys:
        with many.item():
            if key not in entries:
                raise _unknown(key, topic)
            rows.append(_row(entries[key]))
    if options.output in ("table", "wide") and len(keys) == 1 and rows:
        click.echo(rows[0]["value"])
    elif rows:
        output.rows(options, ("name", "value", "source"), rows)
    many.leave()


@command.command("set")
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True, type=KeyValue())
@_resource
@click.pass_obj
def set_(
    options: Options, topic: str | None, broker: int | None, settings: tuple[tuple[str, str], ...]
) -> None:
    """Change settings; they hold at once."""
    _alter(options, (topic, broker), [(key, SET, value) for key, value in settings], "changed")


@command.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_resource
@click.pass_obj
def unset(options: Options, topic: str | None, broker: int | None, keys: tuple[str, ...]) -> None:
    """Let settings have their default again."""
    _alter(options, (topic, broker), [(key, DELETE, None) for key in keys], "unset")


@command.command()
@click.argument("key", required=False)
@shared.client
@click.pass_obj
def explain(options: Options, key: str | None) -> None:
    """Say what a setting does; without KEY, list all. No broker is asked."""
    from krust.settings import BROKER as BROKER_TABLE
    from krust.settings import TOPIC as TOPIC_TABLE

    tables = (("broker", BROKER_TABLE), ("topic", TOPIC_TABLE))
    if key is None:
        rows: list[dict[str, object]] = [
            {"name": name, "scope": scope, "default": setting.default, "change": setting.change}
            for scope, table in tables
            for name, setting in sorted(table.items())
        ]
        output.rows(options, ("name", "scope", "default", "change"), rows)
        return
    found = [(scope, table[key]) for scope, table in tables if key in table]
    if not found:
        raise _unknown(key, None)
    explained: list[dict[str, object]] = [
        {
            "name": setting.name,
            "scope": scope,
            "type": setting.type.name.lower(),
            "default": setting.default,
            "valid": None if setting.valid == "*" else setting.valid,
            "supported": setting.support,
            "change": setting.change,
            "defaults_from": list(setting.synonyms),
            "doc": setting.doc,
        }
        for scope, setting in found
    ]
    for fields in explained:
        output.one(options, fields)


def _unknown(key: str, topic: str | None) -> KrustError:
    from krust.config import unknown
    from krust.settings import BROKER as BROKER_TABLE
    from krust.settings import TOPIC as TOPIC_TABLE

    error = unknown(key, TOPIC_TABLE if topic else {**TOPIC_TABLE, **BROKER_TABLE})
    error.exit = int(Exit.NOT_FOUND)
    return error


def _entries(
    options: Options, topic: str | None, broker: int | None, keys: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    asked = session.client(options)
    (kind, name), node = _target(asked, options, topic, broker)
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None if keys is None else list(keys),
    }
    body = {"resources": [resource], "include_synonyms": True}
    [result] = asked.request("DescribeConfigs", body, broker=node)["results"]
    session.check(result, f"settings of {name}")
    return sorted(result["configs"], key=lambda entry: str(entry["name"]))


def _target(
    asked: _krust.Client, options: Options, topic: str | None, broker: int | None
) -> tuple[tuple[int, str], int | None]:
    """The resource, and the broker that must be asked about it."""
    if topic is not None and broker is not None:
        raise click.UsageError("give --topic or --broker, not both")
    if topic is not None:
        session.topics(asked, [topic], options.bootstrap)
        return (TOPIC, topic), None
    if broker is None:
        broker = min(b["node_id"] for b in session.metadata(asked, [])["brokers"])
    return (BROKER, str(broker)), broker


def _alter(
    options: Options,
    whom: tuple[str | None, int | None],
    changes: Sequence[tuple[str, int, str | None]],
    done: str,
) -> None:
    topic, broker = whom
    asked = session.client(options)
    if topic is None and broker is None:
        alter_configs(asked, (BROKER, ""), changes)
    else:
        resource, node = _target(asked, options, topic, broker)
        alter_configs(asked, resource, changes, broker=node)
    what = ", ".join(key for key, _, _ in changes)
    whose = topic or ("all brokers" if broker is None else f"broker {broker}")
    session.note(options, f"{done} {what} of {whose}")


def _row(entry: dict[str, Any]) -> dict[str, object]:
    source = entry.get("config_source")
    return {
        "name": entry["name"],
        "value": "(hidden)" if entry.get("is_sensitive") else entry["value"],
        "source": SOURCES.get(source, str(source)) if source is not None else None,
        "read_only": entry.get("read_only"),
    }


def _is_default(entry: dict[str, Any]) -> bool:
    if "config_source" in entry:
        return bool(entry["config_source"] == DEFAULT)
    return bool(entry.get("is_default"))
