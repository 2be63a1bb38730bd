"""Preferred leaders without a request: the controller gives leadership back to first replicas.

A broker is out of balance if other brokers lead more than `leader.imbalance.per.broker.percentage`
of the partitions whose first replica it has. The controller then gives it those that it can lead.
The check runs each `leader.imbalance.check.interval.seconds`, the first one FIRST_MS after a broker
became the controller, unless `auto.leader.rebalance.enable` is false.
It runs in slices: partitions are counted first, then moved.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from krust.controller import brokers
from krust.controller.leaders import ElectionMode, elect
from krust.controller.pace import BATCHED, PAUSE, Pace

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.entities import Partition
    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult

FIRST_MS = 5_000


def balance(state: ControllerState) -> Steps:
    """Move the partitions of brokers that are out of balance to their preferred leaders."""
    poor = yield from _unbalanced_brokers(state)
    pace = Pace()
    for name in list(state.topics) if poor else ():
        topic = state.topics.get(name)
        if topic is None:
            continue
        rules = brokers.leader_rules(state, topic)
        moved: dict[int, Partition] = {}
        for index, partition in enumerate(topic.partitions):
            led = partition
            if partition.replicas[:1] and partition.replicas[0] in poor:
                live = brokers.live_brokers(state, (name, index))
                led = elect(partition, live, ElectionMode.PREFERRED, rules)
            if led is not partition:
                moved[index] = led
            if pace.add(BATCHED if led is not partition else 1):
                if moved:
                    state.for_jobs.outdated |= yield from brokers.write_states(
                        state, [(topic, moved)]
                    )
                moved = {}
                yield PAUSE
        if moved:
            state.for_jobs.outdated |= yield from brokers.write_states(state, [(topic, moved)])


def _unbalanced_brokers(
    state: ControllerState,
) -> Generator[Transactions, list[MultiResult], set[int]]:
    """The brokers that lead too few of the partitions whose first replica they have."""
    own, lost = Counter[int](), Counter[int]()
    pace = Pace()
    for topic in list(state.topics.values()):
        for partition in topic.partitions:
            first = partition.replicas[0] if partition.replicas else -1
            own[first] += 1
            lost[first] += partition.leader != first
            if pace.add():
                yield PAUSE
    percent = state.whole("leader.imbalance.per.broker.percentage")
    return {each for each in lost if lost[each] * 100 > own[each] * percent}
