"""Which brokers get the replicas of new partitions, where there are several.

Partitions go round the brokers, one after the other, from where the last topic ended; replicas of
one partition to brokers behind one another. Where brokers have racks they are taken rack by rack
in turn, so that neighbours, and with them replicas, are on different ones (Kafka's rule, KIP-36).
Brokers of which some have a rack and some have none cannot be placed so: that is refused.
Brokers that said that they will stop get nothing, as long as there are others.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from krust.controller.state import RefusedError
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from krust.controller.state import ControllerState, LiveBroker


def spread(state: ControllerState, count: int, factor: int) -> list[Sequence[int]]:
    """The replicas of so many new partitions; the place of the next topic moves on."""
    staying = {each: live for each, live in state.brokers.items() if each not in state.leaving}
    ring = turns(staying if len(staying) >= factor else state.brokers)
    if len(ring) < factor:
        raise RefusedError(
            Code.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(ring)}.",
        )
    first, state.placed = state.placed, state.placed + count
    size = len(ring)
    return [
        [ring[(first + index + step) % size] for step in range(factor)] for index in range(count)
    ]


def turns(brokers: Mapping[int, LiveBroker]) -> list[int]:
    """The brokers in the order in which partitions go round."""
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
