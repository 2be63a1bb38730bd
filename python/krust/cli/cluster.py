"""`krust cluster`: brokers and their health, APIs, leaders, and moves of the metadata."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.apis import NAMES
from krust.cli.brokers import NO_BROKER, ClusterState
from krust.cli.elect import elect
from krust.cli.exits import Exit
from krust.cli.features import features
from krust.cli.reassign import reassign
from krust.cli.replacement import replace_plan
from krust.errors import KrustError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.cli.options import Options

_BETWEEN_S = 0.5
"""between two looks of `health --wait`"""


@click.group(no_args_is_help=True)
def command() -> None:
    """Show a cluster's brokers, health, APIs, features; move leaders, replicas, metadata."""


command.add_command(elect)
command.add_command(features)
command.add_command(reassign)
command.add_command(replace_plan)


@command.command()
@shared.client
@click.pass_obj
def info(options: Options) -> None:
    """Show the cluster's id, its brokers, topics and partitions."""
    found = session.metadata(session.client(options))
    topics = [topic for topic in found["topics"] if not topic["error_code"]]
    partitions = [partition for topic in topics for partition in topic["partitions"]]
    leaderships: dict[int, int] = {}
    for partition in partitions:
        leaderships[partition["leader_id"]] = leaderships.get(partition["leader_id"], 0) + 1
    brokers = [
        {
            "node_id": broker["node_id"],
            "host": broker["host"],
            "port": broker["port"],
            "rack": broker.get("rack"),
            "leads": leaderships.get(broker["node_id"], 0),
            "controller": broker["node_id"] == found.get("controller_id"),
        }
        for broker in sorted(found["brokers"], key=lambda broker: int(broker["node_id"]))
    ]
    fields: dict[str, object] = {
        "cluster_id": found.get("cluster_id"),
        "controller": found.get("controller_id"),
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": leaderships.get(-1, 0),
        "under_replicated": sum(len(p["isr_nodes"]) < len(p["replica_nodes"]) for p in partitions),
    }
    if options.output in ("table", "wide"):
        output.one(options, fields)
        columns = ("node_id", "host", "port", "rack", "leads", "controller")
        output.table(columns, brokers)
    elif options.output == "csv":
        output.rows(options, list(brokers[0]) if brokers else [], brokers)
    else:
        output.one(options, {**fields, "brokers": brokers})


@command.command()
@shared.client
@click.pass_obj
def brokers(options: Options) -> None:
    """Show each broker: its leaderships and replicas, listeners, bytes in its log directories.

    A broker that does not answer shows why. The command fails only if no broker answers.
    """
    view = ClusterState(options)
    columns = ("node_id", "host", "port", "rack", "controller", "leads", "replicas", "log_bytes")
    rows = [view.row(broker) for broker in view.brokers]
    if options.output in ("table", "wide"):
        more = ["listeners"] if options.output == "wide" else []
        more += ["error"] if any(row["error"] for row in rows) else []
        output.table((*columns, *more), rows)
    else:
        output.rows(options, (*columns, "listeners", "log_dirs", "error"), rows)


@command.command()
@shared.client
@click.pass_obj
def controller(options: Options) -> None:
    """Show the controller. A KRaft cluster names any broker.

    Exit 5: there is none.
    """
    view = ClusterState(options)
    for broker in view.brokers:
        if broker["node_id"] == view.controller != NO_BROKER:
            names = ("node_id", "host", "port", "rack")
            output.one(options, {name: broker.get(name) for name in names})
            return
    error = KrustError("there is no controller", hint="try again: an election takes a moment")
    error.exit = int(Exit.NOT_FOUND)
    raise error


@command.command()
@click.option(
    "--wait",
    "wait_ms",
    type=shared.Duration(),
    default=0,
    help="Check again until the cluster is healthy.",
)
@click.option("--strict", is_flag=True, help="A notice counts as a problem.")
@shared.client
@click.pass_obj
def health(options: Options, wait_ms: int, strict: bool) -> None:
    """Check the cluster. Exit 9: there are problems.

    Problems: no controller that serves, a broker that does not answer, a log directory offline, a
    disk down to krust.disk.reserve.bytes, partitions without a leader, under or at min ISR, or
    under-replicated.

    Notices: leaders that are not at their preferred replicas, partitions that
    move.
    """
    deadline = time.monotonic() + wait_ms / 1000
    while True:
        is_last = time.monotonic() >= deadline
        try:
            view = ClusterState(options)
            problems, notices = view.problems(), view.notices()
            is_healthy = not problems and not (strict and notices)
            if is_healthy or is_last:
                break
        except KrustError:
            if is_last:
                raise
        time.sleep(_BETWEEN_S)
    fields: dict[str, object] = {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": len(view.brokers),
        "partitions": len(view.partitions),
        "healthy": is_healthy,
    }
    columns = ("problem", "subject", "detail")
    if _talks(options):
        output.one(options, fields)
        if problems:
            output.table(columns, problems)
        if notices:
            named = [{**each, "notice": each["problem"]} for each in notices]
            output.table(("notice", *columns[1:]), named)
    elif options.output == "csv":
        output.rows(options, columns, problems + notices * strict)
    else:
        output.one(options, {**fields, "problems": problems, "notices": notices})
    if not is_healthy:
        session.sys_exit(Exit.PROBLEMS)


def _talks(options: Options) -> bool:
    """Whether the output is for people."""
    return options.output in ("table", "wide")


@command.command()
@click.option("--broker", type=int, metavar="N", help="Ask this broker.")
@shared.client
@click.pass_obj
def versions(options: Options, broker: int | None) -> None:
    """List the APIs a broker serves, with their versions."""
    rows: list[dict[str, object]] = [
        {"key": key, "api": name or NAMES.get(key, "(unknown)"), "first": first, "last": last}
        for key, name, first, last in sorted(session.client(options).versions(broker))
    ]
    output.rows(options, ("key", "api", "first", "last"), rows)


def _mover(function: Callable[..., None]) -> Callable[..., None]:
    """The options of `export` and `import`."""
    options = (
        click.option(
            "--zookeeper", metavar="HOSTS[/CHROOT]", help="The ZooKeeper (zookeeper.connect)."
        ),
        click.option("--data-dir", metavar="DIR", help="The broker's log directory. [krust-data]"),
        click.option(
            "--config", "file", type=click.Path(path_type=Path), help="The broker's settings."
        ),
        click.option(
            *("-o", "--set", "pairs"), multiple=True, type=shared.KeyValue(), help="A setting."
        ),
        click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
        click.option("--force", is_flag=True, help="Replace a side that is newer."),
        click.option(
            "--keep", is_flag=True, help="Keep settings, quotas and topics that others set there."
        ),
        click.option("--replace", is_flag=True, help="Replace what others set there."),
        shared.client,
        click.pass_obj,
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("export", short_help="Copy a broker's metadata into a ZooKeeper.")
@_mover
def export(options: Options, /, **how: Any) -> None:
    """Copy a broker's metadata from its data directory into a ZooKeeper.

    It moves topics with their ids, settings, leader epochs, producer ids and the cluster id. Then
    `krust serve --zookeeper`, or a Kafka up to 3.9, can take over the directory. Stop the broker
    first. If the ZooKeeper has settings, quotas or topics that others set, the command names them
    and stops, unless --keep or --replace decides about them.
    """
    _move(options, "export", **how)


@command.command("import", short_help="Copy a ZooKeeper's metadata into a data directory.")
@_mover
def import_(options: Options, /, **how: Any) -> None:
    """Copy a cluster's metadata from a ZooKeeper into the data directory of its only broker.

    Then `krust serve` needs no ZooKeeper. The directory may be a Kafka's. Stop the brokers first.
    """
    _move(options, "import", **how)


_COLUMNS = ("subject", "there", "becomes", "set_by_others")
_LISTED = 200
"""the most differences that are shown"""


def _move(
    options: Options,
    direction: Literal["export", "import"],
    *,
    dry_run: bool,
    force: bool,
    keep: bool,
    replace: bool,
    **direct: Any,
) -> None:
    from krust.cli import serve
    from krust.cli.log_repair import locked
    from krust.runtime import transfer

    if keep and replace:
        raise click.UsageError("--keep or --replace, not both")
    config = serve.configure(**direct)
    if not config.text("zookeeper.connect"):
        raise click.UsageError("which ZooKeeper? --zookeeper HOSTS[/CHROOT]")
    folder = config.log_dirs()[0]
    if not folder.is_dir():
        raise click.UsageError(f"there is no directory {folder}")
    move = transfer.export_tree if direction == "export" else transfer.import_tree
    with locked(folder, direction):
        done = move(config, folder, transfer.TransferOptions(force, keep, replace, dry_run))
    fields = {**done._asdict(), "dry_run": dry_run}
    listed = [
        dict(zip(_COLUMNS, (each.subject, *each.texts, each.foreign), strict=True))
        for each in fields.pop("differences")
    ]
    fields["set_by_others"] = sum(bool(each["set_by_others"]) for each in listed)
    if not _talks(options):
        output.one(options, {**fields, "differences": listed[:_LISTED]})
        return
    output.one(options, fields)
    if listed:
        output.table(_COLUMNS, listed[:_LISTED])
    if len(listed) > _LISTED:
        click.echo(f"and {len(listed) - _LISTED} more; all are counted above")
