"""AlterPartitionReassignments 0-1, ListPartitionReassignments 0: other replicas for partitions.

Replicas in another order are written at once, all those of a topic in one transaction. A move to a
broker without a copy needs replication, which krust does not have: INVALID_REPLICA_ASSIGNMENT with
the reason. A reassignment that a Kafka controller left unfinished is listed and kept as it is; it
cannot be cancelled here. Other partitions have none to cancel: NO_REASSIGNMENT_IN_PROGRESS.
Version notes: v1 may forbid another replication factor, which no allowed change has.
Source: KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import RefusedError
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.store import SetData

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from krust.controller.state import (
        ControllerState,
        Policy,
        Request,
        Topic,
        Transactions,
    )
    from krust.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )
    from krust.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )
    from krust.metadata.store import Done

Replicas = tuple[int, ...]


def alter(
    state: ControllerState, request: Request[AlterPartitionReassignmentsRequest]
) -> Policy[AlterPartitionReassignmentsResponse]:
    """AlterPartitionReassignments."""
    responses: list[ReassignableTopicResponse] = []
    pace = Pace()
    for asked in request.message["topics"]:
        name = asked["name"]
        results: dict[int, ReassignablePartitionResponse] = {}
        wanted: dict[int, Replicas] = {}
        for each in asked["partitions"]:
            index = each["partition_index"]
            result: ReassignablePartitionResponse = {
                "partition_index": index,
                "error_code": 0,
                "error_message": None,
            }
            if index in results:
                continue
            results[index] = result
            try:
                wanted[index] = _checked(state.topics.get(name), index, each["replicas"])
            except RefusedError as refused:
                result |= {"error_code": refused.code, "error_message": str(refused)}
            if pace.is_over():
                yield PAUSE
        why = (yield from reorder(state, name, wanted)) if wanted else None
        if why is not None:
            for index in wanted:
                results[index] |= {"error_code": why.code, "error_message": str(why)}
        if pace.is_over(BATCHED):
            yield PAUSE
        responses.append({"name": name, "partitions": list(results.values())})
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "responses": responses,
    }


def list_ongoing(
    state: ControllerState, request: Request[ListPartitionReassignmentsRequest]
) -> Policy[ListPartitionReassignmentsResponse]:
    """ListPartitionReassignments. A topic that is named twice is answered once."""
    asked = request.message["topics"]
    wanted: dict[str, Sequence[int] | None] = dict.fromkeys(state.topics)
    if asked is not None:
        wanted = {}
        for each in asked:
            wanted.setdefault(each["name"], each["partition_indexes"])
    pace = Pace()
    topics: list[OngoingTopicReassignment] = []
    for name, indexes in wanted.items():
        topic = state.topics.get(name)
        ongoing: list[OngoingPartitionReassignment] = []
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            is_moving = partition.adding or partition.removing
            if is_moving and (indexes is None or index in indexes):
                ongoing.append(
                    {
                        "partition_index": index,
                        "replicas": list(partition.replicas),
                        "adding_replicas": list(partition.adding),
                        "removing_replicas": list(partition.removing),
                    }
                )
            if pace.is_over():
                yield PAUSE
        if ongoing:
            topics.append({"name": name, "partitions": ongoing})
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "topics": topics,
    }


def _checked(topic: Topic | None, index: int, wanted: Sequence[int] | None) -> Replicas:
    """The new replicas of a partition. RefusedError: it keeps those that it has."""
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    partition = topic.partitions[index]
    is_moving = partition.adding or partition.removing
    if wanted is None and not is_moving:
        text = "The partition is not being reassigned."
        raise RefusedError(Code.NO_REASSIGNMENT_IN_PROGRESS, text)
    if wanted is None or is_moving:
        text = "A reassignment is under way. To end it needs replication, which is not there yet."
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    replicas = tuple(wanted)
    if not replicas or len(set(replicas)) < len(replicas) or min(replicas) < 0:
        text = "Replicas are brokers, one at least, each once."
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    if sorted(replicas) != sorted(partition.replicas):
        text = (
            f"From {list(partition.replicas)} to {list(replicas)} data has to move: "
            "that is not there yet."
        )
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    return replicas


def reorder(
    state: ControllerState, name: str, wanted: Mapping[int, Replicas]
) -> Generator[Transactions, list[Done], RefusedError | None]:
    """Write replicas of a topic's partitions in another order. Returns why not, if refused."""
    topic = state.topics.get(name)
    if topic is None:
        return RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted meanwhile.")
    altered = _reordered(topic, wanted)
    if altered.partitions == topic.partitions:
        return None
    data = altered.assignment().encode()
    (done,) = yield [[state.fence(), SetData(znodes.topic(name), data, topic.version)]]
    if done.refused is not None:
        return RefusedError(Code.NOT_CONTROLLER, f"meanwhile changed: {done.refused.value}")
    now = state.current_topic(name, topic.id)
    if now is not None and now.version == topic.version:
        state.put(_reordered(now, wanted)._replace(version=topic.version + 1))
    return None


def _reordered(topic: Topic, wanted: Mapping[int, Replicas]) -> Topic:
    """The topic with these replicas."""
    partitions = list(topic.partitions)
    for index, replicas in wanted.items():
        partitions[index] = partitions[index]._replace(replicas=replicas)
    return topic._replace(partitions=tuple(partitions))


def refusal(topic: Topic | None, index: int, replicas: Replicas) -> RefusedError | None:
    """Why a partition cannot have these replicas; None: it can."""
    try:
        _checked(topic, index, replicas)
    except RefusedError as refused:
        return refused
    return None
