"""The control requests with the full state for a newly registered broker, built in pieces.

LeaderAndIsr and UpdateMetadata of type 2 say that nothing else exists, so each of them is one
message with all partitions. To build 3,000 partitions at once takes 10 to 20 ms, and groups would
wait for it. `build` therefore adds a limited number of partitions in each call. A partition that
has changed since it was added is built again, so that the finished requests hold the state at the
time when they are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller.control_messages import (
    leader_and_isr,
    leader_and_isr_partition,
    metadata_partition,
    stop_replica,
    update_metadata,
)
from krust.controller.control_request_handlers import FULL
from krust.controller.state import NO_TOPIC_ID

if TYPE_CHECKING:
    from krust.controller.entities import Partition, Topic
    from krust.controller.state import BrokerRequest, ControllerState
    from krust.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrTopicState
    from krust.messages.update_metadata import (
        UpdateMetadataPartitionState,
        UpdateMetadataTopicState,
    )


class FullRequests:
    """The requests for one registration of a broker."""

    def __init__(self, broker: int, epoch: int) -> None:
        self.broker = broker
        self.epoch = epoch
        self._topics: dict[str, _BuiltTopic] = {}
        self._live: frozenset[int] = frozenset()
        """the live brokers when the partitions were built: a message names offline replicas"""

    def build(self, state: ControllerState, most: int) -> bool:
        """Build at most so many partitions. True: all partitions are built as they are now."""
        if self._live != state.brokers.keys():
            self._live = frozenset(state.brokers)
            self._topics.clear()
        for name in self._topics.keys() - state.topics.keys():
            del self._topics[name]
        for name, topic in state.topics.items():
            built = self._topics.get(name)
            if built is None or built.topic_id != topic.id:
                built = self._topics[name] = _BuiltTopic(topic.id)
            most = built.build(state, self.broker, topic, most)
            if most < 0:
                return False
        return True

    def requests(self, state: ControllerState) -> list[BrokerRequest]:
        """The requests. `build` has returned True and nothing has changed since."""
        waiting = [name for name, each in state.deletions.items() if self.broker in each.waiting]
        built = [(name, self._topics[name]) for name in state.topics]
        metadata = [each.metadata(name) for name, each in built]
        hosted = [each.hosted(name) for name, each in built if any(each.hosted_partitions)]
        return [
            *stop_replica(state, self.broker, waiting, {}),
            update_metadata(state, self.broker, metadata, FULL),
            leader_and_isr(state, self.broker, FULL, hosted),
        ]


class _BuiltTopic:
    """The partitions of a topic that are built; one item a partition in each list."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self._topic: Topic | None = None
        """the topic, when all of its partitions were built last"""
        self._partitions: list[Partition] = []
        """as they were when they were built"""
        self._metadata_partitions: list[UpdateMetadataPartitionState] = []
        self.hosted_partitions: list[LeaderAndIsrPartitionState | None] = []
        """None: the broker has no replica of the partition"""

    def build(self, state: ControllerState, broker: int, topic: Topic, most: int) -> int:
        """Build at most so many partitions. Returns how many more may be built; -1: too few."""
        if self._topic is topic:
            return most
        del self._partitions[len(topic.partitions) :]
        del self._metadata_partitions[len(topic.partitions) :]
        del self.hosted_partitions[len(topic.partitions) :]
        for index, partition in enumerate(topic.partitions):
            if index < len(self._partitions) and self._partitions[index] is partition:
                continue
            if most == 0:
                return -1
            most -= 1
            hosted = (
                leader_and_isr_partition(state, broker, index, partition)
                if broker in partition.replicas
                else None
            )
            self._partitions[index : index + 1] = [partition]
            self.hosted_partitions[index : index + 1] = [hosted]
            self._metadata_partitions[index : index + 1] = [
                metadata_partition(state, index, partition, partition.leader)
            ]
        self._topic = topic
        return most

    def metadata(self, name: str) -> UpdateMetadataTopicState:
        return {
            "topic_name": name,
            "topic_id": self.topic_id or NO_TOPIC_ID,
            "partition_states": self._metadata_partitions,
        }

    def hosted(self, name: str) -> LeaderAndIsrTopicState:
        return {
            "topic_name": name,
            "topic_id": self.topic_id or NO_TOPIC_ID,
            "partition_states": [each for each in self.hosted_partitions if each is not None],
        }
