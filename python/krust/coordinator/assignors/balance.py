"""The algorithm of all balancing assignors: first as even as subscriptions permit, then few moves.

A *pool* is a set of partitions that the same members may take. A member's n-th partition costs it
(2n - 1) / weight. The result has the lowest possible sum of costs. With equal weights that is the
most even assignment: no chain of moves (one from a to b, one from b to c) can help a member that
has two fewer. With unequal weights it is Webster's rule for seats in a parliament.

Three steps; each keeps the result of the one before:
    fill     each partition without a holder goes to the member that it costs least
    level    within a pool, the member that pays most gives one to the member that it costs least
             (heaps)
    chains   across pools, by breadth-first search. Members that a search has visited without
             finding an end are closed for all that pay less, so one search covers all members.

A member keeps its old partitions as long as possible and gives up new ones first. Within one pool
the fewest partitions move. Not promised: the fewest moves across pools.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust.coordinator.assignors.assignor import GroupSpec, TopicDescriber
    from krust.coordinator.consumer_protocol import TopicPartition

from krust.coordinator import consumer_protocol


@dataclass(frozen=True, slots=True)
class Pool:
    """Partitions, and the members that may take them."""

    members: tuple[str, ...]
    partitions: list[TopicPartition]


def pools(subscribed: Mapping[str, tuple[str, ...]], topics: TopicDescriber) -> list[Pool]:
    """The pools of a group with these subscribers of topics."""
    found: dict[tuple[str, ...], Pool] = {}
    for topic, members in subscribed.items():
        pool = found.get(members) or found.setdefault(members, Pool(members, []))
        count = topics.partitions(topic)
        pool.partitions.extend(consumer_protocol.TopicPartition(topic, n) for n in range(count))
    return list(found.values())


def spread(
    group: GroupSpec,
    pools: Sequence[Pool],
    held: Mapping[TopicPartition, str],
    weights: Mapping[str, int] | None = None,
) -> dict[str, list[TopicPartition]]:
    """Assign the partitions of all pools.

    held     partition -> the member that holds it
    weights  member -> its share of the work, at least 1; 1 if it is absent
    returns  every partition, with exactly one member of its pool; sorted
    """
    order = group.order()
    table = _Table(order, pools, weights or {})
    table.fill(held)
    for number in range(len(pools)):
        table.level(number)
    while table.chain():
        pass
    return dict(zip(order, map(sorted, table.shares()), strict=True))


class _Table:
    """The assignment in progress; members and pools have numbers."""

    def __init__(
        self, order: Sequence[str], pools: Sequence[Pool], weights: Mapping[str, int]
    ) -> None:
        number = {member: n for n, member in enumerate(order)}
        self._number = number
        self._partitions = [pool.partitions for pool in pools]
        self._members = [[number[member] for member in pool.members] for pool in pools]
        self._home: dict[TopicPartition, int] = {}
        self._weight = [weights.get(member, 1) for member in order]
        self._load = [0] * len(order)
        # For each pool: member -> its partitions, (kept, new). No entry: none.
        self._held: list[dict[int, tuple[list[TopicPartition], list[TopicPartition]]]] = [
            {} for _ in pools
        ]
        self._pools_of: list[list[int]] = [[] for _ in order]
        for pool, members in enumerate(self._members):
            for member in members:
                self._pools_of[member].append(pool)

    def _pays(self, member: int) -> float:
        """The cost of its last partition."""
        return (2 * self._load[member] - 1) / self._weight[member]

    def _would_pay(self, member: int) -> float:
        """The cost of one more partition."""
        return (2 * self._load[member] + 1) / self._weight[member]

    def _give(self, one: TopicPartition, pool: int, member: int) -> None:
        held = self._held[pool]
        both = held.get(member) or held.setdefault(member, ([], []))
        both[self._home.get(one) != member].append(one)
        self._load[member] += 1

    def _move(self, pool: int, giver: int, taker: int) -> None:
        kept, new = self._held[pool][giver]
        one = (new or kept).pop()
        if not new and not kept:
            del self._held[pool][giver]
        self._load[giver] -= 1
        self._give(one, pool, taker)

    def shares(self) -> Iterable[list[TopicPartition]]:
        """The partitions of each member."""
        shares: list[list[TopicPartition]] = [[] for _ in self._load]
        for held in self._held:
            for member, (kept, new) in held.items():
                shares[member] += kept + new
        return shares

    def fill(self, held: Mapping[TopicPartition, str]) -> None:
        """Keep held partitions, and assign the others, small pools first."""
        free: list[list[TopicPartition]] = []
        for pool, partitions in enumerate(self._partitions):
            may = set(self._members[pool])
            free.append([])
            for one in partitions:
                home = self._number.get(held.get(one, ""))
                if home is None or home not in may:
                    free[pool].append(one)
                else:
                    self._home[one] = home
                    self._give(one, pool, home)
        for pool in sorted(range(len(free)), key=lambda pool: len(self._members[pool])):
            heap = [(self._would_pay(member), member) for member in self._members[pool]]
            heapify(heap)
            for one in free[pool]:
                _, member = heap[0]
                self._give(one, pool, member)
                heapreplace(heap, (self._would_pay(member), member))

    def level(self, pool: int) -> None:
        """Move partitions within one pool as long as that lowers the costs.

        The heaps may hold old entries. An entry with an old cost is dropped.
        """
        held = self._held[pool]
        givers = [(-self._pays(member), member) for member in held]
        takers = [(self._would_pay(member), member) for member in self._members[pool]]
        heapify(givers)
        heapify(takers)
        while givers and takers:
            pays, giver = -givers[0][0], givers[0][1]
            would_pay, taker = takers[0]
            if giver not in held or pays != self._pays(giver):
                heappop(givers)
            elif would_pay != self._would_pay(taker):
                heappop(takers)
            elif would_pay >= pays:
                return
            else:
                self._move(pool, giver, taker)
                for member in (giver, taker):
                    heappush(givers, (-self._pays(member), member))
                    heappush(takers, (self._would_pay(member), member))

    def chain(self) -> bool:
        """Find and make one chain of moves that lowers the costs. False: there is none."""
        came: dict[int, tuple[int, int] | None] = {}
        searched: set[int] = set()
        for start in sorted(range(len(self._load)), key=self._pays, reverse=True):
            if start in came:
                continue
            came[start] = None
            limit = self._pays(start)
            ahead = deque([start])
            while ahead:
                giver = ahead.popleft()
                for pool in self._pools_of[giver]:
                    if pool in searched or giver not in self._held[pool]:
                        continue
                    searched.add(pool)
                    for taker in self._members[pool]:
                        if taker in came:
                            continue
                        came[taker] = (pool, giver)
                        if self._would_pay(taker) < limit:
                            self._follow(came, taker)
                            return True
                        ahead.append(taker)
        return False

    def _follow(self, came: Mapping[int, tuple[int, int] | None], taker: int) -> None:
        """Make the moves of a chain, the last one first."""
        step = came[taker]
        while step is not None:
            pool, giver = step
            self._move(pool, giver, taker)
            taker, step = giver, came[giver]
