"""`krust group migrate`: copies a stopped group's offsets from ZooKeeper to Kafka, or back.

The larger offset wins, as with `dual.commit.enabled`. The old offsets stay, so members with the old
store can be started again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, session, zookeeper
from krust.cli import options as shared
from krust.cli.coordinator import Coordinators, require_no_members
from krust.cli.plans import confirm_plan, report_offsets
from krust.errors import KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    from krust.cli.coordinator import PartitionKey
    from krust.cli.options import Options
    from krust.cli.zookeeper import ZooKeeperGroups

_COLUMNS = ("topic", "partition", "old", "new", "moved")


@click.command()
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@click.option(
    "--to",
    type=click.Choice(("kafka", "zookeeper")),
    required=True,
    help="The store that its members will use.",
)
@click.option("--dry-run", is_flag=True, help="Only show old and new offsets.")
@zookeeper.option
@shared.client
@click.pass_obj
def migrate(options: Options, name: str, to: str, connect: str | None, *, dry_run: bool) -> None:
    """Copy a group's offsets from ZooKeeper to Kafka, or back. Stop its members first.

    A larger offset in the new store stays. For a group that must not stop, set offsets.storage and
    dual.commit.enabled of its members.
    """
    asked = Coordinators(options)
    old = zookeeper.open_groups(options, asked.client, connect)
    if old is None:
        raise KrustError(
            f"no ZooKeeper is known to {options.bootstrap}", hint="name it: --zookeeper HOSTS"
        )
    for coordinator in (asked, old):
        require_no_members(coordinator.describe(name))
    in_kafka, in_zookeeper = asked.committed(name), old.committed(name)
    now, come = (in_kafka, in_zookeeper) if to == "kafka" else (in_zookeeper, in_kafka)
    if not now and not come:
        raise asked.missing(name)
    there = set(asked.existing(come))
    if gone := sorted(come.keys() - there):
        session.note(options, f"left out, there is no such partition: {_listed(gone)}")
    rows: list[dict[str, Any]] = [
        {"topic": topic, "partition": partition, "old": now.get((topic, partition)), "new": offset}
        for (topic, partition), offset in sorted(come.items())
        if (topic, partition) in there and offset > now.get((topic, partition), -1)
    ]
    question = f"Move {counted(len(rows), 'offset')} of group {name} to {to}?"
    done = bool(rows) and confirm_plan(options, rows, dry_run, question)
    failed = _moved(asked, old, name, to, rows) if done else {}
    if not rows and options.output in ("table", "wide"):
        session.note(options, f"group {name!r} is at least as far in {to} already")
    report_offsets(options, _COLUMNS, rows, failed, done=done)


def _moved(
    asked: Coordinators, old: ZooKeeperGroups, name: str, to: str, rows: list[dict[str, Any]]
) -> dict[PartitionKey, int]:
    """Store the new offsets. Returns partition -> error code."""
    new = {(row["topic"], row["partition"]): row["new"] for row in rows}
    if to == "kafka":
        return asked.commit(name, new)
    old.commit(name, new)
    return {}


def _listed(places: list[PartitionKey]) -> str:
    return ", ".join(f"{topic}:{partition}" for topic, partition in places)
