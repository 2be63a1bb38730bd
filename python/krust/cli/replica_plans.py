"""Plans which brokers get the replicas of partitions, for `krust cluster reassign`.

A plan moves as few replicas as it can:
    1  a replica stays on its broker, if that broker may have it and the factor allows it
    2  a missing replica goes to the broker with the fewest replicas, on another rack if possible
    3  replicas move from brokers with many to `receivers` with few, until those differ by one
    4  the order of replicas changes, which moves no data, so that each broker is the preferred
       leader of about the same number of partitions
Racks count if every broker has one. Pure: nothing here asks a broker.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Replicas = tuple[int, ...]


class PartitionAssignment(NamedTuple):
    """The brokers of a partition now."""

    topic: str
    partition: int
    replicas: Replicas
    isr: Replicas


class PlanTargets(NamedTuple):
    """The brokers that may have replicas, and the replication factor."""

    brokers: Mapping[int, str | None]
    """those that may keep replicas, with their racks"""
    live: frozenset[int]
    """those of them that may get replicas"""
    receivers: frozenset[int]
    """those that take replicas from fuller brokers; none: nothing moves that need not"""
    factor: int | None
    """replicas of each partition; None: as many as it has"""


class TooFewBrokersError(ValueError):
    """A partition needs more brokers than there are."""

    def __init__(self, needed: int, brokers: Iterable[int]) -> None:
        names = ", ".join(map(str, sorted(brokers))) or "none"
        super().__init__(f"a partition with {needed} replicas needs {needed} brokers of: {names}")


def plan_replicas(
    partitions: Sequence[PartitionAssignment], targets: PlanTargets
) -> list[Replicas]:
    """The replicas that each partition should have, in the order given.

    raises  TooFewBrokersError
    """
    return _Plan(partitions, targets).made()


class _Plan:
    """The replicas of all partitions while they are decided."""

    def __init__(self, partitions: Sequence[PartitionAssignment], targets: PlanTargets) -> None:
        self._partitions = partitions
        self._targets = targets
        racks = targets.brokers.values()
        self._racks = {} if None in racks else targets.brokers
        self._replicas: list[list[int]] = []
        self._load: Counter[int] = Counter(dict.fromkeys(targets.brokers, 0))
        self._in_topic: Counter[tuple[str, int]] = Counter()

    def made(self) -> list[Replicas]:
        for each in self._partitions:
            self._keep(each)
        for index, each in enumerate(self._partitions):
            self._fit(index, each)
        if self._targets.receivers:
            self._level()
        self._order()
        return [tuple(each) for each in self._replicas]

    def _add(self, index: int, broker: int) -> None:
        self._replicas[index].append(broker)
        self._load[broker] += 1
        self._in_topic[self._partitions[index].topic, broker] += 1

    def _take(self, index: int, broker: int) -> int:
        """Take a replica away; returns its place in the order."""
        place = self._replicas[index].index(broker)
        self._replicas[index].remove(broker)
        self._load[broker] -= 1
        self._in_topic[self._partitions[index].topic, broker] -= 1
        return place

    def _keep(self, each: PartitionAssignment) -> None:
        self._replicas.append([])
        for broker in each.replicas:
            if broker in self._targets.brokers:
                self._add(len(self._replicas) - 1, broker)

    def _fit(self, index: int, each: PartitionAssignment) -> None:
        """Bring a partition to its replication factor."""
        factor = len(each.replicas) if self._targets.factor is None else self._targets.factor
        replicas = self._replicas[index]
        while len(replicas) > factor:
            self._take(index, self._least_needed(each, replicas))
        while len(replicas) < factor:
            if not self._targets.live - set(replicas):
                raise TooFewBrokersError(factor, self._targets.live | set(replicas))
            self._add(index, self._emptiest(each.topic, replicas))

    def _least_needed(self, each: PartitionAssignment, replicas: Sequence[int]) -> int:
        """The replica to give up: out of sync, then on a rack with another, then on a full broker.

        The preferred leader stays if it is in sync.
        """
        racks = Counter(map(self._rack, replicas))

        def value(broker: int) -> tuple[bool, bool, bool, int, int]:
            is_alone = not self._racks or racks[self._rack(broker)] == 1
            is_first = broker == replicas[0]
            return (broker in each.isr, is_first, is_alone, -self._load[broker], -broker)

        return min(replicas, key=value)

    def _emptiest(self, topic: str, replicas: Sequence[int]) -> int:
        used = {self._rack(broker) for broker in replicas}

        def cost(broker: int) -> tuple[bool, int, int, int]:
            shares_rack = bool(self._racks) and self._rack(broker) in used
            return (shares_rack, self._in_topic[topic, broker], self._load[broker], broker)

        return min(self._targets.live - set(replicas), key=cost)

    def _rack(self, broker: int) -> str | None:
        return self._racks.get(broker)

    def _level(self) -> None:
        """Move replicas from the fullest brokers to receivers, while that evens them out."""
        having: dict[int, dict[str, list[int]]] = {broker: {} for broker in self._targets.brokers}
        for index, each in enumerate(self._partitions):
            for broker in self._replicas[index]:
                having[broker].setdefault(each.topic, []).append(index)
        while True:
            found = self._next_move(having)
            if found is None:
                return
            index, giver, receiver = found
            place = self._take(index, giver)
            self._add(index, receiver)
            self._replicas[index].insert(place, self._replicas[index].pop())
            topic = self._partitions[index].topic
            having[giver][topic].remove(index)
            having[receiver].setdefault(topic, []).append(index)

    def _next_move(
        self, having: Mapping[int, Mapping[str, list[int]]]
    ) -> tuple[int, int, int] | None:
        """The next replica to move: (index, from, to); None: there is none."""
        receivers = sorted(self._targets.receivers, key=lambda b: (self._load[b], b))
        givers = sorted(self._targets.brokers, key=lambda b: (-self._load[b], b))
        for receiver in receivers:
            for giver in givers:
                if self._load[giver] - self._load[receiver] < 2:
                    break
                topics = sorted(
                    (topic for topic, indexes in having[giver].items() if indexes),
                    key=lambda t: self._in_topic[t, receiver] - self._in_topic[t, giver],
                )
                for topic in topics:
                    for index in having[giver][topic]:
                        if self._may_move(index, giver, receiver):
                            return index, giver, receiver
        return None

    def _may_move(self, index: int, giver: int, receiver: int) -> bool:
        """Whether a replica may move: each broker once, and no rack lost."""
        replicas = self._replicas[index]
        if receiver in replicas:
            return False
        if not self._racks:
            return True
        others = [self._rack(broker) for broker in replicas if broker != giver]
        return self._rack(receiver) not in others or self._rack(giver) in others

    def _order(self) -> None:
        """Spread the preferred leaders of what changes, or of all where replicas are levelled."""
        leads = Counter(dict.fromkeys(self._targets.brokers, 0))
        for replicas in self._replicas:
            leads[replicas[0]] += 1
        chosen = [
            index
            for index, each in enumerate(self._partitions)
            if self._targets.receivers or tuple(self._replicas[index]) != each.replicas
        ]
        for _ in range(len(self._targets.brokers)):
            changed = False
            for index in chosen:
                replicas = self._replicas[index]
                first = replicas[0]
                better = min(replicas, key=lambda broker: (leads[broker], broker))
                if leads[first] - leads[better] >= 2:
                    replicas.remove(better)
                    replicas.insert(0, better)
                    leads[first] -= 1
                    leads[better] += 1
                    changed = True
            if not changed:
                return
