"""`krust group assignors` and `krust group simulate`: what an assignor does, without a broker.

A simulated group is plain data: members m1, m2, ... that all subscribe to all topics; member and
replica racks go round. The members come back with what they had, one generation later, as real
ones do, and each answer is checked as a broker would check it.
"""

from __future__ import annotations

import random
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from krust.cli import options as shared
from krust.cli import output, plugins, session
from krust.cli.exits import Exit
from krust.coordinator.assignors.find import ASSIGNORS
from krust.coordinator.assignors.spec import (
    AssignmentError,
    GroupSpec,
    MemberSpec,
    Topics,
    validate,
)
from krust.coordinator.consumer_protocol import TopicPartition
from krust.errors import KrustError
from krust.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.cli.options import Options
    from krust.coordinator.assignors.spec import Assignor, GroupAssignment

MOST_MEMBERS, MOST_PARTITIONS = 10_000, 200_000
MOST_MS = 5000
"""A broker waits no longer than that, for the largest of groups."""
COLUMNS = ("step", "members", "partitions", "least", "most", "moved", "orphaned", "unassigned")


@click.command("assignors")
@shared.client
@click.pass_obj
def list_(options: Options) -> None:
    """List the ways to share partitions: built-in ones, and those of installed packages."""
    plugins.show(options, ASSIGNORS)


@click.command()
@click.option("--assignor", "name", required=True, metavar="NAME|MODULE:CLASS", help="Which one.")
@click.option("--members", type=click.IntRange(1, MOST_MEMBERS), default=3, show_default=True)
@click.option(
    "--topics",
    "topics",
    default="a:12",
    show_default=True,
    metavar="T:P,..",
    help="With partitions.",
)
@click.option(
    "--steps", default="-1,+1,+2,-2", show_default=True, metavar="-N|+N|T:P,..",
    help="Oldest leave, new ones join, a topic grows.",
)  # fmt: skip
@click.option("--racks", default="", metavar="R,..", help="Racks of members, and of replicas.")
@click.option("--weights", default="", metavar="N,..", help="Members' weights, in turn.")
@click.option(
    "--deadline", "deadline_ms", type=shared.Duration(), default=MOST_MS, metavar="TIME",
    help="Longest time for an answer. [5s, the broker's for large groups]",
)  # fmt: skip
@click.option("--lag", "seed", type=int, help="Give partitions random lag, from this seed.")
@shared.client
@click.pass_obj
def simulate(options: Options, /, name: str, members: int, steps: str, **how: Any) -> None:
    """Show how an assignor shares partitions, and what moves as members come and go.

    \b
    moved       partitions taken from a member that is still there
    orphaned    partitions of members that left: they had to move

    Exit 9: the assignor breaks a rule, is late, or leaves partitions to nobody.
    """  # noqa: D301, click wants the character
    assignor = plugins.chosen(ASSIGNORS, name)
    group = _Group(_topics(how["topics"]), _words(how["racks"]), _weights(how["weights"]))
    if how["seed"] is not None:
        group.lags = random.Random(how["seed"])  # noqa: S311, a simulation is repeatable
    group.deadline_ms = how["deadline_ms"]
    group.join(members)
    rows = [_row("start", group, assignor)]
    for step in _words(steps):
        _do(step, group)
        rows.append(_row(step, group, assignor))
    columns = [*COLUMNS, *(["local"] if group.racks else [])]
    columns += ["most_lag", "least_lag"] if group.lags else []
    output.rows(options, [*columns, "took_ms"], rows)
    if options.output in ("table", "wide") and options.verbose:
        output.table(("member", "partitions"), _shares(group.shares))
    left = [row for row in rows if row["unassigned"]]
    if left:
        partitions = counted(int(str(left[0]["unassigned"])), "partition")
        session.note(options, f"{name} leaves {partitions} to nobody at step {left[0]['step']}")
        session.sys_exit(Exit.PROBLEMS)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _topics(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in _words(text):
        name, colon, count = word.rpartition(":")
        if not colon or not name or not count.isdecimal():
            raise click.BadParameter(f"{word!r} is not TOPIC:PARTITIONS")
        found[name] = int(count)
    if not 0 < sum(found.values()) <= MOST_PARTITIONS:
        raise click.BadParameter(f"--topics {text!r}: 1 to {MOST_PARTITIONS:,} partitions in all")
    return found


def _weights(text: str) -> list[int]:
    words = _words(text)
    if not all(word.isdecimal() for word in words):
        raise click.BadParameter(f"--weights {text!r}: numbers, such as 1,1,3")
    return [int(word) for word in words]


@dataclass
class _Group:
    """A group that lives in a command."""

    counts: dict[str, int]
    racks: Sequence[str]
    weights: Sequence[int]
    lags: random.Random | None = None
    members: dict[str, MemberSpec] = field(default_factory=dict)
    shares: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    joined: int = 0
    generation: int = 0
    deadline_ms: int = MOST_MS

    def join(self, count: int) -> None:
        """Let new members in."""
        for number in range(self.joined, self.joined + count):
            weight = self.weights[number % len(self.weights)] if self.weights else None
            self.members[f"m{number + 1}"] = MemberSpec(
                frozenset(self.counts),
                rack=self.racks[number % len(self.racks)] if self.racks else None,
                user_data=None if weight is None else b"weight=%d" % weight,
            )
        self.joined += count

    def leave(self, count: int) -> None:
        """Let the oldest members go."""
        for member_id in list(self.members)[:count]:
            del self.members[member_id]

    def grow(self, topic: str, count: int) -> None:
        """Give a topic more partitions, or add one."""
        self.counts[topic] = count
        names = frozenset(self.counts)
        self.members = {one: replace(spec, topics=names) for one, spec in self.members.items()}

    def topics(self) -> Topics:
        """What is known of the topics now; lags are new each time."""
        places = [(topic, n) for topic, count in self.counts.items() for n in range(count)]
        near = self.racks and {
            place: frozenset({self.racks[n % len(self.racks)]}) for n, place in enumerate(places)
        }
        lags = self.lags and {place: self.lags.randrange(10_000) for place in places}
        return Topics(self.counts, near or {}, lags or {})

    def assign(self, assignor: Assignor, topics: Topics) -> GroupAssignment:
        """One rebalance; the answer is checked."""
        spec = GroupSpec(self.members, "simulated")
        answer: list[GroupAssignment] = []
        ended: list[BaseException] = []

        def work() -> None:
            try:
                answer.append(assignor.assign(spec, topics))
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=work, name="krust-assignor", daemon=True)
        thread.start()
        thread.join(self.deadline_ms / 1000)
        if thread.is_alive():
            late = KrustError(
                f"{assignor.name} gave no answer within {self.deadline_ms} ms",
                hint="a broker would assign by uniform instead; --deadline sets another limit",
            )
            late.exit = int(Exit.PROBLEMS)
            raise late
        with plugins.blamed(assignor.name, AssignmentError):
            if ended:
                raise ended[0]
            validate(spec, topics, answer[0])
        return answer[0]

    def keep(self, answer: GroupAssignment) -> None:
        """The members take what they were given, and will say so at the next rebalance."""
        self.generation += 1
        for member_id, spec in self.members.items():
            mine = tuple(TopicPartition(*one) for one in answer.get(member_id, ()))
            self.members[member_id] = replace(spec, owned=mine, generation=self.generation)
        self.shares = {member_id: spec.owned for member_id, spec in self.members.items()}


def _do(step: str, group: _Group) -> None:
    found = re.fullmatch(r"([+-])(\d+)", step)
    if found is None:
        [(topic, count)] = _topics(step).items()
        group.grow(topic, count)
        return
    count = int(found[2])
    left = len(group.members) + (count if found[1] == "+" else -count)
    if not 1 <= left <= MOST_MEMBERS:
        raise click.BadParameter(f"--steps {step!r} leaves {left} members; 1 to {MOST_MEMBERS:,}")
    if found[1] == "+":
        group.join(count)
    else:
        group.leave(count)


def _row(step: str, group: _Group, assignor: Assignor) -> dict[str, object]:
    before = {one: member for member, ours in group.shares.items() for one in ours}
    topics = group.topics()
    begun = time.perf_counter()
    answer = group.assign(assignor, topics)
    took_ms = (time.perf_counter() - begun) * 1000
    group.keep(answer)
    after = {one: member for member, ours in group.shares.items() for one in ours}
    sizes = [len(ours) for ours in group.shares.values()]
    left = {one for one, member in before.items() if member not in group.members}
    row: dict[str, object] = {
        "step": step,
        "members": len(group.members),
        "partitions": sum(group.counts.values()),
        "least": min(sizes),
        "most": max(sizes),
        "moved": sum(after.get(one) != was for one, was in before.items() if one not in left),
        "orphaned": len(left),
        "unassigned": sum(group.counts.values()) - len(after),
        "took_ms": round(took_ms, 1),
    }
    if group.racks:
        row["local"] = sum(group.members[m].rack in topics.racks(*one) for one, m in after.items())
    if group.lags:
        lags = [sum(topics.lags[one] for one in ours) for ours in group.shares.values()]
        row |= {"most_lag": max(lags), "least_lag": min(lags)}
    return row | {"assignment": _plain(group.shares)}


def _plain(shares: Mapping[str, Sequence[TopicPartition]]) -> dict[str, dict[str, list[int]]]:
    plain: dict[str, dict[str, list[int]]] = {}
    for member, ours in shares.items():
        topics = plain.setdefault(member, {})
        for topic, partition in ours:
            topics.setdefault(topic, []).append(partition)
    return plain


def _shares(shares: Mapping[str, Sequence[TopicPartition]]) -> list[dict[str, object]]:
    return [
        {"member": member, "partitions": " ".join(f"{t}:{output.cell(p)}" for t, p in ours.items())}
        for member, ours in _plain(shares).items()
    ]
