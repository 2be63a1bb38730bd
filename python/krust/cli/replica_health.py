"""The health of partitions' replicas, as `kafka-topics` counts it: for `krust topic describe` and
`krust cluster health`.

    under-replicated  fewer replicas are in sync than the partition has; replicas that a
                      reassignment adds do not count
    at min ISR        exactly as many are in sync as acks=all needs: after one more loss it is
                      refused
    under min ISR     fewer are in sync: acks=all is refused now
    unavailable       the partition has no leader

acks=all needs min.insync.replicas, or all replicas if there are fewer. `kafka-topics` compares with
the setting alone; brokers count as this module does.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from krust.cli import session
from krust.errors import KrustError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust import _krust

PartitionKey = tuple[str, int]
"""A topic and a partition."""

TOPIC = 2
"""Kafka's number of a topic among what has settings."""
MIN_ISR = "min.insync.replicas"
_TOPICS_AT_ONCE = 500


class OngoingMove(NamedTuple):
    """A reassignment that is under way."""

    replicas: tuple[int, ...]
    """all, those it adds and those it removes among them"""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionHealth(NamedTuple):
    """A partition's replicas, and which of them are in sync."""

    topic: str
    partition: int
    leader: int
    """-1: nobody"""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    min_isr: int | None
    """how many acks=all needs; None: the broker does not say"""

    @property
    def is_under_replicated(self) -> bool:
        """Whether it has fewer replicas in sync than it should."""
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_at_min_isr(self) -> bool:
        """Whether the next loss ends acks=all."""
        return len(self.isr) == self.min_isr

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused."""
        return self.min_isr is not None and len(self.isr) < self.min_isr

    @property
    def is_unavailable(self) -> bool:
        """Whether it has no leader."""
        return self.leader < 0

    @property
    def lacking(self) -> tuple[int, ...]:
        """The replicas that are not in sync, without those that a reassignment adds."""
        expected = set(self.replicas) - set(self.adding)
        return tuple(sorted(expected - set(self.isr)))

    def row(self) -> dict[str, Any]:
        """The fields that commands print."""
        return {
            "partition": self.partition,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "offline": list(self.offline),
            "adding": list(self.adding),
            "removing": list(self.removing),
            "min_isr": self.min_isr,
            "under_replicated": self.is_under_replicated,
            "at_min_isr": self.is_at_min_isr,
            "under_min_isr": self.is_under_min_isr,
            "unavailable": self.is_unavailable,
        }

    def problem(self) -> str:
        """The worst problem; "": there is none."""
        if self.is_unavailable:
            return "no leader"
        if self.is_under_min_isr:
            return "under min ISR"
        if self.is_under_replicated:
            return "at min ISR" if self.is_at_min_isr else "under-replicated"
        return "moving" if self.adding or self.removing else ""


def partitions(
    topics: Iterable[Mapping[str, Any]],
    moves: Mapping[PartitionKey, OngoingMove],
    min_isr: Mapping[str, int],
) -> list[PartitionHealth]:
    """The partitions of topics, as a Metadata answer has them, in order."""
    found = []
    for topic in sorted(topics, key=lambda topic: str(topic["name"])):
        name = topic["name"]
        needed = min_isr.get(name)
        for each in topic["partitions"]:
            move = moves.get((name, each["partition_index"]), OngoingMove((), (), ()))
            replicas = tuple(each["replica_nodes"])
            found.append(
                PartitionHealth(
                    name,
                    each["partition_index"],
                    each["leader_id"],
                    each.get("leader_epoch", -1),
                    replicas,
                    tuple(each["isr_nodes"]),
                    tuple(each.get("offline_replicas", ())),
                    move.adding,
                    move.removing,
                    None if needed is None else min(needed, len(replicas)),
                )
            )
    return found


def ongoing_moves(asked: _krust.Client) -> dict[PartitionKey, OngoingMove]:
    """The reassignments that are under way.

    raises  KafkaError: the broker is too old to say (before 2.4), or nobody is the controller
    """
    answer = asked.request("ListPartitionReassignments", {"topics": None})
    session.check(answer, "reassignments")
    return {
        (topic["name"], each["partition_index"]): OngoingMove(
            tuple(each["replicas"]),
            tuple(each["adding_replicas"]),
            tuple(each["removing_replicas"]),
        )
        for topic in answer["topics"]
        for each in topic["partitions"]
    }


def min_isr(asked: _krust.Client, names: Sequence[str]) -> dict[str, int]:
    """How many in-sync replicas acks=all needs, by topic, without topics that may not be read."""
    found = {}
    for first in range(0, len(names), _TOPICS_AT_ONCE):
        resources = [
            {"resource_type": TOPIC, "resource_name": name, "configuration_keys": [MIN_ISR]}
            for name in names[first : first + _TOPICS_AT_ONCE]
        ]
        for result in asked.request("DescribeConfigs", {"resources": resources})["results"]:
            for each in result["configs"] or ():
                if each["name"] == MIN_ISR and str(each["value"]).isdecimal():
                    found[result["resource_name"]] = int(each["value"])
    return found


def partition_health(
    asked: _krust.Client, topics: Sequence[Mapping[str, Any]]
) -> list[PartitionHealth]:
    """The health of the partitions in a Metadata answer. Asks for reassignments and min ISR too.

    If a broker is too old for one of these questions, or does not answer it, that field is unknown.
    """
    moves: dict[PartitionKey, OngoingMove] = {}
    needed: dict[str, int] = {}
    with suppress(KrustError):
        moves = ongoing_moves(asked)
    with suppress(KrustError):
        needed = min_isr(asked, [str(topic["name"]) for topic in topics])
    return partitions(topics, moves, needed)
