"""AlterPartitionReassignments 0-1, ListPartitionReassignments 0: partitions on their way to others.

Replicas in another order are written at once. A move to a broker that has no copy is refused with
INVALID_REPLICA_ASSIGNMENT and the reason: it needs replication, which is not there. So nothing is
ever on its way: the list is empty, and there is nothing to give up (NO_REASSIGNMENT_IN_PROGRESS).
Version notes: v1 may forbid another number of replicas; there is none that could be had.
Source: KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller.pace import PAUSE, WRITE, Pace
from krust.controller.state import RefusedError
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import Assignment
from krust.metadata.store import SetData

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from krust.controller.state import Asked, Message, Policy, Request, State, Topic
    from krust.metadata.store import Done


def alter(state: State, request: Request) -> Policy:
    """AlterPartitionReassignments."""
    responses: list[Message] = []
    pace = Pace()
    for asked in request.message["topics"]:
        found: list[Message] = []
        if pace.is_over():
            yield PAUSE
        for each in asked["partitions"]:
            if pace.is_over():
                yield PAUSE
            index = each["partition_index"]
            result: Message = {"partition_index": index, "error_code": 0, "error_message": None}
            try:
                yield from _alter_one(state, (asked["name"], index), each["replicas"])
                if pace.is_over(WRITE):
                    yield PAUSE
            except RefusedError as refused:
                result |= {"error_code": refused.code, "error_message": str(refused)}
            found.append(result)
        responses.append({"name": asked["name"], "partitions": found})
    facts = {"throttle_time_ms": 0, "error_code": Code.NONE, "error_message": None}
    return {**facts, "responses": responses}


def list_ongoing(_state: State, _request: Request) -> Policy:
    """ListPartitionReassignments."""
    yield from ()
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "topics": [],
    }


def _alter_one(
    state: State, place: tuple[str, int], wanted: Sequence[int] | None
) -> Generator[Asked, list[Done], None]:
    """Give one partition other replicas; RefusedError: it keeps those that it has."""
    name, index = place
    topic = state.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if wanted is None:
        raise RefusedError(Code.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not on its way.")
    replicas = tuple(wanted)
    if not replicas or len(set(replicas)) < len(replicas) or min(replicas) < 0:
        raise RefusedError(
            Code.INVALID_REPLICA_ASSIGNMENT, "Replicas are brokers, one at least, each once."
        )
    why = yield from reorder(state, topic, index, replicas)
    if why is not None:
        raise why


def reorder(
    state: State, topic: Topic, index: int, replicas: tuple[int, ...]
) -> Generator[Asked, list[Done], RefusedError | None]:
    """Write the replicas of a partition in this order; why not, where that is refused."""
    had = topic.partitions[index].replicas
    if replicas == had:
        return None
    if sorted(replicas) != sorted(had):
        text = f"From {list(had)} to {list(replicas)} data has to move: that is not there yet."
        return RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    partitions = list(topic.partitions)
    partitions[index] = partitions[index]._replace(replicas=replicas)
    data = Assignment(tuple(each.replicas for each in partitions), topic.id).encode()
    (done,) = yield [[state.fence(), SetData(znodes.topic(topic.name), data, topic.version)]]
    if done.refused is not None:
        return RefusedError(Code.NOT_CONTROLLER, f"meanwhile changed: {done.refused.value}")
    now = state.knows(topic.name, topic.id)
    if now is not None and now.version == topic.version:
        partitions = list(now.partitions)
        partitions[index] = partitions[index]._replace(replicas=replicas)
        state.put(now._replace(partitions=tuple(partitions), version=topic.version + 1))
    return None
