"""Control requests: LeaderAndIsr, UpdateMetadata and StopReplica for the other brokers.

The controller sends a newly registered broker the full state: UpdateMetadata and LeaderAndIsr of
type 2, which say that no other topic exists (`full_requests.py`). After that it sends changes, in
slices: the changed partitions and all brokers (UpdateMetadata), then the changed partitions that
the broker hosts (LeaderAndIsr, type 1). A new topic is never split, so that no client sees it with
fewer partitions than it has. For a deleted topic the brokers that host it get StopReplica (epoch
-2: delete the log whatever it contains); then all get UpdateMetadata with leader -2, which means:
remove the topic. A broker that has lost a replica by a reassignment gets StopReplica first, then
UpdateMetadata.
Each request carries the epoch of its broker. A broker that was registered again in the meantime
ignores it, and gets the full state. The order of a broker's requests matters.
Not sent: settings. Brokers read them from the tree.
"""

from __future__ import annotations

from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING

from krust.controller import brokers, leaders
from krust.controller.changes import Changes
from krust.controller.control_messages import (
    deleted_topic_metadata,
    hosted_partitions,
    leader_and_isr,
    stop_replica,
    topic_metadata,
    update_metadata,
)
from krust.controller.full_requests import FullRequests

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from krust.controller.entities import Topic
    from krust.controller.state import BrokerRequest, ControllerState

INCREMENTAL = 1


PARTITIONS_PER_SLICE = 80
"""changed partitions that are sent together"""

LEAST_OF_ALL = 10
"""partitions that a slice builds for a newly registered broker, however many have changed"""


class ControlRequests:
    """What the controller has sent to each broker so far."""

    def __init__(self) -> None:
        self._full_epochs: dict[int, int] = {}
        """broker -> the epoch under which it was sent everything"""
        self._building: FullRequests | None = None
        """the requests for the next broker to be sent everything"""
        self._topics: dict[str, Topic] = {}

    def clear(self) -> None:
        """Start over, as if no broker had been sent anything."""
        self._full_epochs.clear()
        self._building = None
        self._topics.clear()

    def split(self, changes: Changes) -> tuple[Changes, Changes]:
        """The changes to send now, and those to send later; one slice of changed partitions each.

        The first slice also has the deleted topics and all other changes.
        """
        now, later = Changes(live=changes.live), Changes()
        room = PARTITIONS_PER_SLICE
        for name, topic in changes.topics.items():
            if topic is None:
                now.topics[name] = None
            elif room <= 0:
                later.topics[name] = topic
            else:
                moved = self._differing(name, topic)
                if len(moved) > room and self._has_sent(topic):
                    later.topics[name] = topic
                    topic = self._with(topic, moved[:room])
                now.topics[name] = topic
                room -= max(len(moved), 1)
        return now, later

    def _has_sent(self, topic: Topic) -> bool:
        """Whether this topic was sent before, and not only another topic of the same name."""
        return topic.name in self._topics and self._topics[topic.name].id == topic.id

    def _with(self, topic: Topic, moved: list[int]) -> Topic:
        """The topic as it was sent last, with these partitions as they are now."""
        partitions = list(self._topics[topic.name].partitions)
        for index in moved:
            partitions[index : index + 1] = [topic.partitions[index]]
        return topic._replace(partitions=tuple(partitions))

    def for_changes(self, state: ControllerState, changes: Changes) -> list[BrokerRequest]:
        """The requests for a slice of changes, and for newly registered brokers.

        The latter get what the changes leave of the slice, and at least LEAST_OF_ALL partitions.
        """
        requests: list[BrokerRequest] = []
        moved = {
            name: self._differing(name, topic)
            for name, topic in changes.topics.items()
            if topic is not None
        }
        unsent = self._unsent(state)
        informed = sorted(state.brokers.keys() - {state.node_id, *unsent})
        used = sum(map(len, moved.values())) if informed else 0
        for broker in unsent[:1]:
            requests += self._full(state, broker, max(PARTITIONS_PER_SLICE - used, LEAST_OF_ALL))
        if informed:
            requests += self._changed(state, changes, moved, informed)
        for broker in self._full_epochs.keys() - state.brokers.keys():
            del self._full_epochs[broker]
        for name, topic in changes.topics.items():
            if topic is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = topic
        return requests

    def _changed(
        self,
        state: ControllerState,
        changes: Changes,
        moved: Mapping[str, list[int]],
        informed: Iterable[int],
    ) -> Iterator[BrokerRequest]:
        """A slice of changes, for brokers that were sent everything before."""
        gone = [name for name, topic in changes.topics.items() if topic is None]
        states = [
            topic_metadata(state, state.topics[name], indexes) for name, indexes in moved.items()
        ]
        states += [each for name in gone for each in deleted_topic_metadata(state, name)]
        removed = self._removed(state, moved)
        for broker in informed:
            yield from stop_replica(state, broker, gone, removed.get(broker, {}))
            if changes.topics or changes.live:
                yield update_metadata(state, broker, states, 0)
            if hosted := hosted_partitions(state, broker, moved):
                yield leader_and_isr(state, broker, INCREMENTAL, hosted)

    def _full(self, state: ControllerState, broker: int, room: int) -> list[BrokerRequest]:
        """Everything, for this broker. Empty: more than so many partitions were left to build."""
        epoch = state.brokers[broker].epoch
        building = self._building
        if building is None or (building.broker, building.epoch) != (broker, epoch):
            building = self._building = FullRequests(broker, epoch)
        if not building.build(state, room):
            return []
        self._building = None
        self._full_epochs[broker] = epoch
        return building.requests(state)

    def _removed(
        self, state: ControllerState, moved: Mapping[str, Iterable[int]]
    ) -> dict[int, dict[str, list[int]]]:
        """The partitions that each broker has lost since they were sent last, by topic."""
        found: dict[int, dict[str, list[int]]] = {}
        for name, indexes in moved.items():
            topic = state.topics[name]
            known = self._topics[name].partitions if self._has_sent(topic) else ()
            for index in indexes:
                if index < len(known):
                    for broker in set(known[index].replicas) - set(
                        topic.partitions[index].replicas
                    ):
                        found.setdefault(broker, {}).setdefault(name, []).append(index)
        return found

    def has_unsent(self, state: ControllerState) -> bool:
        """Whether a newly registered broker still has to get the full state."""
        return bool(self._unsent(state))

    def _unsent(self, state: ControllerState) -> list[int]:
        """The brokers to be sent everything. They are served one after another."""
        return [
            broker
            for broker, live in sorted(state.brokers.items())
            if broker != state.node_id and self._full_epochs.get(broker) != live.epoch
        ]

    def needs_election(self, state: ControllerState, changes: Changes) -> bool:
        """Whether a changed partition has no leader that is alive and could have one."""
        alive = frozenset(state.brokers)
        offline_brokers = state.offline.brokers_of if state.offline else None
        for name, topic in changes.topics.items():
            if topic is not None:
                rules = brokers.leader_rules(state, topic)
                for index in self._differing(name, topic):
                    partition = topic.partitions[index]
                    if leaders.is_settled(partition, alive) and not (
                        offline_brokers and offline_brokers((name, index))
                    ):
                        continue
                    if brokers.with_live_leader(state, topic, index, rules) is not partition:
                        return True
        return False

    def inquiry(self, state: ControllerState, broker: int) -> Generator[BrokerRequest]:
        """What a broker has to answer so that it says which of its replicas it has lost.

        LeaderAndIsr of every partition, in slices. Each is built when it is taken.
        """
        partitions = [
            (name, index)
            for name, topic in state.topics.items()
            for index in range(len(topic.partitions))
        ]
        for first in range(0, len(partitions), PARTITIONS_PER_SLICE):
            if broker not in state.brokers or broker == state.node_id:
                return
            indexes: dict[str, list[int]] = {}
            for name, index in partitions[first : first + PARTITIONS_PER_SLICE]:
                if name in state.topics and index < len(state.topics[name].partitions):
                    indexes.setdefault(name, []).append(index)
            if hosted := hosted_partitions(state, broker, indexes):
                yield leader_and_isr(state, broker, INCREMENTAL, hosted)

    def _differing(self, name: str, topic: Topic) -> list[int]:
        """The partitions that changed since they were sent last."""
        before = self._topics.get(name)
        known = before.partitions if before is not None and before.id == topic.id else ()
        sent = min(len(known), len(topic.partitions))
        changed = compress(range(sent), map(is_not, known, topic.partitions))
        return [*changed, *range(sent, len(topic.partitions))]
