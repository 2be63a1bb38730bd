"""What brokers ask the controller about the partitions they lead.

AlterPartition 0-3: the leader's new ISR, written if leader, leader epoch and partition epoch are
    still those it knows. Each partition for itself.
ControlledShutdown 0-3: the broker will stop; another replica in the ISR leads what it led. What
    nobody else can lead stays, and goes without a leader when the broker does: so it is with every
    partition of one replica, and that is no reason to make a broker wait.
Version notes: AlterPartition v0-1 names topics, v2 ids, v3 brokers with their epochs.
Source: KIP-497, KIP-903, KIP-841.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers
from krust.controller.leaders import ElectionMode, LiveBrokers, elect
from krust.controller.office import AwayError
from krust.controller.state import Message, Policy, RefusedError, Request, State, Topic
from krust.errors import Code

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.state import Asked, Partition
    from krust.metadata.store import Done


def refused_broker(state: State, broker: int, epoch: int) -> Code:
    """Why a broker is not listened to; NONE: it is who it says."""
    live = state.brokers.get(broker)
    if live is None:
        return Code.BROKER_ID_NOT_REGISTERED
    if epoch != -1 and live.epoch not in (-1, epoch):
        return Code.STALE_BROKER_EPOCH
    return Code.NONE


def alter_partition(state: State, request: Request) -> Policy:
    """AlterPartition."""
    message = request.message
    broker = message["broker_id"]
    code = refused_broker(state, broker, message.get("broker_epoch", -1))
    topics: list[Message] = []
    for asked in message["topics"] if code is Code.NONE else ():
        topic = _named(state, request.version, asked)
        results = []
        for each in asked["partitions"]:
            index = each["partition_index"]
            try:
                now = yield from _alter(state, topic, broker, each)
            except RefusedError as refused:
                results.append({"partition_index": index, "error_code": refused.code})
                continue
            results.append(
                {
                    "partition_index": index,
                    "error_code": Code.NONE,
                    "leader_id": now.leader,
                    "leader_epoch": now.leader_epoch,
                    "isr": list(now.isr),
                    "leader_recovery_state": 0,
                    "partition_epoch": now.version,
                }
            )
        facts = {key: asked[key] for key in ("topic_name", "topic_id") if key in asked}
        topics.append({**facts, "partitions": results})
    return {"throttle_time_ms": 0, "error_code": code, "topics": topics}


def controlled_shutdown(state: State, request: Request) -> Policy:
    """ControlledShutdown."""
    broker = request.message["broker_id"]
    code = refused_broker(state, broker, request.message.get("broker_epoch", -1))
    if code is Code.NONE:
        state.leaving.add(broker)
        try:
            yield from brokers.write(state, _handed_over(state, broker))
        except AwayError:
            code = Code.NOT_CONTROLLER
    remaining = [
        {"topic_name": topic.name, "partition_index": index}
        for topic in state.topics.values()
        for index, each in enumerate(topic.partitions)
        if code is Code.NONE and each.leader == broker and len(each.replicas) > 1
    ]
    return {"error_code": code, "remaining_partitions": remaining}


def _handed_over(state: State, broker: int) -> list[tuple[Topic, dict[int, Partition]]]:
    """What the broker leads and another could."""
    wanted = []
    live = LiveBrokers(state.brokers.keys(), state.leaving)
    for topic in state.topics.values():
        moves = {}
        for index, partition in enumerate(topic.partitions):
            if partition.leader != broker:
                continue
            led = elect(partition, live, ElectionMode.SHUTDOWN)
            if led is not partition:
                moves[index] = led
        if moves:
            wanted.append((topic, moves))
    return wanted


def _named(state: State, version: int, asked: Message) -> Topic | None:
    name = asked["topic_name"] if version < 2 else state.names.get(asked["topic_id"], "")
    return state.topics.get(name)


def _alter(
    state: State, topic: Topic | None, broker: int, asked: Message
) -> Generator[Asked, list[Done], Partition]:
    """Write one ISR; the partition as it is then. RefusedError: it stays."""
    index = asked["partition_index"]
    now = state.knows(topic.name, topic.id) if topic is not None else None
    if now is None or not 0 <= index < len(now.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    partition = now.partitions[index]
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
    other = partition._replace(isr=tuple(isr), version=partition.version + 1)
    try:
        unsure = yield from brokers.write(state, [(now, {index: other})])
    except AwayError:
        unsure = {now.name}
    if unsure:
        raise RefusedError(Code.NOT_CONTROLLER, "the partition or the controller changed meanwhile")
    return other
