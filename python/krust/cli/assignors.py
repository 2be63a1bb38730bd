"""`krust group assignors` and `krust group simulate`: try assignors without a broker."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from krust.cli import options as shared
from krust.cli import output, plugins, session
from krust.cli.exits import Exit
from krust.coordinator.assignors import simulation
from krust.coordinator.assignors.assignor import AssignmentError
from krust.coordinator.assignors.find import ASSIGNORS
from krust.coordinator.assignors.simulation import MOST_MEMBERS, MOST_PARTITIONS
from krust.errors import KrustError
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from krust.cli.options import Options
    from krust.coordinator.assignors.simulation import SimulatedRebalance

COLUMNS = ("step", "members", "partitions", "least", "most", "moved", "orphaned", "unassigned")


@click.command("assignors")
@shared.client
@click.pass_obj
def list_(options: Options) -> None:
    """List assignors: built-in ones, and those of installed packages."""
    plugins.list_plugins(options, ASSIGNORS)


@click.command()
@click.option(
    "--assignor", "name", required=True, metavar="NAME|MODULE:CLASS", help="The assignor."
)
@click.option("--members", type=click.IntRange(1, MOST_MEMBERS), default=3, show_default=True)
@click.option(
    "--topics",
    "topics",
    default="a:12",
    show_default=True,
    metavar="T:P,..",
    help="Topics and their partitions.",
)
@click.option(
    "--steps", default="-1,+1,+2,-2", show_default=True, metavar="-N|+N|T:P,..",
    help="Steps: the oldest member leaves, members join, a topic grows.",
)  # fmt: skip
@click.option("--racks", default="", metavar="R,..", help="Racks of members, and of replicas.")
@click.option("--weights", default="", metavar="N,..", help="Members' weights, in turn.")
@click.option(
    "--deadline", "deadline_ms", type=shared.Duration(), metavar="TIME",
    default=simulation.DEADLINE_MS,
    help="Longest time for a call. [5s, as for large groups on a broker]",
)  # fmt: skip
@click.option("--lag", "seed", type=int, help="Give partitions random lag, from this seed.")
@shared.client
@click.pass_obj
def simulate(options: Options, /, name: str, members: int, steps: str, **how: Any) -> None:
    """Show how an assignor assigns partitions, and what moves when members join and leave.

    \b
    moved       partitions taken from a member that is still in the group
    orphaned    partitions of members that left: they had to move

    Exit 9: the assignor breaks a rule, is late, or leaves partitions unassigned.
    """  # noqa: D301, click wants the character
    assignor = plugins.find_plugin(ASSIGNORS, name)
    made: list[SimulatedRebalance] = []
    with plugins.call_plugin(assignor.name, AssignmentError), _late():
        try:
            made = simulation.simulate(
                assignor,
                members=members,
                topics=_topics(how["topics"]),
                steps=_split_words(steps),
                racks=_split_words(how["racks"]),
                weights=_weights(how["weights"]),
                lag_seed=how["seed"],
                deadline_ms=how["deadline_ms"],
            )
        except simulation.ArgumentError as error:
            raise click.BadParameter(str(error)) from None
    columns = [*COLUMNS, *(["local"] if made[0].local is not None else [])]
    columns += ["most_lag", "least_lag"] if made[0].most_lag is not None else []
    rows = [{key: value for key, value in asdict(one).items() if value is not None} for one in made]
    output.rows(options, [*columns, "took_ms"], rows)
    if options.output in ("table", "wide") and options.verbose:
        output.table(("member", "partitions"), _shares(made[-1].assignment))
    left = [one for one in made if one.unassigned]
    if left:
        partitions = counted(left[0].unassigned, "partition")
        session.note(options, f"{name} leaves {partitions} unassigned at step {left[0].step}")
        session.sys_exit(Exit.PROBLEMS)


@contextmanager
def _late() -> Iterator[None]:
    """Report a late assignor as one that breaks a rule."""
    try:
        yield
    except simulation.LateError as error:
        hint = "a broker would assign by uniform instead; --deadline sets another limit"
        late = KrustError(str(error), hint=hint)
        late.exit = int(Exit.PROBLEMS)
        raise late from None


def _split_words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _topics(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in _split_words(text):
        name, colon, count = word.rpartition(":")
        if not colon or not name or not count.isdecimal():
            raise click.BadParameter(f"{word!r} is not TOPIC:PARTITIONS")
        found[name] = int(count)
    if not 0 < sum(found.values()) <= MOST_PARTITIONS:
        raise click.BadParameter(f"--topics {text!r}: 1 to {MOST_PARTITIONS:,} partitions in all")
    return found


def _weights(text: str) -> list[int]:
    words = _split_words(text)
    if not all(word.isdecimal() for word in words):
        raise click.BadParameter(f"--weights {text!r}: numbers, such as 1,1,3")
    return [int(word) for word in words]


def _shares(assignment: Mapping[str, Mapping[str, Sequence[int]]]) -> list[dict[str, object]]:
    return [
        {"member": member, "partitions": " ".join(f"{t}:{output.cell(p)}" for t, p in ours.items())}
        for member, ours in assignment.items()
    ]
