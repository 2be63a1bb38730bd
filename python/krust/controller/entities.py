"""What a cluster consists of, as the controller has read it: topics, partitions, live brokers.

Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.metadata.contents import TopicAssignment
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from krust.metadata.contents import Endpoint


class Partition(NamedTuple):
    """The leader and replicas of a partition."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int = 0
    """of its state znode"""
    adding: tuple[int, ...] = ()
    """replicas that a reassignment under way adds (KIP-455)"""
    removing: tuple[int, ...] = ()
    """replicas that it removes"""
    elr: tuple[int, ...] = ()
    """replicas that left the ISR with all that is committed (KIP-966)"""
    lossy: tuple[int, ...] = ()
    """members of the ISR or ELR that may have lost records, while nobody leads"""

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that it will have after its reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    def assigned_as(self, other: Partition) -> Partition:
        """The partition with the replicas of `other`; the same object if it has them."""
        replicas = (other.replicas, other.adding, other.removing)
        if replicas == (self.replicas, self.adding, self.removing):
            return self
        return self._replace(replicas=replicas[0], adding=replicas[1], removing=replicas[2])


class Topic(NamedTuple):
    """A topic as in the tree."""

    name: str
    id: str
    """22 characters"""
    partitions: tuple[Partition, ...]
    config: dict[str, str]
    """what was set for this topic alone, as text"""
    version: int = 0
    """of its assignment znode"""
    config_version: int = 0

    def assignment(self) -> TopicAssignment:
        """The contents of its znode."""
        parts = list(enumerate(self.partitions))
        return TopicAssignment(
            tuple(each.replicas for each in self.partitions),
            self.id,
            tuple((index, each.adding) for index, each in parts if each.adding),
            tuple((index, each.removing) for index, each in parts if each.removing),
        )


class LiveBroker(NamedTuple):
    """A broker that is alive, as the controller has read or sent it."""

    epoch: int = -1
    """the czxid of its registration; -1: unknown"""
    rack: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    kept_epoch: int | None = None
    """it still has all records of its registrations from this one on; -1: it may have lost some;
    None: it is no krust, and does not say"""

    def has_all_records_since(self, epoch: int) -> bool:
        """Whether it still has all records that it had at this zxid, such as its earlier epoch."""
        kept = self.kept_epoch
        return kept is None or 0 <= kept <= epoch or 0 <= self.epoch <= epoch

    def at(self, listener: str) -> Endpoint | None:
        """The endpoint of that listener; None: it has no listener of that name."""
        return next((each for each in self.endpoints if each.listener == listener), None)


class TopicDeletion(NamedTuple):
    """A topic that is marked for deletion."""

    topic_id: str
    partitions: tuple[Partition, ...]
    waiting: set[int]
    """brokers that have not confirmed yet that they deleted their replicas"""
