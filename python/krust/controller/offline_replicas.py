"""Replicas on failed disks, as brokers report them.

Kept by broker and by partition, so that an election finds those of its partition without a search.
Invariant: both tables hold the same pairs.
Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Set

TopicPartition = tuple[str, int]

_NO_BROKERS: frozenset[int] = frozenset()


class OfflineReplicas:
    """The replicas that are lost with a log directory."""

    def __init__(self) -> None:
        self._partitions: dict[int, set[TopicPartition]] = {}
        self._brokers: dict[TopicPartition, set[int]] = {}

    def __bool__(self) -> bool:
        """Whether any replica is lost."""
        return bool(self._brokers)

    def add(self, broker: int, partition: TopicPartition) -> None:
        """A broker reports that its replica of a partition is lost."""
        self._partitions.setdefault(broker, set()).add(partition)
        self._brokers.setdefault(partition, set()).add(broker)

    def replace(self, broker: int, partitions: Iterable[TopicPartition]) -> None:
        """A broker reports all replicas that it has lost."""
        self._forget(broker)
        for each in partitions:
            self.add(broker, each)

    def retain(self, brokers: Collection[int]) -> None:
        """Forget the replicas of all brokers but these."""
        for broker in self._partitions.keys() - set(brokers):
            self._forget(broker)

    def brokers_of(self, partition: TopicPartition) -> Set[int]:
        """The brokers that have lost their replica of a partition."""
        return self._brokers.get(partition, _NO_BROKERS)

    def _forget(self, broker: int) -> None:
        for partition in self._partitions.pop(broker, ()):
            brokers = self._brokers[partition]
            brokers.remove(broker)
            if not brokers:
                del self._brokers[partition]
