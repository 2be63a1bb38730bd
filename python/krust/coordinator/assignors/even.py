"""Assignors that use `balance.spread`: even counts first, then the aim of each assignor.

Promised by all: each partition goes to one member that subscribes to it, and the counts are as even
as the subscriptions permit (`Weighted`: as close to the weights). With equal subscriptions, counts
differ by one at most.
"""

from __future__ import annotations

import re
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from krust.coordinator.assignors import balance
from krust.coordinator.assignors.assignor import owners, subscribed
from krust.coordinator.assignors.balance import Pool

if TYPE_CHECKING:
    from krust.coordinator.assignors.assignor import (
        GroupAssignment,
        GroupSpec,
        MemberSpec,
        TopicDescriber,
    )
    from krust.coordinator.consumer_protocol import TopicPartition

MOST_WEIGHT = 1000


class Sticky:
    """Even counts, and members keep their partitions where possible.

    Promised: with equal subscriptions the fewest partitions move. With unequal subscriptions none
    moves if none has to.
    """

    name = "sticky"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign, starting from the owned partitions."""
        pools = balance.pools(subscribed(group, topics), topics)
        return balance.spread(group, pools, owners(group, topics))


class Uniform(Sticky):
    """`sticky` under the name that clients of KIP-848 use."""

    name = "uniform"


class Weighted:
    """Counts in proportion to weights: a member of weight 3 has three times as many as weight 1.

    A member's weight is the number in `weight=N` anywhere in its user data (text, words divided by
    space, comma or semicolon), else the end `-wN` of its instance id (`big-box-w3`), else 1.
    Weights are limited to 1-1000.

    Promised: no move makes the counts per weight of two members more even (Webster's rule). Among
    equal assignments it chooses the sticky one.
    """

    name = "weighted"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign by weight."""
        weights = {member_id: weight_of(member) for member_id, member in group.members.items()}
        pools = balance.pools(subscribed(group, topics), topics)
        return balance.spread(group, pools, owners(group, topics), weights)


def weight_of(member: MemberSpec) -> int:
    """The weight of a member: 1 to 1000."""
    found = re.search(rb"(?:^|[\s,;])weight=([0-9]{1,9})(?=$|[\s,;])", member.user_data or b"")
    digits = found[1].decode() if found else ""
    if not digits:
        named = re.search(r"-w([0-9]{1,9})$", member.instance_id or "")
        digits = named[1] if named else "1"
    return min(max(int(digits), 1), MOST_WEIGHT)


class RackAware:
    """Even counts, and many members read from a replica in their own rack.

    First the partitions are assigned within their racks, as evenly as possible. Then partitions
    move between racks until all counts are even. Members and partitions without a rack take part in
    the second step only. Among equal assignments members keep their partitions.

    Promised: even counts. Not promised: the most local readers of all even assignments.
    """

    name = "rack_aware"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign within racks, then level across racks."""
        subscribers = subscribed(group, topics)
        everywhere = balance.pools(subscribers, topics)
        held = owners(group, topics)
        near = self._near(group, topics, everywhere)
        if near:
            for member, partitions in balance.spread(group, near, held).items():
                held.update(dict.fromkeys(partitions, member))
        return balance.spread(group, everywhere, held)

    @staticmethod
    def _near(group: GroupSpec, topics: TopicDescriber, everywhere: list[Pool]) -> list[Pool]:
        """The pools of the partitions that a member could read in its own rack."""
        found: dict[tuple[int, frozenset[str]], Pool] = {}
        rack = {member_id: member.rack for member_id, member in group.members.items()}
        for number, pool in enumerate(everywhere):
            for one in pool.partitions:
                racks = topics.racks(one.topic, one.partition)
                near = found.get((number, racks))
                if near is None:
                    members = tuple(member for member in pool.members if rack[member] in racks)
                    near = found[number, racks] = Pool(members, [])
                near.partitions.append(one)
        return [pool for pool in found.values() if pool.members]


class LagAware:
    """Even counts, and lag is spread evenly over the members.

    The partition with the most lag is assigned first, to the member with the fewest partitions and,
    among those, the least lag. Unknown lag counts as 0. Partitions move whenever lags have changed,
    so this is for groups that rebalance seldom and must catch up fast.

    Promised: with equal subscriptions the sums of lag differ by at most the largest single lag.
    """

    name = "lag_aware"

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        """Assign by lag, then level the counts."""
        pools = balance.pools(subscribed(group, topics), topics)
        held = owners(group, topics)
        queue = [
            (-(topics.lag(one.topic, one.partition) or 0), number, one)
            for number, pool in enumerate(pools)
            for one in pool.partitions
        ]
        queue.sort(key=lambda entry: entry[0])
        place = {member: n for n, member in enumerate(group.order())}
        load = dict.fromkeys(place, (0, 0))
        heaps = [[(0, 0, place[member], member) for member in pool.members] for pool in pools]
        for heap in heaps:
            heapify(heap)
        dealt: dict[TopicPartition, str] = {}
        for minus_lag, number, one in queue:
            heap = heaps[number]
            while (entry := heap[0])[:2] != load[entry[3]]:  # the member got one in another pool
                heapreplace(heap, (*load[entry[3]], *entry[2:]))
            count, lag, at, member = heap[0]
            owner = held.get(one)
            if owner is not None and load[owner] == (count, lag):
                at, member = place[owner], owner
            load[member] = (count + 1, lag - minus_lag)
            if member == heap[0][3]:
                heapreplace(heap, (*load[member], at, member))
            dealt[one] = member
        return balance.spread(group, pools, dealt)
