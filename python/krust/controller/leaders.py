"""Which replica leads a partition: the one decision that every place which chooses a leader asks.

A replica may lead if it is in the ISR and its broker is alive. Among those the order of the
assignment decides. Each mode says which replicas are asked, and what the ISR is afterwards. A
change of leader is one more leader epoch and one more partition epoch.
Pure.
Not done: unclean election. A replica outside the ISR never leads.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from krust.controller.state import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence, Set


class ElectionMode(Enum):
    """Why a leader is chosen."""

    NEW = auto()
    """the partition has no state yet: its replicas that are alive become the ISR"""
    OFFLINE = auto()
    """the leader may be gone: the first replica that can lead does, the ISR loses dead brokers"""
    PREFERRED = auto()
    """the first replica of the assignment leads, or nothing changes"""
    SHUTDOWN = auto()
    """the leader is about to stop: another replica leads, the ISR loses the old leader"""


class LiveBrokers(NamedTuple):
    """The brokers that are alive, and those among them that should rather not lead."""

    alive: Set[int]
    leaving: Collection[int] = ()
    """have said that they will stop"""
    restarted: Collection[int] = ()
    """were registered again: they may have lost what was not synced"""


def elect(partition: Partition, live: LiveBrokers, mode: ElectionMode) -> Partition:
    """The partition under the leader that it has to have; the same object where that leads."""
    if mode is ElectionMode.NEW:
        alive = tuple(each for each in partition.replicas if each in live.alive)
        if not alive:
            return partition
        return partition._replace(leader=alive[0], leader_epoch=0, isr=alive, version=0)
    in_sync = [each for each in partition.replicas if each in partition.isr and each in live.alive]
    staying = [each for each in in_sync if each not in live.leaving]
    if mode is ElectionMode.PREFERRED:
        first = partition.replicas[0]
        needed = partition.leader != first and first in staying
        return with_leader(partition, first, partition.isr) if needed else partition
    if mode is ElectionMode.SHUTDOWN:
        isr = tuple(each for each in partition.isr if each != partition.leader)
        others = [each for each in staying if each != partition.leader]
        return with_leader(partition, others[0], isr) if others else partition
    leader = partition.leader
    if leader in live.alive and leader not in live.restarted:
        return partition
    if not in_sync:
        return partition if leader == -1 else with_leader(partition, -1, partition.isr)
    best = min(in_sync, key=lambda each: (each in live.leaving, each in live.restarted))
    return with_leader(partition, best, tuple(e for e in partition.isr if e in live.alive))


def new_partitions(alive: Set[int], assignment: Iterable[Sequence[int]]) -> tuple[Partition, ...]:
    """Partitions with these replicas, each with its first leader."""
    live = LiveBrokers(alive)
    new = (Partition(tuple(replicas), -1, 0, (), -1) for replicas in assignment)
    return tuple(elect(each, live, ElectionMode.NEW) for each in new)


def with_leader(partition: Partition, leader: int, isr: tuple[int, ...]) -> Partition:
    """The partition under another leader, or under the same one in a new epoch."""
    return partition._replace(
        leader=leader,
        isr=isr,
        leader_epoch=partition.leader_epoch + 1,
        version=partition.version + 1,
    )
