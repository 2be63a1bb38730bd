"""The messages of the control requests: LeaderAndIsr, UpdateMetadata and StopReplica.

Each function builds a message, or a part of one, from the controller's state. It changes nothing.
`control_requests.py` decides which broker is sent what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller.control_request_handlers import DELETED_LEADER, PROTOCOLS
from krust.controller.state import NO_TOPIC_ID, BrokerRequest, ControllerState
from krust.listeners import inter_broker_listener

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.controller.entities import Partition, Topic
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


def hosted_partitions(
    state: ControllerState, broker: int, moved: Mapping[str, Iterable[int]]
) -> list[LeaderAndIsrTopicState]:
    """The partitions of which the broker has a replica, by topic."""
    found: list[LeaderAndIsrTopicState] = []
    for name, indexes in moved.items():
        topic = state.topics[name]
        states = [
            leader_and_isr_partition(state, broker, index, topic.partitions[index])
            for index in indexes
            if broker in topic.partitions[index].replicas
        ]
        if states:
            topic_id = topic.id or NO_TOPIC_ID
            found.append({"topic_name": name, "topic_id": topic_id, "partition_states": states})
    return found


def leader_and_isr(
    state: ControllerState, broker: int, kind: int, topics: list[LeaderAndIsrTopicState]
) -> BrokerRequest:
    """LeaderAndIsr."""
    leaders = {each["leader"] for topic in topics for each in topic["partition_states"]}
    listener = inter_broker_listener(state.config.text)
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


def leader_and_isr_partition(
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


def update_metadata(
    state: ControllerState, broker: int, topics: list[UpdateMetadataTopicState], kind: int
) -> BrokerRequest:
    """UpdateMetadata; each one names all live brokers."""
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
    """The number of a security protocol; PLAINTEXT's for an unknown name."""
    return PROTOCOLS.index(protocol) if protocol in PROTOCOLS else 0


def topic_metadata(
    state: ControllerState, topic: Topic, indexes: Iterable[int]
) -> UpdateMetadataTopicState:
    """Partitions of a topic as UpdateMetadata has them."""
    partitions = [(index, topic.partitions[index]) for index in indexes]
    return {
        "topic_name": topic.name,
        "topic_id": topic.id or NO_TOPIC_ID,
        "partition_states": [
            metadata_partition(state, index, each, each.leader) for index, each in partitions
        ],
    }


def deleted_topic_metadata(state: ControllerState, name: str) -> Iterable[UpdateMetadataTopicState]:
    """A deleted topic as UpdateMetadata has it; nothing if it is no deleted topic."""
    deletion = state.deletions.get(name)
    if deletion is not None and name not in state.topics:
        states = [
            metadata_partition(state, index, each, DELETED_LEADER)
            for index, each in enumerate(deletion.partitions)
        ]
        topic_id = deletion.topic_id or NO_TOPIC_ID
        yield {"topic_name": name, "topic_id": topic_id, "partition_states": states}


def metadata_partition(
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


def stop_replica(
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
            {"partition_index": index, "leader_epoch": DELETED_LEADER, "delete_partition": True}
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
