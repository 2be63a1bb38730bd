"""Requests that brokers send the controller about the partitions they lead.

AlterPartition 0-3: the leader's new ISR. It is written if the broker leads the partition in the
    current leader epoch and knows the current partition epoch. A repeated request names an older
    one, finds its ISR there and is answered with it. The present ISR with the current partition
    epoch is written too, in a higher one: no copy of an earlier request can take effect any more,
    which a leader wants where a refused one may be on its way. Partitions are written in batches;
    each has its own result:

    41 NOT_CONTROLLER           the leader knows a newer state than this broker, or the epoch of a
                                member is newer than its registration here
    74 FENCED_LEADER_EPOCH      it leads in an older epoch
    95 INVALID_UPDATE_VERSION   it does not know the current state
    107 INELIGIBLE_REPLICA      a replica that is to join is dead, leaving or on a failed disk, or
                                the epoch of a member is older than its registration (KIP-903), or
                                it is about to leave the ISR, because it may have lost records;
                                55 OPERATION_NOT_ATTEMPTED up to v1. A copy of the request may be
                                written when the replica is back
    108 NEW_LEADER_ELECTED      it was written, and another leader was elected since; 74 up to v1

ControlledShutdown 0-3: the broker will stop. Other replicas in the ISR become the leaders of its
    partitions; then it leaves the ISR of those that it follows, so that acks=all does not wait for
    it. A partition without another replica in the ISR keeps its leader until the broker stops: it
    is in the answer, unless it has only that replica. The broker asks again later.
Version notes: AlterPartition v0-1 names topics, v2 ids, v3 brokers with their epochs (-1: the
leader, a Kafka in ZooKeeper mode, does not know it). ControlledShutdown v0-1 names no broker epoch:
it counts for the present registration, also when it arrives late, as in Kafka.
Source: KIP-497, KIP-841, KIP-903, KIP-966.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers
from krust.controller.controller_election import RetryLaterError
from krust.controller.leaders import ElectionMode, elect, elr_after
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import ControllerState, Decision, RefusedError, Request
from krust.errors import Code

if TYPE_CHECKING:
    from krust.controller.entities import Partition, Topic
    from krust.controller.state import Steps
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
    """The code that refuses this broker's requests; NONE: its epoch is that of its registration."""
    live = state.brokers.get(broker)
    if live is None:
        return Code.BROKER_ID_NOT_REGISTERED
    if epoch != -1 and live.epoch not in (-1, epoch):
        return Code.STALE_BROKER_EPOCH
    return Code.NONE


def alter_partition(
    state: ControllerState, request: Request[AlterPartitionRequest]
) -> Decision[AlterPartitionResponse]:
    """AlterPartition."""
    message = request.message
    broker = state.brokers.get(message["broker_id"])
    known = broker is not None and broker.epoch in (-1, message["broker_epoch"])
    code = Code.NONE if known else Code.STALE_BROKER_EPOCH
    topics: list[TopicData] = []
    batch: brokers.PartitionStateBatch[PartitionData] = brokers.PartitionStateBatch()
    pace = Pace()
    for asked in message["topics"] if code is Code.NONE else ():
        name = _name_of(state, request.version, asked)
        results: list[PartitionData] = []
        for each in asked["partitions"]:
            if batch.has(name, each["partition_index"]) or pace.add(BATCHED):
                yield from _write(state, batch)
                yield PAUSE
            results.append(_result(state, name, request, each, batch))
        topic: TopicData = {"partitions": results}
        if "topic_name" in asked:
            topic["topic_name"] = asked["topic_name"]
        if "topic_id" in asked:
            topic["topic_id"] = asked["topic_id"]
        topics.append(topic)
    yield from _write(state, batch)
    for asked, topic in zip(message["topics"], topics, strict=False):
        _supersede(state, _name_of(state, request.version, asked), request, topic)
    return {"throttle_time_ms": 0, "error_code": code, "topics": topics}


def _write(state: ControllerState, batch: brokers.PartitionStateBatch[PartitionData]) -> Steps:
    """Write a batch, and refuse the partitions that were not written."""
    for result, code in (yield from batch.write(state)):
        result |= _refused(result["partition_index"], code)


def _supersede(
    state: ControllerState, name: str, request: Request[AlterPartitionRequest], topic: TopicData
) -> None:
    """Tell the leader of partitions that have another leader since their ISR was written."""
    now = state.topics.get(name)
    for each in topic["partitions"] if now is not None else ():
        if now is None or each["error_code"] != Code.NONE:
            continue
        partition = now.partitions[each["partition_index"]]
        if partition.leader_epoch > each["leader_epoch"] != -1:
            is_new = request.version > 1
            code = Code.NEW_LEADER_ELECTED if is_new else Code.FENCED_LEADER_EPOCH
            each |= _refused(each["partition_index"], code)


def _result(
    state: ControllerState,
    name: str,
    request: Request[AlterPartitionRequest],
    asked: PartitionState,
    batch: brokers.PartitionStateBatch[PartitionData],
) -> PartitionData:
    """The result for one partition. A new ISR is added to the batch."""
    index = asked["partition_index"]
    topic = state.topics.get(name)
    if not name:
        return _refused(index, Code.UNKNOWN_TOPIC_ID)
    if topic is None or not 0 <= index < len(topic.partitions):
        return _refused(index, Code.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        altered = _altered(state, topic, request.message["broker_id"], asked)
    except RefusedError as refused:
        code = refused.code
        if code is Code.INELIGIBLE_REPLICA and request.version < 2:
            code = Code.OPERATION_NOT_ATTEMPTED
        return _refused(index, code)
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
) -> Decision[ControlledShutdownResponse]:
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
    """Give the partitions that the broker leads to other leaders, then take it out of the ISR of
    those that it follows; in slices.
    """
    for leads in (True, False):
        wanted: list[tuple[Topic, dict[int, Partition]]] = []
        pace = Pace()
        for topic in list(state.topics.values()):
            rules = brokers.leader_rules(state, topic)
            moved: dict[int, Partition] = {}
            for index, partition in enumerate(topic.partitions):
                led = partition
                if (partition.leader == broker) is leads and broker in partition.isr:
                    live = brokers.live_brokers(state, (topic.name, index))
                    led = elect(partition, live, ElectionMode.SHUTDOWN, rules)
                if led is not partition:
                    moved[index] = led
                if pace.add(BATCHED if led is not partition else 1):
                    more = [(topic, moved)] if moved else []
                    state.for_jobs.outdated |= yield from brokers.write_states(
                        state, [*wanted, *more]
                    )
                    wanted, moved = [], {}
                    yield PAUSE
            if moved:
                wanted.append((topic, moved))
        state.for_jobs.outdated |= yield from brokers.write_states(state, wanted)


def _name_of(state: ControllerState, version: int, asked: TopicState) -> str:
    """The name of a topic in AlterPartition; empty: there is no topic with this id."""
    name: str = asked["topic_name"] if version < 2 else state.names.get(asked["topic_id"], "")
    return name


def _altered(state: ControllerState, topic: Topic, broker: int, asked: PartitionState) -> Partition:
    """The partition with its new ISR; the same object if that is its ISR. Raises RefusedError."""
    index = asked["partition_index"]
    partition = topic.partitions[index]
    epochs = {
        each["broker_id"]: each["broker_epoch"] for each in asked.get("new_isr_with_epochs") or ()
    }
    isr = tuple(asked.get("new_isr") or epochs)
    if asked["leader_epoch"] > partition.leader_epoch:
        raise RefusedError(Code.NOT_CONTROLLER, "The leader epoch is newer than known here.")
    if asked["partition_epoch"] > partition.version:
        raise RefusedError(Code.NOT_CONTROLLER, "The partition epoch is newer than known here.")
    if asked["leader_epoch"] < partition.leader_epoch:
        raise RefusedError(Code.FENCED_LEADER_EPOCH, "The leader epoch is an older one.")
    members = set(isr)
    if partition.leader != broker or broker not in members or len(members) < len(isr):
        raise RefusedError(Code.INVALID_REQUEST, "This broker does not lead, or that is no ISR.")
    if not members <= set(partition.replicas) or asked.get("leader_recovery_state", 0):
        raise RefusedError(Code.INVALID_REQUEST, "That is no ISR of this partition.")
    if asked["partition_epoch"] < partition.version:
        if members == set(partition.isr):
            return partition
        raise RefusedError(Code.INVALID_UPDATE_VERSION, "The partition epoch is an older one.")
    ahead = [epoch - _epoch_of(state, each, epoch) for each, epoch in epochs.items()]
    if any(each > 0 for each in ahead):
        raise RefusedError(Code.NOT_CONTROLLER, "A broker epoch is newer than known here.")
    offline = state.offline.brokers_of((topic.name, index))
    joining = members - set(partition.isr)
    able = state.brokers.keys() - state.leaving - offline
    lossy = state.returned.lossy_of((topic.name, index))
    if not joining <= able or any(ahead) or members & lossy:
        raise RefusedError(Code.INELIGIBLE_REPLICA, "A replica cannot be in the ISR now.")
    live, rules = (
        brokers.live_brokers(state, (topic.name, index)),
        brokers.leader_rules(state, topic),
    )
    elr = elr_after(partition, broker, isr, live, rules)
    return partition._replace(isr=isr, version=partition.version + 1, elr=elr)


def _epoch_of(state: ControllerState, broker: int, named: int) -> int:
    """The epoch of a broker's registration; the one that is named if either is unknown."""
    live = state.brokers.get(broker)
    return named if live is None or -1 in (named, live.epoch) else live.epoch
