"""What brokers ask the controller about the partitions they lead.

AlterPartition 0-3: the leader's new ISR. It is written if the broker leads the partition in the
    current leader epoch and knows the current partition epoch. Partitions are written in batches;
    each has its own result.
ControlledShutdown 0-3: the broker will stop. Other replicas in the ISR become the leaders of its
    partitions, in batches. A partition without another replica in the ISR keeps its leader until
    the broker stops. Partitions of one replica are not reported as remaining: no broker waits for
    them.
Version notes: AlterPartition v0-1 names topics, v2 ids, v3 brokers with their epochs.
Source: KIP-497, KIP-903, KIP-841.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers
from krust.controller.controller_election import RetryLaterError
from krust.controller.leaders import ElectionMode, LiveBrokers, elect
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import ControllerState, Policy, RefusedError, Request, Topic
from krust.errors import Code

if TYPE_CHECKING:
    from krust.controller.state import Partition, Steps
    from krust.messages.alter_partition import (
        AlterPartitionRequest,
        AlterPartitionResponse,
        PartitionData,
        PartitionState,
        TopicData,
        TopicState,
    )
    from krust.messages.controlled_shutdown import (
        ControlledShutdownRequest,
        ControlledShutdownResponse,
        RemainingPartition,
    )


def refused_broker(state: ControllerState, broker: int, epoch: int) -> Code:
    """Why a broker is not listened to; NONE: it is who it says."""
    live = state.brokers.get(broker)
    if live is None:
        return Code.BROKER_ID_NOT_REGISTERED
    if epoch != -1 and live.epoch not in (-1, epoch):
        return Code.STALE_BROKER_EPOCH
    return Code.NONE


def alter_partition(
    state: ControllerState, request: Request[AlterPartitionRequest]
) -> Policy[AlterPartitionResponse]:
    """AlterPartition."""
    message = request.message
    broker = message["broker_id"]
    code = refused_broker(state, broker, message.get("broker_epoch", -1))
    topics: list[TopicData] = []
    batch: brokers.Batch[PartitionData] = brokers.Batch()
    pace = Pace()
    for asked in message["topics"] if code is Code.NONE else ():
        name = _name_of(state, request.version, asked)
        results: list[PartitionData] = []
        for each in asked["partitions"]:
            if batch.has(name, each["partition_index"]) or pace.is_over(BATCHED):
                yield from _write(state, batch)
                yield PAUSE
            results.append(_result(state, name, broker, each, batch))
        topic: TopicData = {"partitions": results}
        if "topic_name" in asked:
            topic["topic_name"] = asked["topic_name"]
        if "topic_id" in asked:
            topic["topic_id"] = asked["topic_id"]
        topics.append(topic)
    yield from _write(state, batch)
    return {"throttle_time_ms": 0, "error_code": code, "topics": topics}


def _write(state: ControllerState, batch: brokers.Batch[PartitionData]) -> Steps:
    """Write a batch, and refuse the partitions that were not written."""
    for result in (yield from batch.write(state)):
        result |= _refused(result["partition_index"], Code.NOT_CONTROLLER)


def _result(
    state: ControllerState,
    name: str,
    broker: int,
    asked: PartitionState,
    batch: brokers.Batch[PartitionData],
) -> PartitionData:
    """The result for one partition. A new ISR is added to the batch."""
    index = asked["partition_index"]
    topic = state.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return _refused(index, Code.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        altered = _altered(state, topic.partitions[index], broker, asked)
    except RefusedError as refused:
        return _refused(index, refused.code)
    result: PartitionData = {
        "partition_index": index,
        "error_code": Code.NONE,
        "leader_id": altered.leader,
        "leader_epoch": altered.leader_epoch,
        "isr": list(altered.isr),
        "leader_recovery_state": 0,
        "partition_epoch": altered.version,
    }
    if altered is not topic.partitions[index]:
        batch.add(topic, index, altered, result)
    return result


def _refused(index: int, code: Code) -> PartitionData:
    """The result for a partition that keeps its ISR. Other fields have Kafka's defaults."""
    return {
        "partition_index": index,
        "error_code": code,
        "leader_id": 0,
        "leader_epoch": 0,
        "isr": [],
        "leader_recovery_state": 0,
        "partition_epoch": 0,
    }


def controlled_shutdown(
    state: ControllerState, request: Request[ControlledShutdownRequest]
) -> Policy[ControlledShutdownResponse]:
    """ControlledShutdown."""
    broker = request.message["broker_id"]
    code = refused_broker(state, broker, request.message.get("broker_epoch", -1))
    if code is Code.NONE:
        state.leaving.add(broker)
        try:
            yield from _hand_over(state, broker)
        except RetryLaterError:
            code = Code.NOT_CONTROLLER
    remaining: list[RemainingPartition] = [
        {"topic_name": topic.name, "partition_index": index}
        for topic in state.topics.values()
        for index, each in enumerate(topic.partitions)
        if code is Code.NONE and each.leader == broker and len(each.replicas) > 1
    ]
    return {"error_code": code, "remaining_partitions": remaining}


def _hand_over(state: ControllerState, broker: int) -> Steps:
    """Give the partitions that the broker leads to other leaders, in slices."""
    live = LiveBrokers(state.brokers.keys(), state.leaving)
    wanted: list[tuple[Topic, dict[int, Partition]]] = []
    pace = Pace()
    for topic in list(state.topics.values()):
        moved: dict[int, Partition] = {}
        for index, partition in enumerate(topic.partitions):
            led = partition
            if partition.leader == broker:
                led = elect(partition, live, ElectionMode.SHUTDOWN)
            if led is not partition:
                moved[index] = led
            if pace.is_over(BATCHED if led is not partition else 1):
                yield from brokers.write(state, [*wanted, *([(topic, moved)] if moved else [])])
                wanted, moved = [], {}
                yield PAUSE
        if moved:
            wanted.append((topic, moved))
    yield from brokers.write(state, wanted)


def _name_of(state: ControllerState, version: int, asked: TopicState) -> str:
    """The name of a topic in AlterPartition; empty: there is no topic with this id."""
    name: str = asked["topic_name"] if version < 2 else state.names.get(asked["topic_id"], "")
    return name


def _altered(
    state: ControllerState, partition: Partition, broker: int, asked: PartitionState
) -> Partition:
    """The partition with its new ISR; the same object if that is its ISR. Raises RefusedError."""
    isr = asked.get("new_isr") or [
        each["broker_id"] for each in asked.get("new_isr_with_epochs") or ()
    ]
    if asked["leader_epoch"] > partition.leader_epoch:
        raise RefusedError(Code.NOT_CONTROLLER, "The leader epoch is newer than known here.")
    if asked["leader_epoch"] < partition.leader_epoch:
        raise RefusedError(Code.FENCED_LEADER_EPOCH, "The leader epoch is an older one.")
    if partition.leader != broker or broker not in isr or not set(isr) <= set(partition.replicas):
        raise RefusedError(Code.INVALID_REQUEST, "This broker does not lead, or that is no ISR.")
    if asked["partition_epoch"] > partition.version:
        raise RefusedError(Code.NOT_CONTROLLER, "The partition epoch is newer than known here.")
    if tuple(isr) == partition.isr:
        return partition
    if asked["partition_epoch"] < partition.version:
        raise RefusedError(Code.INVALID_UPDATE_VERSION, "The partition epoch is an older one.")
    for each in asked.get("new_isr_with_epochs") or ():
        if refused_broker(state, each["broker_id"], each["broker_epoch"]) is not Code.NONE:
            raise RefusedError(Code.INELIGIBLE_REPLICA, "A replica is not alive, or another.")
    if not set(isr) - set(partition.isr) <= state.brokers.keys():
        raise RefusedError(Code.INELIGIBLE_REPLICA, "A replica is not alive.")
    return partition._replace(isr=tuple(isr), version=partition.version + 1)
