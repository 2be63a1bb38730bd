"""`krust cluster elect`: elects leaders of partitions.

A preferred election makes the first replica of each partition the leader, and loses no record. The
command does that at once. An unclean election makes a replica the leader that may lack acknowledged
records, and those are lost. The command shows the partitions first and asks for consent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust.cli import completion, output, session
from krust.cli import options as shared
from krust.cli.plans import confirm_plan
from krust.cli.reassign_plan import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from krust import _krust
    from krust.cli.options import Options

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = 84
"""error code ELECTION_NOT_NEEDED"""


@click.command()
@click.argument("names", metavar="[TOPIC[:P,P]]...", nargs=-1, shell_complete=completion.topics)
@click.option("--unclean", is_flag=True, help="Any replica, where none in sync lives: loses data.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="Partitions in the JSON of kafka-leader-election.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@shared.client
@click.pass_obj
def elect(
    options: Options, names: tuple[str, ...], unclean: bool, file: Path | None, dry_run: bool
) -> None:
    """Let preferred replicas lead, of these partitions or of all.

    --unclean elects a replica that is not in sync if no other is alive. It shows the partitions,
    and needs --yes.
    """
    asked = session.client(options)
    places = _places(asked, options, names)
    for name, number in _of_file(file) if file else ():
        places.setdefault(name, []).append(number)
    is_all = not names and file is None
    if dry_run or unclean:
        rows = _candidates(asked, None if is_all else places, unclean=unclean)
        if rows and not confirm_plan(
            options, rows, dry_run, "Elect replicas that may lack records?"
        ):
            if options.output not in ("table", "wide"):
                output.rows(options, ("topic", "partition", "leader", "replicas", "isr"), rows)
            return
        if not rows:
            _report(options, [])
            return
        is_all = False
        places = {}
        for row in rows:
            places.setdefault(row["topic"], []).append(row["partition"])
    wanted = [{"topic": name, "partitions": numbers} for name, numbers in places.items()]
    body = {
        "election_type": UNCLEAN if unclean else PREFERRED,
        "topic_partitions": None if is_all else wanted,
        "timeout_ms": options.timeout_ms,
    }
    answer = asked.request("ElectLeaders", body)
    session.check({"error_code": 0, **answer}, "election")
    _report(options, answer["replica_election_results"])


def _report(options: Options, answered: Iterable[dict[str, Any]]) -> None:
    results = [
        ({"topic": one["topic"], "partition": each["partition_id"]}, each)
        for one in answered
        for each in one["partition_result"]
    ]
    many, rows = session.ItemResults(len(results)), []
    for place, each in results:
        needed = each["error_code"] != NOT_NEEDED
        with many.item():
            if needed:
                session.check(each, f"{place['topic']}:{place['partition']}")
            rows.append({**place, "elected": needed})
    if not results:
        session.note(options, "every partition is led as it should be")
    output.rows(options, ("topic", "partition", "elected"), rows)
    many.raise_failure()


def _candidates(
    asked: _krust.Client, places: dict[str, list[int]] | None, *, unclean: bool
) -> list[dict[str, Any]]:
    """The partitions that an election would change, as metadata has them."""
    topics = session.metadata(asked, None if places is None else list(places))["topics"]
    return [
        {
            "topic": topic["name"],
            "partition": each["partition_index"],
            "leader": each["leader_id"],
            "replicas": each["replica_nodes"],
            "isr": each["isr_nodes"],
        }
        for topic in topics
        if not topic["error_code"]
        for each in topic["partitions"]
        if places is None or each["partition_index"] in places[topic["name"]]
        if (each["leader_id"] < 0 if unclean else each["leader_id"] != each["replica_nodes"][0])
    ]


def _places(asked: _krust.Client, options: Options, names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for text in names:
        name, chosen = session.partitions_of(text)
        topic = session.topics(asked, [name], options.bootstrap)[name]
        every = [partition["partition_index"] for partition in topic["partitions"]]
        found.setdefault(name, []).extend(every if chosen is None else chosen)
    return found


def _of_file(file: Path) -> list[tuple[str, int]]:
    """Read `{"partitions": [{"topic": "orders", "partition": 0}]}`."""
    try:
        partitions = json.loads(file.read_bytes())["partitions"]
        return [(str(each["topic"]), int(each["partition"])) for each in partitions]
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{file}: {why_unreadable(error)}"
        raise click.BadParameter(text, param_hint="--file") from None
