"""`krust config`: settings of brokers, topics and groups of a running cluster.

Without `--topic`, `--group` or `--broker` it shows the settings of the broker that answers, and
`set` and `unset` change the default of all brokers, as `kafka-configs --entity-default` does.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.exits import Exit
from krust.cli.options import KeyValue
from krust.cli.topic import DELETE, SET, TOPIC, alter_configs
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krust import _krust
    from krust.cli.options import Options
    from krust.errors import KrustError

BROKER = 4
GROUP = 32
SOURCES = {
    0: "unknown", 1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 6: "logger",
    7: "metrics", 8: "group",
}  # fmt: skip
DEFAULT = 5


class SettingsOwner(NamedTuple):
    """The owner of settings: one of these, or the broker that answers."""

    topic: str | None
    group: str | None
    broker: int | None


@click.group(no_args_is_help=True)
def command() -> None:
    """Show and change settings of brokers, topics and groups."""


def _resource(function: Callable[..., None]) -> Callable[..., None]:
    whom = click.option("--broker", type=int, metavar="N", help="The settings of this broker.")
    what = click.option(
        "--topic", metavar="T", help="The settings of this topic.", shell_complete=completion.topics
    )
    who = click.option(
        "--group", metavar="G", help="The settings of this group.", shell_complete=completion.groups
    )

    def asked(options: Options, /, **more: Any) -> None:
        topic, group, broker = (more.pop(name) for name in ("topic", "group", "broker"))
        if sum(each is not None for each in (topic, group, broker)) > 1:
            raise click.UsageError("give one of --topic, --group and --broker")
        function(options, SettingsOwner(topic, group, broker), **more)

    update_wrapper(asked, function)
    return what(who(whom(shared.client(click.pass_obj(asked)))))


@command.command()
@click.option("-a", "--all", "everything", is_flag=True, help="Defaults too.")
@click.option("--source", is_flag=True, help="The source of each value.")
@_resource
def show(options: Options, whose: SettingsOwner, everything: bool, source: bool) -> None:
    """List settings that are not at their default."""
    entries = _entries(options, whose)
    rows = [_row(entry) for entry in entries if everything or not _is_default(entry)]
    columns = ["name", "value"] + (["source", "read_only"] if source else [])
    if not rows:
        session.note(options, "every setting is at its default; --all lists them")
    output.rows(options, columns, rows)


@command.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_resource
def get(options: Options, whose: SettingsOwner, keys: tuple[str, ...]) -> None:
    """Show the value of settings."""
    entries = {entry["name"]: entry for entry in _entries(options, whose, keys)}
    many = session.ItemResults(len(keys))
    rows = []
    for key in keys:
        with many.item():
            if key not in entries:
                raise _unknown(key, whose.topic)
            rows.append(_row(entries[key]))
    if options.output in ("table", "wide") and len(keys) == 1 and rows:
        click.echo(rows[0]["value"])
    elif rows:
        output.rows(options, ("name", "value", "source"), rows)
    many.raise_failure()


@command.command("set")
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True, type=KeyValue())
@_resource
def set_(options: Options, whose: SettingsOwner, settings: tuple[tuple[str, str], ...]) -> None:
    """Change settings. They take effect at once."""
    _alter(options, whose, [(key, SET, value) for key, value in settings], "changed")


@command.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_resource
def unset(options: Options, whose: SettingsOwner, keys: tuple[str, ...]) -> None:
    """Reset settings to their defaults."""
    _alter(options, whose, [(key, DELETE, None) for key in keys], "unset")


@command.command()
@click.argument("key", required=False)
@shared.client
@click.pass_obj
def explain(options: Options, key: str | None) -> None:
    """Explain a setting; without KEY, list all. Needs no broker."""
    from krust.settings import BROKER as BROKER_TABLE
    from krust.settings import TOPIC as TOPIC_TABLE

    tables = (("broker", BROKER_TABLE), ("topic", TOPIC_TABLE))
    if key is None:
        rows: list[dict[str, object]] = [
            {
                "name": name,
                "scope": scope,
                "type": setting.type.name.lower(),
                "default": setting.default,
                "change": setting.change,
            }
            for scope, table in tables
            for name, setting in sorted(table.items())
        ]
        output.rows(options, ("name", "scope", "type", "default", "change"), rows)
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
    options: Options, whose: SettingsOwner, keys: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    asked = session.client(options)
    (kind, name), node = _resource_of(asked, options, whose)
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None if keys is None else list(keys),
    }
    body = {"resources": [resource], "include_synonyms": True}
    [result] = asked.request("DescribeConfigs", body, broker=node)["results"]
    session.check(result, f"settings of {name}")
    return sorted(result["configs"], key=lambda entry: str(entry["name"]))


def _resource_of(
    asked: _krust.Client, options: Options, whose: SettingsOwner
) -> tuple[tuple[int, str], int | None]:
    """The resource, and the broker to ask about it; None: any."""
    if whose.topic is not None:
        session.topics(asked, [whose.topic], options.bootstrap)
        return (TOPIC, whose.topic), None
    if whose.group is not None:
        return (GROUP, whose.group), None
    broker = whose.broker
    if broker is None:
        broker = min(b["node_id"] for b in session.metadata(asked, [])["brokers"])
    return (BROKER, str(broker)), broker


def _alter(
    options: Options,
    whose: SettingsOwner,
    changes: Sequence[tuple[str, int, str | None]],
    done: str,
) -> None:
    asked = session.client(options)
    if whose == SettingsOwner(None, None, None):
        alter_configs(asked, (BROKER, ""), changes)
    else:
        resource, node = _resource_of(asked, options, whose)
        alter_configs(asked, resource, changes, broker=node)
    what = ", ".join(key for key, _, _ in changes)
    broker = "all brokers" if whose.broker is None else f"broker {whose.broker}"
    name = whose.topic or (f"group {whose.group}" if whose.group is not None else broker)
    session.note(options, f"{done} {what} of {name}")


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
