"""Which replica leads a partition: the one decision that every place which chooses a leader asks.

A replica may lead if it is in the ISR and its broker is alive; ELR members, lossy members and
unclean elections below are the exceptions. Among those that may, the order of the assignment
decides. Each mode says which replicas are asked, and what the ISR is afterwards. A
change of leader or ISR is one more leader epoch and one more partition epoch, because a Kafka
leader ignores a LeaderAndIsr of the epoch that it has.

Dead brokers leave the ISR, so that acks=all does not wait for them. So do brokers that were
registered again, while others stay in it: they come back when they have caught up. The last
members of an ISR stay in it, for the next controller to know them (as in Kafka).

ELR (KIP-966): while the ISR is below min.insync.replicas the leader does not advance the high
watermark, so who leaves the ISR then has all that is committed. It may lead where nobody in the
ISR can. A leader that is a Kafka does not wait so; then there is no ELR.
NOTE: while min.insync.replicas is being raised, a leader that has not learnt of it yet may advance
the high watermark past a replica that the controller puts into the ELR at that moment.
A broker that may have lost unsynced records when it stopped is *lossy* in the partitions where it
is in the ISR or ELR: it can no longer lead. If all of these members are lossy and alive, nobody
better can come back: the first leads. Under any other leader they leave the ISR. `risk` tells of
a lossy leader, and of unclean elections, which take any live replica: the setting
unclean.leader.election.enable or ElectLeaders has to ask for one.
Source: KIP-101, KIP-106, KIP-460, KIP-966.
Pure.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

from krust.controller.entities import Partition
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence, Set


class ElectionMode(Enum):
    """Why a leader is chosen."""

    NEW = auto()
    """the partition has no state yet: its replicas that are alive become the ISR"""
    OFFLINE = auto()
    """brokers may be gone: the first replica that can lead does, the ISR loses dead brokers"""
    PREFERRED = auto()
    """the first replica of the assignment leads, or nothing changes"""
    SHUTDOWN = auto()
    """brokers are about to stop: others lead, the ISR loses those that stop"""
    REASSIGNED = auto()
    """the leader is no replica that stays: one of those leads, or nothing changes"""


class Risk(StrEnum):
    """Why an election may have cost acknowledged records."""

    UNCLEAN = "unclean leader elections"
    """the leader was neither in the ISR nor in the ELR"""
    LOSSY = "leaders after an unclean stop"
    """each member of the ISR and of the ELR may have lost what was not synced"""


class LiveBrokers(NamedTuple):
    """The brokers that are alive, and those among them that should rather not lead."""

    alive: Set[int]
    leaving: Collection[int] = ()
    """have said that they will stop"""
    restarted: Collection[int] = ()
    """were registered again: their process was restarted, or its session was lost"""
    lossy: Collection[int] = ()
    """may have lost what was not synced, or their disk of this partition failed"""
    keeping_elr: Collection[int] = ()
    """as leaders do not raise the high watermark while the ISR is below min.insync.replicas"""


class Rules(NamedTuple):
    """What the settings of a topic say about leaders."""

    min_isr: int = 1
    unclean: bool = False


DEFAULT_RULES = Rules()


def elect(
    partition: Partition, live: LiveBrokers, mode: ElectionMode, rules: Rules = DEFAULT_RULES
) -> Partition:
    """The partition under the leader that it has to have; the same object where that leads."""
    if mode is ElectionMode.NEW:
        alive = tuple(each for each in partition.replicas if each in live.alive)
        if not alive:
            return partition
        first = next((each for each in alive if each not in live.leaving), alive[0])
        return partition._replace(leader=first, leader_epoch=0, isr=alive, version=0)
    if mode is ElectionMode.OFFLINE:
        return _elect_offline(partition, live, rules)
    lossy = _lossy_members(partition, live)
    isr = tuple(each for each in partition.isr if each not in lossy)
    able = [
        each
        for each in partition.replicas
        if each in isr and each in live.alive and each not in live.leaving
    ]
    if mode is ElectionMode.PREFERRED:
        first = partition.replicas[0]
        needed = partition.leader != first and first in able
        return _in_epoch_of(partition, first, isr, live, rules) if needed else partition
    if mode is ElectionMode.REASSIGNED:
        able = [each for each in able if each not in partition.removing]
        needed = partition.leader in partition.removing and bool(able)
        return _in_epoch_of(partition, able[0], isr, live, rules) if needed else partition
    isr = tuple(each for each in isr if each not in live.leaving)
    if partition.leader in live.leaving:
        return _in_epoch_of(partition, able[0], isr, live, rules) if able else partition
    if partition.leader not in live.alive or partition.leader in lossy or isr == partition.isr:
        return partition
    return _in_epoch_of(partition, partition.leader, isr, live, rules)


def is_settled(partition: Partition, alive: frozenset[int]) -> bool:
    """Whether the leader and the whole ISR are alive, and nothing else is noted.

    `elect` changes nothing then, in mode OFFLINE, unless a broker has returned or lost its disk.
    """
    return (
        partition.version >= 0
        and partition.leader in alive
        and not partition.elr
        and not partition.lossy
        and alive.issuperset(partition.isr)
    )


def risk(before: Partition, after: Partition, lossy: Collection[int]) -> Risk | None:
    """What the election of a leader may have cost; None: nothing.

    lossy  as in `LiveBrokers`
    """
    if after.leader == -1 or after.leader == before.leader != -1:
        elected = after.leader in lossy and after.leader_epoch > before.leader_epoch
        return Risk.LOSSY if elected else None
    members = (*before.isr, *before.elr)
    if before.version >= 0 and after.leader not in members:
        return Risk.UNCLEAN
    return Risk.LOSSY if after.leader in (*before.lossy, *lossy) else None


def new_partitions(
    alive: Set[int], assignment: Iterable[Sequence[int]], leaving: Collection[int] = ()
) -> tuple[Partition, ...]:
    """Partitions with these replicas, each with its first leader."""
    live = LiveBrokers(alive, leaving)
    new = (Partition(tuple(replicas), -1, 0, (), -1) for replicas in assignment)
    return tuple(elect(each, live, ElectionMode.NEW) for each in new)


def _elect_offline(partition: Partition, live: LiveBrokers, rules: Rules) -> Partition:
    """Mode OFFLINE."""
    leader, isr = partition.leader, partition.isr
    back = live.restarted or live.lossy or partition.lossy
    if leader in live.alive and not back and all(e in live.alive for e in isr):
        stale = partition.elr and not _is_below(partition, isr, rules)
        return _in_epoch_of(partition, leader, isr, live, rules) if stale else partition
    lossy = _lossy_members(partition, live)
    sound = [each for each in isr if each in live.alive and each not in lossy]
    steady = [each for each in sound if each not in live.restarted]
    kept = tuple(steady or sound)
    if leader in steady:
        same = kept == isr and not lossy.intersection(partition.elr)
        return partition if same else _in_epoch_of(partition, leader, kept, live, rules)
    if kept:
        return _in_epoch_of(partition, _first_able(partition, kept, live), kept, live, rules)
    elr = partition.elr if _is_below(partition, isr, rules) else ()
    if heirs := [each for each in elr if each in live.alive and each not in lossy]:
        heir = _first_able(partition, heirs, live)
        return _in_epoch_of(partition, heir, (heir,), live, rules)
    members = set(isr).union(elr)
    alive = members & live.alive
    if alive and (alive == members or rules.unclean):
        return _sole_member(partition, _first_able(partition, alive, live))
    others = live.alive & set(partition.replicas)
    if rules.unclean and others:
        return _sole_member(partition, _first_able(partition, others, live))
    if leader == -1 and lossy == set(partition.lossy) and elr == partition.elr:
        return partition
    marks = tuple(each for each in partition.replicas if each in lossy)
    return _next_state(partition, -1, isr)._replace(elr=elr, lossy=marks)


def _lossy_members(partition: Partition, live: LiveBrokers) -> set[int]:
    """The members of the ISR and ELR that may have lost records."""
    lossy = {each for each in (*partition.isr, *partition.elr) if each in live.lossy}
    return lossy.union(partition.lossy)


def _first_able(partition: Partition, able: Collection[int], live: LiveBrokers) -> int:
    """The first in the order of the assignment; one that is leaving only where no other can."""
    order = [each for each in partition.replicas if each in able] or list(able)
    return next((each for each in order if each not in live.leaving), order[0])


def _is_below(partition: Partition, isr: Collection[int], rules: Rules) -> bool:
    """Whether an ISR is too small for the high watermark to advance."""
    return len(isr) < min(rules.min_isr, len(partition.replicas))


def _in_epoch_of(
    partition: Partition, leader: int, isr: tuple[int, ...], live: LiveBrokers, rules: Rules
) -> Partition:
    """The partition in a new epoch, with this leader, ISR, and the ELR that results."""
    elr = elr_after(partition, leader, isr, live, rules)
    return _next_state(partition, leader, isr)._replace(elr=elr)


def elr_after(
    partition: Partition, leader: int, isr: Collection[int], live: LiveBrokers, rules: Rules
) -> tuple[int, ...]:
    """The ELR when a partition gets this leader and ISR."""
    if not _is_below(partition, isr, rules) or leader not in live.keeping_elr:
        return ()
    lossy = _lossy_members(partition, live)
    before = {*partition.isr, *partition.elr}.difference(isr, lossy)
    return tuple(each for each in partition.replicas if each in before)


def _sole_member(partition: Partition, leader: int) -> Partition:
    """The partition under a leader whose log is the truth from now on."""
    return _next_state(partition, leader, (leader,))


def in_new_epoch(partition: Partition) -> Partition:
    """The partition under the same leader in a new epoch."""
    again = _next_state(partition, partition.leader, partition.isr)
    return again._replace(elr=partition.elr, lossy=partition.lossy)


def _next_state(partition: Partition, leader: int, isr: tuple[int, ...]) -> Partition:
    """The partition in a new epoch; without ELR and marks."""
    return partition._replace(
        leader=leader,
        isr=isr,
        leader_epoch=partition.leader_epoch + 1,
        version=partition.version + 1,
        elr=(),
        lossy=(),
    )
