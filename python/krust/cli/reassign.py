"""`krust cluster reassign`: moves partitions to other brokers.

The user names the new replicas (`orders:0=1,2,3`, or a file in the JSON of
kafka-reassign-partitions), or krust plans them: spread over brokers (`--to`), moved to new brokers
(`--add`) or away from others (`--remove`), with another replication factor (`-r`). The command
shows the plan with the bytes that it copies. With --yes it starts the moves and follows them to
their end. Without arguments it lists the moves under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, move_progress, output, reassign_plan, session
from krust.cli import options as shared
from krust.cli.move_progress import PartitionCopy
from krust.cli.plans import confirm_plan
from krust.cli.replica_health import OngoingMove, ongoing_moves
from krust.cli.throttles import MovingPartition, throttle, unthrottle
from krust.named_tuple import NamedTuple
from krust.quantities import counted, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust import _krust
    from krust.cli.options import Options
    from krust.cli.reassign_plan import ReplicaChange
    from krust.cli.replica_health import PartitionKey

NO_REASSIGNMENT = 85
"""error code NO_REASSIGNMENT_IN_PROGRESS"""
_COLUMNS = ("topic", "partition", "from", "to", "bytes")


class ReassignOptions(NamedTuple):
    """How `reassign` carries out a plan."""

    rate: int | None
    """bytes a second that no broker may exceed"""
    is_followed: bool
    dry_run: bool


@click.command()
@click.argument("moves", metavar="[TOPIC:P=BROKER,..]...", nargs=-1, type=shared.KeyValue())
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="Replicas in the JSON of kafka-reassign-partitions.",
)
@click.option("--to", metavar="BROKER,..", help="Spread the partitions over these brokers.")
@click.option("--add", metavar="BROKER,..", help="Let these new brokers take their share.")
@click.option("--remove", metavar="BROKER,..", help="Move all partitions off these brokers.")
@click.option(
    "-r", "--replication-factor", type=click.IntRange(1), help="This number of replicas each."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=completion.topics,
    help="Plan for this topic; repeatable. [all]",
)
@click.option("--save", type=click.Path(path_type=Path), help="Write the plan as Kafka's JSON.")
@click.option("--throttle", "rate", type=shared.Bytes(), help="Bytes a second for each broker.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the moves.")
@click.option("--watch", is_flag=True, help="Follow the moves that are under way.")
@click.option("--cancel", "given_up", metavar="TOPIC[:P]", multiple=True, help="Cancel moves.")
@click.option("--cancel-all", is_flag=True, help="Cancel all moves.")
@click.option("--unthrottle", "is_unthrottled", is_flag=True, help="Remove throttles that remain.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@shared.client
@click.pass_obj
def reassign(
    options: Options,
    /,
    *,
    moves: tuple[tuple[str, str], ...],
    file: Path | None,
    rate: int | None,
    no_wait: bool,
    watch: bool,
    given_up: tuple[str, ...],
    cancel_all: bool,
    is_unthrottled: bool,
    dry_run: bool,
    save: Path | None,
    **planned: Any,
) -> None:
    """Move partitions to other brokers, the preferred leader first; without arguments: list moves.

    The plan shows the replicas of each partition before and after, and the bytes that are copied.
    --yes carries it out. Ctrl-C ends only this command; the moves continue.
    """
    wanted = reassign_plan.WantedReplicas(moves, file, **planned)
    asks = [wanted.is_given, watch, bool(given_up) or cancel_all, is_unthrottled]
    if sum(asks) > 1:
        raise click.UsageError("plan moves, or --watch, --cancel or --unthrottle them: one at once")
    asked = session.client(options)
    if wanted.is_given:
        changes = reassign_plan.planned_changes(options, asked, wanted)
        if save is not None:
            reassign_plan.save(save, changes)
        _carry_out(options, asked, changes, ReassignOptions(rate, not no_wait, dry_run))
    elif given_up or cancel_all:
        _cancel(options, asked, given_up, dry_run=dry_run)
    elif watch:
        _watch(options, asked)
    elif is_unthrottled:
        _unthrottle_all(options, asked)
    else:
        _list(options, ongoing_moves(asked))


def _carry_out(
    options: Options, asked: _krust.Client, changes: Sequence[ReplicaChange], how: ReassignOptions
) -> None:
    """Show the plan. If the user agrees, send it and follow it."""
    rows = [each.row() for each in changes]
    if not rows:
        session.note(options, "every partition is where it should be")
        output.rows(options, _COLUMNS, rows)
        return
    session.note(options, _summary(changes))
    if not confirm_plan(options, rows, how.dry_run, "Move these partitions?"):
        if options.output not in ("table", "wide"):
            output.rows(options, _COLUMNS, rows)
        return
    moving = [
        MovingPartition(each.topic, each.partition, each.before, each.added)
        for each in changes
        if each.added
    ]
    if how.rate is not None and moving:
        throttle(asked, moving, how.rate)
    places = {(each.topic, each.partition): list(each.after) for each in changes}
    refused = _send(options, asked, places)
    started = [each for each in changes if (each.topic, each.partition) not in refused]
    if how.is_followed:
        copies = {
            (each.topic, each.partition): PartitionCopy(each.added, each.bytes) for each in started
        }
        _follow(options, asked, copies, is_throttled=how.rate is not None)
        if how.rate is not None:
            _unthrottle(options, asked, moving)
    elif how.rate is not None and moving:
        session.note(options, "afterwards: krust cluster reassign --unthrottle")
    _report(options, asked, changes, refused, is_over=how.is_followed)


def _summary(changes: Sequence[ReplicaChange]) -> str:
    """The totals of a plan."""
    received: dict[int, int] = {}
    for each in changes:
        for broker in each.added:
            received[broker] = received.get(broker, 0) + each.bytes
    text = f"{counted(len(changes), 'partition')} would change"
    if not received:
        return f"{text}; no data is copied"
    to = ", ".join(
        f"{size(count)} to broker {broker}" for broker, count in sorted(received.items())
    )
    return f"{text}; copied: {to}"


def _send(
    options: Options, asked: _krust.Client, wanted: Mapping[PartitionKey, Sequence[int] | None]
) -> dict[PartitionKey, dict[str, Any]]:
    """Request the reassignments. Returns the answers that refuse a partition."""
    topics: dict[str, list[dict[str, object]]] = {}
    for (name, number), replicas in wanted.items():
        one: dict[str, object] = {"partition_index": number, "replicas": replicas}
        topics.setdefault(name, []).append(one)
    body = {"topics": [{"name": name, "partitions": ps} for name, ps in topics.items()]}
    answer = asked.request(
        "AlterPartitionReassignments", {**body, "timeout_ms": options.timeout_ms}
    )
    session.check(answer, "reassignment")
    return {
        (topic["name"], each["partition_index"]): each
        for topic in answer["responses"]
        for each in topic["partitions"]
        if each["error_code"]
    }


def _follow(
    options: Options,
    asked: _krust.Client,
    copies: dict[PartitionKey, PartitionCopy],
    *,
    is_throttled: bool = False,
) -> None:
    try:
        move_progress.follow(options, asked, copies)
    except KeyboardInterrupt:
        text = (
            "the moves go on; krust cluster reassign --watch follows them, --cancel-all ends them"
        )
        if is_throttled:
            text += "; afterwards --unthrottle removes the throttle"
        session.note(options, text)
        raise


def _unthrottle(options: Options, asked: _krust.Client, moving: Sequence[MovingPartition]) -> None:
    """Remove the throttles. Those of brokers stay while other moves need them."""
    brokers = {broker for each in moving for broker in (*each.sources, *each.added)}
    if ongoing_moves(asked):
        session.note(options, "other moves are under way; their brokers stay throttled")
        brokers = set()
    unthrottle(asked, {each.topic for each in moving}, brokers)


def _report(
    options: Options,
    asked: _krust.Client,
    changes: Sequence[ReplicaChange],
    refused: dict[PartitionKey, dict[str, Any]],
    *,
    is_over: bool,
) -> None:
    """Report the result of each partition."""
    now = reassign_plan.replicas_now(asked, changes, options.timeout_ms) if is_over else {}
    many, done = session.ItemResults(len(changes)), []
    for each in changes:
        place = (each.topic, each.partition)
        with many.item():
            session.check(refused.get(place, {"error_code": 0}), f"{place[0]}:{place[1]}")
            if is_over and now.get(place) != each.after:
                raise session.refused(
                    NO_REASSIGNMENT,
                    f"{place[0]}:{place[1]} is on {list(now.get(place, ()))}, not on "
                    f"{list(each.after)}: somebody cancelled or replaced the move",
                )
            done.append({**each.row(), "moved": is_over})
    if done:
        output.rows(options, _COLUMNS, done)
    many.raise_failure()


def _cancel(
    options: Options, asked: _krust.Client, given_up: Sequence[str], *, dry_run: bool
) -> None:
    """Cancel moves: each partition gets the replicas from before its move."""
    ongoing = ongoing_moves(asked)
    wanted = _named(options, asked, ongoing, given_up) if given_up else list(ongoing)
    if not wanted:
        session.note(options, "nothing moves")
        output.rows(options, _COLUMNS[:4], [])
        return
    rows: list[dict[str, Any]] = [
        {"topic": name, "partition": number, "from": None, "to": None} for name, number in wanted
    ]
    for row, place in zip(rows, wanted, strict=True):
        if place in ongoing:
            move = ongoing[place]
            row["from"] = list(move.replicas)
            row["to"] = [broker for broker in move.replicas if broker not in move.adding]
    if not confirm_plan(options, rows, dry_run, "Give these moves up?"):
        if options.output not in ("table", "wide"):
            output.rows(options, _COLUMNS[:4], rows)
        return
    refused = _send(options, asked, dict.fromkeys(wanted))
    many, done = session.ItemResults(len(rows)), []
    for row, place in zip(rows, wanted, strict=True):
        with many.item():
            session.check(refused.get(place, {"error_code": 0}), f"{place[0]}:{place[1]}")
            done.append(row)
    if done:
        output.rows(options, _COLUMNS[:4], done)
    many.raise_failure()


def _named(
    options: Options,
    asked: _krust.Client,
    ongoing: Iterable[PartitionKey],
    given_up: Sequence[str],
) -> list[PartitionKey]:
    """The partitions that --cancel names; a topic stands for its partitions that move."""
    found: list[PartitionKey] = []
    for text in given_up:
        name, chosen = session.partitions_of(text)
        session.topics(asked, [name], options.bootstrap)
        moving = [place for place in ongoing if place[0] == name]
        if chosen is None and not moving:
            raise session.refused(NO_REASSIGNMENT, f'no partition of topic "{name}" moves')
        found += moving if chosen is None else [(name, number) for number in chosen]
    return list(dict.fromkeys(found))


def _watch(options: Options, asked: _krust.Client) -> None:
    """Follow what moves."""
    ongoing = ongoing_moves(asked)
    if not ongoing:
        session.note(options, "nothing moves")
        _list(options, ongoing)
        return
    sizes = reassign_plan.leader_sizes(asked, ongoing)
    copies = {
        place: PartitionCopy(move.adding, sizes.get(place, 0)) for place, move in ongoing.items()
    }
    _follow(options, asked, copies)
    _list(options, ongoing)


def _unthrottle_all(options: Options, asked: _krust.Client) -> None:
    """Remove the throttles of every topic and broker."""
    if ongoing_moves(asked):
        session.note(options, "partitions are moving; from now on without a throttle")
    found = session.metadata(asked)
    topics = [topic["name"] for topic in found["topics"] if not topic["error_code"]]
    throttled = reassign_plan.throttled_topics(asked, topics)
    brokers = [int(broker["node_id"]) for broker in found["brokers"]]
    unthrottle(asked, throttled, brokers)
    output.rows(options, ("topic",), [{"topic": name} for name in throttled])


def _list(options: Options, ongoing: dict[PartitionKey, OngoingMove]) -> None:
    rows = [
        {
            "topic": name,
            "partition": number,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for (name, number), move in sorted(ongoing.items())
    ]
    output.rows(options, ("topic", "partition", "replicas", "adding", "removing"), rows)
