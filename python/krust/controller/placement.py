"""Which brokers get the replicas of new partitions.

The brokers are a ring. Each partition takes the next broker as its leader; a new topic continues
where the last one ended. The followers of a partition come after its leader in the ring. Each time
the leaders have gone round, the distance to the followers grows by one, so that the partitions of a
dead leader are spread over all other brokers.
If brokers have racks, the ring takes one broker of each rack in turn. A partition gets a second
broker of a rack only when it has one of every rack (Kafka's rule, KIP-36). If some brokers have a
rack and some have none, the request is refused.
Brokers that are about to stop get no replica as long as there are others.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from krust.controller.state import RefusedError
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.controller.entities import LiveBroker
    from krust.controller.state import ControllerState


def place_replicas(state: ControllerState, count: int, factor: int) -> list[Sequence[int]]:
    """The replicas of `count` new partitions. The next topic continues after them."""
    staying = {each: live for each, live in state.brokers.items() if each not in state.leaving}
    ring = rack_order(staying if len(staying) >= factor else state.brokers)
    if len(ring) < factor:
        raise RefusedError(
            Code.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(ring)}.",
        )
    first, state.placed = state.placed, state.placed + count
    if factor == 1:
        return [[ring[place % len(ring)]] for place in range(first, first + count)]
    racks = {each: state.brokers[each].rack for each in ring}
    has_racks = None not in racks.values()
    return [
        _replicas(ring, place, factor, racks if has_racks else {})
        for place in range(first, first + count)
    ]


def _replicas(
    ring: Sequence[int], place: int, factor: int, racks: Mapping[int, str | None]
) -> list[int]:
    """The replicas of the partition at a place in the ring, its leader first.

    racks  empty: the brokers have no racks
    """
    size = len(ring)
    leader, round_ = place % size, place // size
    others = [ring[(leader + 1 + (round_ + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen, taken = [ring[leader]], {racks.get(ring[leader])}
    while len(chosen) < factor:
        free = [each for each in others if each not in chosen]
        best = next((each for each in free if racks and racks[each] not in taken), None)
        if best is None:
            best, taken = free[0], set()
        chosen.append(best)
        taken.add(racks.get(best))
    return chosen


def rack_order(brokers: Mapping[int, LiveBroker]) -> list[int]:
    """The brokers in the order of the ring."""
    racks: dict[str | None, list[int]] = {}
    for broker, live in sorted(brokers.items()):
        racks.setdefault(live.rack, []).append(broker)
    if None in racks and len(racks) > 1:
        raise RefusedError(
            Code.INVALID_REQUEST,
            f"Brokers {racks[None]} have no rack and others have one: give all of them one, or "
            "none, or name the replicas of each partition.",
        )
    by_rack = [racks[rack] for rack in sorted(racks, key=str)]
    mixed = chain.from_iterable(zip_longest(*by_rack))
    return [each for each in mixed if each is not None]
