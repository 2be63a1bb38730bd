"""`krust group`: list, describe, seek and delete consumer groups; try assignors.

A command that changes offsets or groups shows its plan first. It carries the plan out with `--yes`,
or after a question on a terminal. Otherwise it only shows the plan.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from krust import _krust, offset_range
from krust.cli import (
    assignors,
    completion,
    describe_group,
    migrate_group,
    output,
    session,
    zookeeper,
)
from krust.cli import options as shared
from krust.cli.coordinator import DEAD, Coordinators, require_no_members
from krust.cli.plans import confirm_plan, report_offsets
from krust.errors import KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krust.cli.coordinator import PartitionKey
    from krust.cli.options import Options

_MOVED = ("topic", "partition", "old", "new", "lag", "moved")


@click.group(no_args_is_help=True)
def command() -> None:
    """Show consumer groups and move their offsets; try assignors."""


command.add_command(describe_group.describe)
command.add_command(migrate_group.migrate)
command.add_command(assignors.list_)
command.add_command(assignors.simulate)


@command.command("list")
@click.argument("pattern", required=False, shell_complete=completion.groups)
@click.option(
    "--state", "states", multiple=True, metavar="S", help="Stable, Empty, ..; repeatable."
)
@zookeeper.option
@shared.client
@click.pass_obj
def list_(
    options: Options, pattern: str | None, states: tuple[str, ...], connect: str | None
) -> None:
    """List groups, all or those that match PATTERN (* and ?).

    Groups in ZooKeeper have the type zookeeper.
    """
    from fnmatch import fnmatchcase

    states = tuple(map(_state, states))
    asked = Coordinators(options)
    old = zookeeper.open_groups(options, asked.client, connect)
    rows = [
        {
            "group": group["group_id"],
            "state": group["group_state"],
            "type": (group.get("group_type") or "classic").lower(),
            "protocol_type": group["protocol_type"] or None,
            "coordinator": group["coordinator"],
        }
        for group in asked.groups(states) + (old.groups(states) if old else [])
        if pattern is None or fnmatchcase(group["group_id"], pattern)
    ]
    output.rows(options, ("group", "state", "type", "protocol_type", "coordinator"), rows)


STATES = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling", "NotReady"),
)
"""Kafka's states of groups of all types."""


def _state(given: str) -> str:
    """A state in Kafka's spelling, from any case."""
    found = [state for state in STATES if state.lower() == given.lower()]
    if not found:
        raise click.BadParameter(f"there is no state {given!r}: {', '.join(STATES)}")
    return found[0]


@command.command()
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@click.option("--to", "to", metavar="SPEC", help="start, end, 10, +3, -3, @-1h, @2026-11-01.")
@click.option(
    "--to-group",
    metavar="GROUP",
    help="The offsets of another group.",
    shell_complete=completion.groups,
)
@click.option(
    "--to-file", type=click.File("r"), help="Lines of TOPIC PARTITION OFFSET; - is stdin."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P,..]",
    help="Only these topics, known to the group or not.",
)
@click.option("--dry-run", is_flag=True, help="Only show old and new offsets.")
@shared.client
@click.pass_obj
def seek(options: Options, /, name: str, topics: tuple[str, ...], **how: Any) -> None:
    """Move a group's committed offsets. Stop its members first."""
    if sum(how[way] is not None for way in ("to", "to_group", "to_file")) != 1:
        raise click.UsageError("give one of --to SPEC, --to-group GROUP and --to-file FILE")
    asked = Coordinators(options)
    old = asked.committed(name)
    require_no_members(asked.describe(name))
    if how["to"] is not None:
        new = _by_spec(asked, how["to"], _places(asked, options, topics, old))
    else:
        new = asked.committed(how["to_group"]) if how["to_group"] else _read(how["to_file"])
        if not new and how["to_group"]:
            raise asked.missing(how["to_group"])
        if topics:
            chosen = set(_places(asked, options, topics, new))
            new = {place: offset for place, offset in new.items() if place in chosen}
    if not new:
        if not topics and asked.describe(name).state == DEAD:
            raise asked.missing(name)
        raise KrustError(f"group {name!r} has no offsets to move", hint="name a topic: --topic T")
    gone = sorted(set(new) - set(asked.existing(new)))
    if gone:
        text = f'topic "{gone[0][0]}" has no partition {gone[0][1]}'
        raise session.refused(session.UNKNOWN_TOPIC, text)
    rows = _plan(asked, old, new)
    done = confirm_plan(
        options, rows, how["dry_run"], f"Move {counted(len(rows), 'offset')} of group {name}?"
    )
    failed = asked.commit(name, new) if done else {}
    report_offsets(options, _MOVED, rows, failed, done=done)


def _places(
    asked: Coordinators, options: Options, topics: Iterable[str], known: Iterable[PartitionKey]
) -> list[PartitionKey]:
    """The partitions that `--topic` names; without it, those with commits."""
    chosen: list[PartitionKey] = []
    for text in topics:
        name, partitions = session.partitions_of(text)
        topic = session.topics(asked.client, [name], options.bootstrap)[name]
        there = [partition["partition_index"] for partition in topic["partitions"]]
        chosen += [(name, number) for number in (there if partitions is None else partitions)]
    return chosen if topics else asked.existing(known)


def _by_spec(
    asked: Coordinators, text: str, places: Sequence[PartitionKey]
) -> dict[PartitionKey, int]:
    try:
        wanted = offset_range.parse(text, int(time.time() * 1000))
    except offset_range.SpecError as error:
        raise click.UsageError(str(error)) from error
    if wanted.end is not None:
        raise click.UsageError(f"--to {text}: one place, not a range")
    there = asked.existing(places)
    starts, ends = (asked.offsets(there, end) for end in (_krust.EARLIEST, _krust.LATEST))
    timed = {moment: asked.offsets(there, moment) for moment in wanted.times()}
    new = {}
    for place in places:
        if place not in starts:
            new[place] = -1  # the caller reports that there is no such partition
            continue
        at = {moment: found[place] for moment, found in timed.items()}
        offset, _ = wanted.resolve(starts[place], ends[place], at)
        new[place] = min(max(offset, starts[place]), ends[place])
    return new


def _read(lines: Iterable[str]) -> dict[PartitionKey, int]:
    """Lines of `TOPIC PARTITION OFFSET`, separated by blanks or commas. Empty lines and lines with
    # are skipped.
    """
    found: dict[PartitionKey, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) != 3 or not words[1].isdecimal() or not words[2].isdecimal():
            raise click.BadParameter(
                f"line {number}: {line.strip()!r} is not TOPIC PARTITION OFFSET"
            )
        found[words[0], int(words[1])] = int(words[2])
    return found


def _plan(
    asked: Coordinators, old: Mapping[PartitionKey, int], new: Mapping[PartitionKey, int]
) -> list[dict[str, Any]]:
    ends = asked.offsets(list(new), _krust.LATEST)
    return [
        {
            "topic": place[0],
            "partition": place[1],
            "old": old.get(place),
            "new": new[place],
            "lag": max(0, ends[place] - new[place]),
        }
        for place in sorted(new)
    ]


@command.command()
@click.argument(
    "names", metavar="GROUP...", nargs=-1, required=True, shell_complete=completion.groups
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@shared.client
@click.pass_obj
def delete(options: Options, names: tuple[str, ...], dry_run: bool) -> None:
    """Delete groups with their committed offsets. Stop their members first."""
    asked = Coordinators(options)

    def plan(name: str) -> dict[str, Any]:
        group, offsets = asked.describe(name), asked.committed(name)
        if group.state == DEAD and not offsets:
            raise asked.missing(name)
        require_no_members(group)
        return {"group": name, "state": group.state, "offsets": len(offsets)}

    def act(row: dict[str, Any]) -> None:
        answer = asked.ask(row["group"], "DeleteGroups", {"groups_names": [row["group"]]})
        session.check(answer["results"][0], f"group {row['group']!r}")

    question = f"Delete {', '.join(names)} with their offsets?"
    _plan_and_act(options, names, _ItemSteps(plan, act, question, "deleted"), dry_run)


@command.command("drop-offsets")
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@click.argument(
    "topics",
    metavar="TOPIC[:PARTITIONS]...",
    nargs=-1,
    required=True,
    shell_complete=completion.topics,
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@shared.client
@click.pass_obj
def drop_offsets(options: Options, name: str, topics: tuple[str, ...], dry_run: bool) -> None:
    """Delete a group's offsets of topics that its members do not read."""
    asked = Coordinators(options)
    committed = asked.committed(name)
    if not committed and asked.describe(name).state == DEAD:
        raise asked.missing(name)

    def plan(text: str) -> dict[str, Any]:
        topic, partitions = session.partitions_of(text)
        ours = [part for other, part in committed if other == topic]
        chosen = ours if partitions is None else [part for part in partitions if part in ours]
        if not chosen:
            raise session.refused(session.UNKNOWN_TOPIC, f"group {name!r} has no offset of {text}")
        return {"topic": topic, "partitions": chosen}

    def act(row: dict[str, Any]) -> None:
        partitions = [{"partition_index": part} for part in row["partitions"]]
        one = {"name": row["topic"], "partitions": partitions}
        answer = asked.ask(name, "OffsetDelete", {"group_id": name, "topics": [one]})
        session.check(answer, f"group {name!r}")
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                session.check(partition, f"{topic['name']}:{partition['partition_index']}")

    question = f"Forget offsets of {', '.join(topics)} in group {name}?"
    _plan_and_act(options, topics, _ItemSteps(plan, act, question, "dropped"), dry_run)


@dataclass(frozen=True)
class _ItemSteps:
    """What a command does to each of its items.

    plan    returns the item's row
    act     carries the row out
    column  of a row: whether it was carried out
    """

    plan: Callable[[str], dict[str, Any]]
    act: Callable[[dict[str, Any]], None]
    question: str
    column: str


def _plan_and_act(options: Options, items: Sequence[str], steps: _ItemSteps, dry_run: bool) -> None:
    """Show a row for each item, and after confirmation carry out each row."""
    many = session.ItemResults(len(items))
    rows: list[dict[str, Any]] = []
    for item in items:
        with many.item():
            rows.append(steps.plan(item))
    done = bool(rows) and confirm_plan(options, rows, dry_run, steps.question)
    for row in rows:
        row[steps.column] = False
        with many.item():
            if done:
                steps.act(row)
                row[steps.column] = True
    if rows and (done or options.output not in ("table", "wide")):
        output.rows(options, list(rows[0]), rows)
    many.raise_failure()
