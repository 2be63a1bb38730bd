"""`krust group describe`: a group's state, members, offsets and lag, and its last rebalance.

The lag counts to the high watermark, as in Kafka's tool. With `--read-committed` it counts to the
last stable offset, which is as far as a `read_committed` consumer can read. The lag in time is the
age of the first record of the lag by its timestamp; None: there is no lag, or the record cannot be
read. `--watch` repeats the output, on a terminal in the same place; in JSON it writes a document
each time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from krust import _krust
from krust.cli import completion, history, output, session, zookeeper
from krust.cli import options as shared
from krust.cli.coordinator import CONSUMER, DEAD, Coordinators
from krust.named_tuple import NamedTuple
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krust.cli.coordinator import GroupDescription, PartitionKey
    from krust.cli.options import Options
    from krust.cli.zookeeper import ZooKeeperGroups

_PARTITION = (
    *("topic", "partition", "committed", "end", "lag", "lag_time"),
    *("member", "client", "host"),
)
_STABLE_PARTITION = (*_PARTITION[:3], "last_stable", *_PARTITION[3:])
_MEMBER = ("member", "instance", "client", "host", "assigned")


class _LagOptions(NamedTuple):
    """Which lag is counted, and which partitions are shown."""

    lag_only: bool
    read_committed: bool


@click.command()
@click.argument(
    "names", metavar="GROUP...", nargs=-1, required=True, shell_complete=completion.groups
)
@click.option("--members", is_flag=True, help="Members and their partitions, not offsets.")
@click.option("--lag-only", is_flag=True, help="Only partitions with lag.")
@click.option("--read-committed", is_flag=True, help="Count lag to the last stable offset.")
@click.option("--history", "past", is_flag=True, help="The last 20 rebalances.")
@click.option("--watch", type=click.FloatRange(0.1), metavar="S", help="Repeat every S seconds.")
@zookeeper.option
@shared.client
@click.pass_obj
def describe(
    options: Options,
    names: tuple[str, ...],
    connect: str | None,
    *,
    members: bool,
    lag_only: bool,
    read_committed: bool,
    past: bool,
    watch: float | None,
) -> None:
    """Show state, members, offsets and lag of groups, and why they rebalanced last.

    The lag includes records of open transactions. With --read-committed it does not: it ends at the
    last stable offset, where the first open transaction begins. A group in ZooKeeper is shown too.
    """
    lag_options = _LagOptions(lag_only, read_committed)
    asked = Coordinators(options)
    old = zookeeper.open_groups(options, asked.client, connect)
    while True:
        many = session.ItemResults(len(names))
        described: list[dict[str, Any]] = []
        for name in names:
            with many.item():
                described += _group_documents(asked, old, name, lag_options)
        if watch is not None:
            click.clear()  # does nothing without a terminal
        shown = _STABLE_PARTITION if read_committed else _PARTITION
        columns, look = (_MEMBER, _member_columns) if members else (shown, _describe_state)
        _show(options, described, (columns, look), past=past)
        if watch is None:
            many.raise_failure()
            return
        time.sleep(watch)


def _show(
    options: Options,
    described: Sequence[dict[str, Any]],
    table: tuple[tuple[str, ...], Callable[[Mapping[str, Any]], list[dict[str, object]]]],
    *,
    past: bool,
) -> None:
    columns, look = table
    if options.output in ("json", "ndjson"):
        output.rows(options, (), described)
    elif options.output == "csv":
        every = [{"group": group["group"], **row} for group in described for row in look(group)]
        output.rows(options, ("group", *columns), every)
    else:
        for group in described:
            click.echo(_title(group))
            if shown := look(group):
                output.table(columns, shown)
            for line in history.lines(group, time.time() * 1000, all_of_it=past):
                click.echo(line)


def _group_documents(
    asked: Coordinators, old: ZooKeeperGroups | None, name: str, lag_options: _LagOptions
) -> list[dict[str, Any]]:
    """The group in Kafka and the group in ZooKeeper, as far as they exist."""
    found = []
    for coordinator in (asked, old):
        group = None if coordinator is None else coordinator.describe(name)
        committed = {} if coordinator is None else coordinator.committed(name)
        if group is not None and (group.state != DEAD or committed):
            found.append(_kafka_document(asked, group, committed, lag_options))
    if not found:
        raise asked.missing(name)
    return found


def _kafka_document(
    asked: Coordinators,
    group: GroupDescription,
    committed: Mapping[PartitionKey, int],
    lag_options: _LagOptions,
) -> dict[str, Any]:
    owner = {tuple(one): member for member in group.members for one in member["assigned"] or ()}
    places = sorted({*committed, *owner})
    there = asked.existing(places)
    stable = asked.offsets(there, _krust.LATEST, read_committed=True)
    ends = asked.offsets(there, _krust.LATEST)
    readable = stable if lag_options.read_committed else ends
    behind = {at: first for at, first in committed.items() if first < readable.get(at, 0)}
    written = asked.written(behind)
    now_ms = int(time.time() * 1000)
    partitions = []
    for place in places:
        at, end, member = committed.get(place), readable.get(place), owner.get(place, {})
        lag = None if at is None or end is None else max(0, end - at)
        if lag_options.lag_only and not lag:
            continue
        numbers = {
            "topic": place[0],
            "partition": place[1],
            "committed": at,
            "last_stable": stable.get(place),
            "end": ends.get(place),
            "lag": lag,
            "lag_ms": max(0, now_ms - written[place]) if place in written else None,
        }
        who = {"client": member.get("client_id"), "host": member.get("host")}
        partitions.append({**numbers, "member": member.get("member_id"), **who})
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "epoch": group.epoch,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator if group.coordinator >= 0 else None,
        "lag": sum(row["lag"] or 0 for row in partitions),
        "lag_ms": max((row["lag_ms"] or 0 for row in partitions), default=0),
        "members": group.members,
        "partitions": partitions,
        "history": history.plain(group.history),
    }


def _title(group: Mapping[str, Any]) -> str:
    parts = [group["group"], group["state"]]
    what = f"epoch {group['epoch']}   assignor" if group["type"] == CONSUMER else "protocol"
    parts += [f"{what} {group['protocol']}"] if group["protocol"] else []
    ours = (group["history"] or [{}])[-1].get("assignor")
    if ours and ours != group["protocol"]:
        parts.append(f"assigned by krust's {ours}")
    there = group["coordinator"] is None
    parts += ["in ZooKeeper" if there else f"coordinator {group['coordinator']}"]
    parts += [counted(len(group["members"]), "member")]
    about = f" (~{history.span(group['lag_ms'])})" if group["lag_ms"] else ""
    return "   ".join([*parts, f"lag {group['lag']:,}{about}"])


def _describe_state(group: Mapping[str, Any]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = group["partitions"]
    times = (row["lag_ms"] for row in group["partitions"])
    spans = (None if one is None else history.span(one) for one in times)
    return [{**row, "lag_time": span} for row, span in zip(rows, spans, strict=True)]


def _member_columns(group: Mapping[str, Any]) -> list[dict[str, object]]:
    return [
        {
            "member": member["member_id"],
            "instance": member["instance_id"],
            "client": member["client_id"],
            "host": member["host"],
            "assigned": _short(member["assigned"]),
        }
        for member in group["members"]
    ]


def _short(assigned: Sequence[PartitionKey] | None) -> str | None:
    if assigned is None:
        return None
    topics: dict[str, list[str]] = {}
    for topic, partition in assigned:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(ours)}" for topic, ours in topics.items())
