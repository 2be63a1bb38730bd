"""Topic deletion where several brokers have replicas.

The node `/admin/delete_topics/T` marks topic T for deletion. DeleteTopics writes only this node; a
tool may write it too. From then on T is a deletion (`ControllerState.deletions`) and not a topic:
no broker serves it, and its name stays taken. The controller sends StopReplica to each broker with
replicas. It waits for all of them, also for dead ones, however long that takes. Then it deletes the
topic's znodes, the mark last, so that a new controller can continue the deletion.
Not promised: that a broker deletes its files if it never comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.controller.controller_election import RetryLaterError
from krust.controller.entities import Topic, TopicDeletion
from krust.controller.state import ControllerState, chunks, write_all
from krust.metadata import znodes
from krust.metadata.store import Children, Create, Delete, Exists, Operation, Refusal, Stat

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.state import Steps, Transactions
    from krust.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
    from krust.metadata.store import MultiResult

_PARTITION_ZNODES = ("/state", "")


def mark(
    state: ControllerState, topics: list[Topic]
) -> Generator[Transactions, list[MultiResult], list[Refusal | None]]:
    """Mark topics for deletion. Returns the reason of each failure; None: the topic is marked."""
    marks = [Create(f"{znodes.DELETE_TOPICS}/{topic.name}") for topic in topics]
    refused = yield from write_all([[[state.fence(), each]] for each in marks])
    for topic, reason in zip(topics, refused, strict=True):
        if reason in (None, Refusal.NODE_EXISTS):
            begin(state, topic.name)
    return [None if each is Refusal.NODE_EXISTS else each for each in refused]


def begin(state: ControllerState, name: str) -> None:
    """Begin the deletion of a marked topic: it is no longer served."""
    topic = state.topics.get(name)
    if topic is not None:
        brokers = {each for partition in topic.partitions for each in partition.replicas}
        state.drop(name)
        waiting = brokers - {state.node_id}
        state.deletions[name] = TopicDeletion(topic.id, topic.partitions, waiting)


def read_marks(state: ControllerState) -> Steps:
    """Read the marks that tools and earlier controllers wrote."""
    path = znodes.DELETE_TOPICS
    (read,) = yield [[Children(path, watch=True)]]
    names = store_reads.children(path, read.results[0])
    allowed = state.broker_text("delete.topic.enable") != "false"
    for name in names:
        if name in state.deletions:
            continue
        if name in state.topics and allowed:
            begin(state, name)
        elif name in state.topics or name in state.damaged:
            why = "the topic cannot be read" if allowed else "delete.topic.enable is false"
            state.fault(f"{path}/{name}", why)
            yield [[state.fence(), Delete(f"{path}/{name}")]]
        else:
            state.deletions[name] = TopicDeletion("", (), set())


def replica_stopped(
    state: ControllerState, broker: int, asked: StopReplicaRequest, answer: StopReplicaResponse
) -> None:
    """Take a broker's answer to StopReplica. The deletion still waits for refused replicas."""
    failed = {each["topic_name"] for each in answer["partition_errors"] if each["error_code"] != 0}
    if answer["error_code"] != 0:
        return
    for topic in asked.get("topic_states", ()):
        deletion = state.deletions.get(topic["topic_name"])
        if deletion is not None and topic["topic_name"] not in failed:
            deletion.waiting.discard(broker)


def delete_znodes(state: ControllerState) -> Steps:
    """Delete the znodes of topics without replicas. RetryLaterError: the store refused."""
    done = [name for name, deletion in state.deletions.items() if not deletion.waiting]
    for name in done:
        operations = yield from _remaining_deletes(name)
        refused = yield from write_all([chunks(state.fence(), operations)])
        if refused[0] not in (None, Refusal.NO_NODE, Refusal.NOT_EMPTY):
            raise RetryLaterError(f"topic {name} cannot be deleted: {refused[0].value}")
        if refused[0] is None:
            state.deletions.pop(name, None)


def _remaining_deletes(name: str) -> Generator[Transactions, list[MultiResult], list[Operation]]:
    """The operations that delete the existing znodes of a topic, the mark last."""
    path = znodes.topic(name)
    above = f"{path}/partitions"
    (read,) = yield [[Children(above)]]
    indexes = read.results[0]
    parts: list[str] = []
    if indexes is not Refusal.NO_NODE:
        parts = [
            f"{above}/{index}{part}"
            for index in store_reads.children(above, indexes)
            for part in _PARTITION_ZNODES
        ]
    mark = f"{znodes.DELETE_TOPICS}/{name}"
    paths = [*parts, above, path, znodes.topic_config(name), mark]
    seen = yield from store_reads.read_many(map(Exists, paths))
    for stat in seen:
        if isinstance(stat, Refusal) and stat is not Refusal.NO_NODE:
            raise RetryLaterError(f"topic {name} cannot be deleted: {stat.value}")
    return [Delete(each) for each, stat in zip(paths, seen, strict=True) if isinstance(stat, Stat)]
