"""Control requests: LeaderAndIsr, UpdateMetadata and StopReplica for the other brokers.

A newly registered broker is sent everything: UpdateMetadata and LeaderAndIsr of type 2, which say
that nothing else exists. After that it is sent changes, in slices: the changed partitions and all
brokers (UpdateMetadata), then the changed partitions that it hosts (LeaderAndIsr, type 1). A new
topic is never split, so that no client sees it with fewer partitions than it has. A deleted topic
is sent as StopReplica to the brokers that host it (epoch -2: delete whatever the log contains),
then as UpdateMetadata with leader -2, which means: remove the topic. A broker that has lost a
replica by a reassignment is sent StopReplica first, then UpdateMetadata.
Each request carries the epoch of its broker. A broker that was registered again in the meantime
ignores it, and is sent everything. The order of a broker's requests matters.
Not sent: settings. Brokers read them from the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.config import inter_broker_listener
from krust.controller import brokers
from krust.controller.control_request_handlers import DELETING, FULL, PROTOCOLS
from krust.controller.state import (
    NO_TOPIC_ID,
    BrokerRequest,
    Changes,
    ControllerState,
    Topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.controller.state import Partition
    from krust.messages.leader_and_isr import (
        LeaderAndIsrLiveLeader,
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        LeaderAndIsrTopicState,
    )
    from krust.messages.stop_replica import (
        StopReplicaPartitionState,
        StopReplicaRequest,
        StopReplicaTopicState,
    )
    from krust.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataTopicState,
    )

INCREMENTAL = 1


SLICE = 200
"""changed partitions that are sent together"""


class ControlRequests:
    """What each broker was sent so far."""

    def __init__(self) -> None:
        self._full_epochs: dict[int, int] = {}
        """broker -> the epoch under which it was sent everything"""
        self._topics: dict[str, Topic] = {}

    def clear(self) -> None:
        """Start over: no broker was sent anything."""
        self._full_epochs.clear()
        self._topics.clear()

    def split(self, changes: Changes) -> tuple[Changes, Changes]:
        """The changes to send now, and those to send later: a slice of changed partitions each.

        Deleted topics, and all other changes, belong to the first slice.
        """
        now, later = Changes(live=changes.live), Changes()
        room = SLICE
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
        """Whether some of this topic, and not of another one of its name, was sent before."""
        return topic.name in self._topics and self._topics[topic.name].id == topic.id

    def _with(self, topic: Topic, moved: list[int]) -> Topic:
        """The topic as it was sent last, with these partitions as they are now."""
        partitions = list(self._topics[topic.name].partitions)
        for index in moved:
            partitions[index : index + 1] = [topic.partitions[index]]
        return topic._replace(partitions=tuple(partitions))

    def after(self, state: ControllerState, changes: Changes) -> list[BrokerRequest]:
        """The requests for a slice of changes, and for newly registered brokers."""
        requests: list[BrokerRequest] = []
        moved = {
            name: self._differing(name, topic)
            for name, topic in changes.topics.items()
            if topic is not None
        }
        gone = [name for name, topic in changes.topics.items() if topic is None]
        states = [
            _topic_metadata(state, state.topics[name], indexes) for name, indexes in moved.items()
        ]
        states += [each for name in gone for each in _deleted_topic(state, name)]
        unsent = self._unsent(state)
        for broker in unsent[:1]:
            self._full_epochs[broker] = state.brokers[broker].epoch
            requests += _everything(state, broker)
        removed = self._removed(state, moved)
        for broker in sorted(state.brokers.keys() - {state.node_id, *unsent}):
            requests += _stop(state, broker, gone, removed.get(broker, {}))
            if changes.topics or changes.live:
                requests.append(_update(state, broker, states, 0))
            if hosted := _hosted(state, broker, moved):
                requests.append(_lead(state, broker, INCREMENTAL, hosted))
        for broker in self._full_epochs.keys() - state.brokers.keys():
            del self._full_epochs[broker]
        for name, topic in changes.topics.items():
            if topic is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = topic
        return requests

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
        """Whether a newly registered broker is still to be sent everything."""
        return bool(self._unsent(state))

    def _unsent(self, state: ControllerState) -> list[int]:
        """The brokers to be sent everything. A slice does that for one of them."""
        return [
            broker
            for broker, live in sorted(state.brokers.items())
            if broker != state.node_id and self._full_epochs.get(broker) != live.epoch
        ]

    def needs_election(self, state: ControllerState, changes: Changes) -> bool:
        """Whether a changed partition has no leader that is alive and could have one."""
        for name, topic in changes.topics.items():
            if topic is not None:
                rules = brokers.rules(state, topic)
                for index in self._differing(name, topic):
                    now = brokers.with_live_leader(state, topic, index, rules)
                    if now is not topic.partitions[index]:
                        return True
        return False

    def inquiry(self, state: ControllerState, broker: int) -> list[BrokerRequest]:
        """What a broker has to answer so that it says which of its replicas it has lost."""
        if broker not in state.brokers or broker == state.node_id:
            return []
        all_of = {name: range(len(topic.partitions)) for name, topic in state.topics.items()}
        return [_lead(state, broker, INCREMENTAL, _hosted(state, broker, all_of))]

    def _differing(self, name: str, topic: Topic) -> list[int]:
        """The partitions that changed since they were sent last."""
        before = self._topics.get(name)
        known = before.partitions if before is not None and before.id == topic.id else ()
        return [
            index
            for index, each in enumerate(topic.partitions)
            if index >= len(known) or known[index] is not each
        ]


def _everything(state: ControllerState, broker: int) -> list[BrokerRequest]:
    """All that a broker has to know, and that nothing else is."""
    waiting = [name for name, each in state.deletions.items() if broker in each.waiting]
    all_of = {name: range(len(topic.partitions)) for name, topic in state.topics.items()}
    states = [
        _topic_metadata(state, state.topics[name], indexes) for name, indexes in all_of.items()
    ]
    return [
        *_stop(state, broker, waiting, {}),
        _update(state, broker, states, FULL),
        _lead(state, broker, FULL, _hosted(state, broker, all_of)),
    ]


def _hosted(
    state: ControllerState, broker: int, moved: Mapping[str, Iterable[int]]
) -> list[LeaderAndIsrTopicState]:
    """Those of the partitions that the broker has a replica of, by topic."""
    found: list[LeaderAndIsrTopicState] = []
    for name, indexes in moved.items():
        topic = state.topics[name]
        states = [
            _leader_and_isr_partition(state, broker, index, topic.partitions[index])
            for index in indexes
            if broker in topic.partitions[index].replicas
        ]
        if states:
            topic_id = topic.id or NO_TOPIC_ID
            found.append({"topic_name": name, "topic_id": topic_id, "partition_states": states})
    return found


def _lead(
    state: ControllerState, broker: int, kind: int, topics: list[LeaderAndIsrTopicState]
) -> BrokerRequest:
    """LeaderAndIsr."""
    leaders = {each["leader"] for topic in topics for each in topic["partition_states"]}
    listener = inter_broker_listener(state.config)
    live: list[LeaderAndIsrLiveLeader] = [
        {"broker_id": leader, "host_name": at.host, "port": at.port}
        for leader in sorted(leaders & state.brokers.keys())
        if (at := state.brokers[leader].at(listener)) is not None
    ]
    message: LeaderAndIsrRequest = {
        "controller_id": state.node_id,
        "controller_epoch": state.controller_epoch,
        "broker_epoch": state.brokers[broker].epoch,
        "type": kind,
        "topic_states": topics,
        "live_leaders": live,
    }
    return BrokerRequest(broker, "LeaderAndIsr", message)


def _leader_and_isr_partition(
    state: ControllerState, broker: int, index: int, partition: Partition
) -> LeaderAndIsrPartitionState:
    """A partition as LeaderAndIsr has it. New replicas are marked, because a Kafka with a failed
    log directory takes others for replicas that it has lost.
    """
    return {
        "partition_index": index,
        "controller_epoch": state.controller_epoch,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        "partition_epoch": partition.version,
        "replicas": list(partition.replicas),
        "adding_replicas": list(partition.adding),
        "removing_replicas": list(partition.removing),
        "is_new": broker in partition.adding or partition.version == 0,
    }


def _update(
    state: ControllerState, broker: int, topics: list[UpdateMetadataTopicState], kind: int
) -> BrokerRequest:
    """UpdateMetadata; every one tells of all brokers."""
    live: list[UpdateMetadataBroker] = [
        {
            "id": number,
            "rack": each.rack,
            "endpoints": [
                {
                    "listener": at.listener,
                    "host": at.host,
                    "port": at.port,
                    "security_protocol": _number(at.protocol),
                }
                for at in each.endpoints
            ],
        }
        for number, each in sorted(state.brokers.items())
    ]
    message: UpdateMetadataRequest = {
        "controller_id": state.node_id,
        "controller_epoch": state.controller_epoch,
        "broker_epoch": state.brokers[broker].epoch,
        "type": kind,
        "topic_states": topics,
        "live_brokers": live,
    }
    return BrokerRequest(broker, "UpdateMetadata", message)


def _number(protocol: str) -> int:
    """A security protocol's number; what is none is taken for PLAINTEXT."""
    return PROTOCOLS.index(protocol) if protocol in PROTOCOLS else 0


def _topic_metadata(
    state: ControllerState, topic: Topic, indexes: Iterable[int]
) -> UpdateMetadataTopicState:
    """Partitions of a topic as UpdateMetadata has them."""
    partitions = [(index, topic.partitions[index]) for index in indexes]
    return {
        "topic_name": topic.name,
        "topic_id": topic.id or NO_TOPIC_ID,
        "partition_states": [
            _metadata_partition(state, index, each, each.leader) for index, each in partitions
        ],
    }


def _deleted_topic(state: ControllerState, name: str) -> Iterable[UpdateMetadataTopicState]:
    """A topic that is not to be known any more; none: it never had partitions."""
    deletion = state.deletions.get(name)
    if deletion is not None and name not in state.topics:
        states = [
            _metadata_partition(state, index, each, DELETING)
            for index, each in enumerate(deletion.partitions)
        ]
        topic_id = deletion.topic_id or NO_TOPIC_ID
        yield {"topic_name": name, "topic_id": topic_id, "partition_states": states}


def _metadata_partition(
    state: ControllerState, index: int, partition: Partition, leader: int
) -> UpdateMetadataPartitionState:
    """A partition as UpdateMetadata has it."""
    return {
        "partition_index": index,
        "controller_epoch": state.controller_epoch,
        "leader": leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        "zk_version": partition.version,
        "replicas": list(partition.replicas),
        "offline_replicas": [each for each in partition.replicas if each not in state.brokers],
    }


def _stop(
    state: ControllerState, broker: int, gone: list[str], removed: Mapping[str, list[int]]
) -> list[BrokerRequest]:
    """StopReplica for the topics that go and that the broker still has, and for partitions that are
    on other brokers now. It deletes the files.
    """
    topics: list[StopReplicaTopicState] = []
    for name, indexes in removed.items():
        partitions = state.topics[name].partitions
        lost: list[StopReplicaPartitionState] = [
            {
                "partition_index": index,
                "leader_epoch": partitions[index].leader_epoch,
                "delete_partition": True,
            }
            for index in indexes
        ]
        topics.append({"topic_name": name, "partition_states": lost})
    for name in gone:
        deletion = state.deletions.get(name)
        if deletion is None or broker not in deletion.waiting:
            continue
        states: list[StopReplicaPartitionState] = [
            {"partition_index": index, "leader_epoch": DELETING, "delete_partition": True}
            for index, each in enumerate(deletion.partitions)
            if broker in each.replicas
        ]
        topics.append({"topic_name": name, "partition_states": states})
    if not topics:
        return []
    message: StopReplicaRequest = {
        "controller_id": state.node_id,
        "controller_epoch": state.controller_epoch,
        "broker_epoch": state.brokers[broker].epoch,
        "topic_states": topics,
    }
    return [BrokerRequest(broker, "StopReplica", message)]
