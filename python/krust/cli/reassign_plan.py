"""Plans the changes of `krust cluster reassign` from its arguments and the cluster's metadata."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from krust.cli import session
from krust.cli.log_sizes import replica_sizes
from krust.cli.output import to_json
from krust.cli.replica_plans import (
    PartitionAssignment,
    PlanTargets,
    TooFewBrokersError,
    plan_replicas,
)
from krust.cli.throttles import FOLLOWERS, LEADERS
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from krust import _krust
    from krust.cli.options import Options
    from krust.cli.replica_health import PartitionKey
    from krust.cli.replica_plans import Replicas

INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT = 38, 39
_TOPIC = 2
_BETWEEN_S = 0.05


class WantedReplicas(NamedTuple):
    """The arguments that say which brokers partitions should have."""

    moves: Sequence[tuple[str, str]]
    """(TOPIC:P, BROKER,..)"""
    file: Path | None
    to: str | None
    add: str | None
    remove: str | None
    replication_factor: int | None
    topics: Sequence[str]

    @property
    def is_planned(self) -> bool:
        """Whether krust chooses the brokers."""
        return any(
            each is not None for each in (self.to, self.add, self.remove, self.replication_factor)
        )

    @property
    def is_given(self) -> bool:
        """Whether anything should change."""
        return bool(self.moves) or self.file is not None or self.is_planned


class ReplicaChange(NamedTuple):
    """The replicas of a partition before and after a reassignment."""

    topic: str
    partition: int
    before: Replicas
    after: Replicas
    bytes: int
    """of its leader's replica: so many are copied to each broker that is added"""

    @property
    def added(self) -> list[int]:
        """The brokers that get a replica."""
        return [broker for broker in self.after if broker not in self.before]

    def row(self) -> dict[str, Any]:
        """The fields that are printed; `bytes` counts all copies."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": list(self.before),
            "to": list(self.after),
            "bytes": self.bytes * len(self.added),
        }


def planned_changes(
    options: Options, asked: _krust.Client, wanted: WantedReplicas
) -> list[ReplicaChange]:
    """The changes that the arguments ask for, in order.

    raises  KafkaError: there is no such topic or broker, or there are too few brokers
            UsageError: the arguments contradict each other
    """
    if bool(wanted.moves) + (wanted.file is not None) + wanted.is_planned > 1:
        raise click.UsageError("name replicas, give --file, or have them planned: one of these")
    if wanted.topics and not wanted.is_planned:
        raise click.UsageError("--topic goes with --to, --add, --remove or -r")
    if wanted.to is not None and (wanted.add is not None or wanted.remove is not None):
        raise click.UsageError("--to names all brokers; leave out --add and --remove")
    if wanted.is_planned:
        before, after = _planned(options, asked, wanted)
        after = {place: replicas for place, replicas in after.items() if before[place] != replicas}
    else:
        after = _read_file(wanted.file) if wanted.file else dict(map(_named, wanted.moves))
        _refuse_unknown_brokers(asked, after.values())
        names = list(dict.fromkeys(name for name, _ in after))
        known = session.topics(asked, names, options.bootstrap)
        before = {
            (each.topic, each.partition): each.replicas for each in _assignments(known.values())
        }
    sizes = leader_sizes(asked, [p for p, r in after.items() if set(r) - set(before.get(p, ()))])
    return [
        ReplicaChange(*place, before.get(place, ()), replicas, sizes.get(place, 0))
        for place, replicas in after.items()
    ]


def _planned(
    options: Options, asked: _krust.Client, wanted: WantedReplicas
) -> tuple[dict[PartitionKey, Replicas], dict[PartitionKey, Replicas]]:
    """The partitions that the arguments name, with their replicas now and as planned."""
    found = session.metadata(asked)
    racks = {int(broker["node_id"]): broker.get("rack") for broker in found["brokers"]}
    if wanted.topics:
        topics: Iterable[dict[str, Any]] = session.topics(
            asked, wanted.topics, options.bootstrap
        ).values()
    else:
        topics = [topic for topic in found["topics"] if not topic["error_code"]]
    partitions = _assignments(topics)
    to, added, removed = (
        set(session.numbers(text)) if text is not None else set()
        for text in (wanted.to, wanted.add, wanted.remove)
    )
    _refuse_unknown_brokers(asked, [tuple(to | added)])
    if removed & added:
        raise click.UsageError("a broker is either added or removed")
    has = {broker for each in partitions for broker in each.replicas}
    allowed = to or (has | added if wanted.add is not None else has | racks.keys()) - removed
    targets = PlanTargets(
        {broker: racks.get(broker) for broker in allowed},
        frozenset(allowed & racks.keys()),
        frozenset(to or added),
        wanted.replication_factor,
    )
    try:
        plan = plan_replicas(partitions, targets)
    except TooFewBrokersError as error:
        raise session.refused(INVALID_REPLICATION_FACTOR, str(error)) from None
    places = [(each.topic, each.partition) for each in partitions]
    before = [each.replicas for each in partitions]
    return dict(zip(places, before, strict=True)), dict(zip(places, plan, strict=True))


def _assignments(topics: Iterable[Mapping[str, Any]]) -> list[PartitionAssignment]:
    return [
        PartitionAssignment(
            topic["name"],
            each["partition_index"],
            tuple(each["replica_nodes"]),
            tuple(each["isr_nodes"]),
        )
        for topic in sorted(topics, key=lambda topic: str(topic["name"]))
        for each in topic["partitions"]
    ]


def leader_sizes(asked: _krust.Client, places: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """The bytes of partitions on their leaders."""
    if not places:
        return {}
    names = list(dict.fromkeys(name for name, _ in places))
    leaders = {
        (topic["name"], each["partition_index"]): each["leader_id"]
        for topic in session.metadata(asked, names)["topics"]
        for each in topic["partitions"]
    }
    brokers = {leaders.get(place, -1) for place in places} - {-1}
    sizes = replica_sizes(asked, sorted(brokers), places)
    return {place: sizes.get((*place, leaders.get(place, -1)), 0) for place in places}


def replicas_now(
    asked: _krust.Client, wanted: Sequence[ReplicaChange], patience_ms: int
) -> dict[PartitionKey, Replicas]:
    """The replicas that partitions have. Waits a moment for the wanted ones: metadata is late."""
    names = list(dict.fromkeys(each.topic for each in wanted))
    deadline = time.monotonic() + patience_ms / 1000
    while True:
        found = {
            (each.topic, each.partition): each.replicas
            for each in _assignments(session.metadata(asked, names)["topics"])
        }
        if all(found.get((each.topic, each.partition)) == each.after for each in wanted):
            return found
        if time.monotonic() >= deadline:
            return found
        time.sleep(_BETWEEN_S)


def throttled_topics(asked: _krust.Client, names: Sequence[str]) -> list[str]:
    """The topics that name throttled replicas."""
    keys = [LEADERS, FOLLOWERS]
    resources = [
        {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": keys}
        for name in names
    ]
    results = asked.request("DescribeConfigs", {"resources": resources})["results"] if names else []
    return [
        result["resource_name"]
        for result in results
        if any(each["value"] for each in result["configs"] or ())
    ]


def save(path: Path, wanted: Sequence[ReplicaChange]) -> None:
    """Write a plan as kafka-reassign-partitions reads it, and a second file that undoes it."""
    for file, replicas in (
        (path, [each.after for each in wanted]),
        (path.with_name(path.name + ".back"), [each.before for each in wanted]),
    ):
        partitions = [
            {"topic": each.topic, "partition": each.partition, "replicas": list(brokers)}
            for each, brokers in zip(wanted, replicas, strict=True)
        ]
        file.write_text(to_json({"version": 1, "partitions": partitions}) + "\n")


def _read_file(file: Path) -> dict[PartitionKey, Replicas]:
    """Read the JSON of kafka-reassign-partitions."""
    found: dict[PartitionKey, Replicas] = {}
    try:
        content = json.loads(file.read_bytes())
        if content.get("version", 1) != 1:
            raise ValueError(f"version {content['version']} is not known")
        for each in content["partitions"]:
            place = (str(each["topic"]), int(each["partition"]))
            if place in found:
                raise ValueError(f"{place[0]}:{place[1]} is there twice")
            if set(each.get("log_dirs") or ()) - {"any"}:
                raise ValueError("log_dirs names directories; krust moves between brokers only")
            found[place] = tuple(int(broker) for broker in each["replicas"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise click.BadParameter(f"{file}: {why_unreadable(error)}", param_hint="--file") from None
    return found


def why_unreadable(error: Exception) -> str:
    """Why a file is not valid JSON of Kafka's tool."""
    if isinstance(error, OSError):
        return str(error.strerror)
    if type(error) is ValueError:
        return str(error)
    return f"no JSON of Kafka's ({type(error).__name__}: {error})"


def _named(argument: tuple[str, str]) -> tuple[PartitionKey, Replicas]:
    """Read TOPIC:P=BROKER,.."""
    text, brokers = argument
    name, chosen = session.partitions_of(text)
    if not name or chosen is None or len(chosen) != 1:
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION")
    return (name, chosen[0]), tuple(session.numbers(brokers))


def _refuse_unknown_brokers(asked: _krust.Client, replicas: Iterable[Replicas]) -> None:
    """Refuse a plan that names a broker which is not alive."""
    live = sorted(broker["node_id"] for broker in session.metadata(asked, [])["brokers"])
    unknown = sorted({broker for each in replicas for broker in each} - set(live))
    if unknown:
        hint = f"live brokers: {', '.join(map(str, live))}"
        what = f"there is no live broker {', '.join(map(str, unknown))}"
        raise session.refused(INVALID_REPLICA_ASSIGNMENT, what, hint=hint)
