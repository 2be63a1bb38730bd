"""`krust cluster elect` and `reassign`: who leads partitions, and who has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.plans import agreed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from krust import _krust
    from krust.cli.options import Options

PREFERRED, UNCLEAN = 0, 1
INVALID_REPLICA_ASSIGNMENT, NOT_NEEDED = 39, 84
"""error codes; NOT_NEEDED is ELECTION_NOT_NEEDED"""


@click.command()
@click.argument("names", metavar="[TOPIC[:P,P]]...", nargs=-1, shell_complete=completion.topics)
@click.option("--unclean", is_flag=True, help="Any replica, where none in sync lives: loses data.")
@shared.client
@click.pass_obj
def elect(options: Options, names: tuple[str, ...], unclean: bool) -> None:
    """Let preferred replicas lead, of these partitions or of all."""
    asked = session.client(options)
    wanted = None
    if names:
        places = _places(asked, options, names)
        wanted = [{"topic": name, "partitions": numbers} for name, numbers in places.items()]
    if unclean:
        session.confirm(options, "Elect replicas that may lack records?")
    body = {
        "election_type": UNCLEAN if unclean else PREFERRED,
        "topic_partitions": wanted,
        "timeout_ms": options.timeout_ms,
    }
    answer = asked.request("ElectLeaders", body)
    session.check({"error_code": 0, **answer}, "election")
    results = [
        ({"topic": one["topic"], "partition": each["partition_id"]}, each)
        for one in answer["replica_election_results"]
        for each in one["partition_result"]
    ]
    many, rows = session.Many(len(results)), []
    for place, each in results:
        needed = each["error_code"] != NOT_NEEDED
        with many.item():
            if needed:
                session.check(each, f"{place['topic']}:{place['partition']}")
            rows.append({**place, "elected": needed})
    if not results:
        session.note(options, "every partition is led as it should be")
    output.rows(options, ("topic", "partition", "elected"), rows)
    many.leave()


@click.command()
@click.argument("moves", metavar="[TOPIC:P=BROKER,..]...", nargs=-1, type=shared.KeyValue())
@click.option("--cancel", "given_up", metavar="TOPIC:P", multiple=True, help="Give a move up.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@shared.client
@click.pass_obj
def reassign(
    options: Options,
    moves: tuple[tuple[str, str], ...],
    given_up: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Move partitions to other brokers, the preferred leader first; without any: list moves.

    A krust without replication only changes the order of replicas; it refuses what would have to
    copy data.
    """
    asked = session.client(options)
    wanted: dict[tuple[str, int], list[int] | None] = {_place(text): None for text in given_up}
    wanted |= {_place(text): session.numbers(brokers) for text, brokers in moves}
    if not wanted:
        _ongoing(options, asked)
        return
    _refuse_unknown_brokers(asked, wanted.values())
    names = list(dict.fromkeys(name for name, _ in wanted))
    known = session.topics(asked, names, options.bootstrap)
    has = {
        (name, partition["partition_index"]): partition["replica_nodes"]
        for name, topic in known.items()
        for partition in topic["partitions"]
    }
    rows: list[dict[str, Any]] = [
        {"topic": name, "partition": number, "from": has.get((name, number)), "to": replicas}
        for (name, number), replicas in wanted.items()
    ]
    if not agreed(options, rows, dry_run, "Move these partitions?"):
        if options.output not in ("table", "wide"):
            output.rows(options, ("topic", "partition", "from", "to"), rows)
        return
    topics: dict[str, list[dict[str, object]]] = {}
    for (name, number), replicas in wanted.items():
        one: dict[str, object] = {"partition_index": number, "replicas": replicas}
        topics.setdefault(name, []).append(one)
    body = {"topics": [{"name": name, "partitions": ps} for name, ps in topics.items()]}
    answer = asked.request(
        "AlterPartitionReassignments", {**body, "timeout_ms": options.timeout_ms}
    )
    session.check(answer, "reassignment")
    _report(options, rows, answer)


def _refuse_unknown_brokers(asked: _krust.Client, replicas: Iterable[Sequence[int] | None]) -> None:
    """Refuse a plan that names a broker which is not alive."""
    live = sorted(broker["node_id"] for broker in session.metadata(asked, [])["brokers"])
    unknown = sorted({broker for each in replicas for broker in each or ()} - set(live))
    if unknown:
        hint = f"live brokers: {', '.join(map(str, live))}"
        what = f"there is no live broker {', '.join(map(str, unknown))}"
        raise session.refused(INVALID_REPLICA_ASSIGNMENT, what, hint=hint)


def _report(options: Options, rows: Sequence[dict[str, Any]], answer: dict[str, Any]) -> None:
    results = {
        (topic["name"], each["partition_index"]): each
        for topic in answer["responses"]
        for each in topic["partitions"]
    }
    many, done = session.Many(len(rows)), []
    for row in rows:
        place = (row["topic"], row["partition"])
        with many.item():
            session.check(results.get(place, {"error_code": 0}), f"{place[0]}:{place[1]}")
            done.append(row)
    if done:
        output.rows(options, ("topic", "partition", "from", "to"), done)
    many.leave()


def _ongoing(options: Options, asked: _krust.Client) -> None:
    """What is on its way."""
    body = {"topics": None, "timeout_ms": options.timeout_ms}
    answer = asked.request("ListPartitionReassignments", body)
    session.check(answer, "reassignments")
    rows = [
        {
            "topic": topic["name"],
            "partition": each["partition_index"],
            "replicas": each["replicas"],
            "adding": each["adding_replicas"],
            "removing": each["removing_replicas"],
        }
        for topic in answer["topics"]
        for each in topic["partitions"]
    ]
    output.rows(options, ("topic", "partition", "replicas", "adding", "removing"), rows)


def _places(asked: _krust.Client, options: Options, names: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for text in names:
        name, chosen = session.partitions_of(text)
        topic = session.topics(asked, [name], options.bootstrap)[name]
        every = [partition["partition_index"] for partition in topic["partitions"]]
        found.setdefault(name, []).extend(every if chosen is None else chosen)
    return found


def _place(text: str) -> tuple[str, int]:
    name, chosen = session.partitions_of(text)
    if not name or chosen is None or len(chosen) != 1:
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION")
    return name, chosen[0]
