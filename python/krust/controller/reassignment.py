"""AlterPartitionReassignments 0-1, ListPartitionReassignments 0: new replicas for partitions.

The tree holds each step of a reassignment, so that any controller can continue it:

1. The topic's znode gets old and new replicas, with those to add and those to remove. That ends the
   request. Replicas that an earlier reassignment was adding and this one does not want leave the
   ISR in the same transaction.
2. The leader gets a new epoch with the new replicas, which fetch and join the ISR.
3. When all replicas that stay are in the ISR, one transaction moves the leader if it has to go,
   takes the others out of the ISR, and writes the final replicas into the topic's znode.
4. Removed replicas are sent StopReplica, which deletes their files (`control_requests.py`).

The job `moves` (`jobs.py`) does steps 2 and 3, in slices. Null as the target cancels: the partition
gets its earlier replicas. A reassignment whose new replicas have no data to copy ends at once. A
cancel or another target is refused if it would leave fewer than min.insync.replicas in the ISR,
while there are enough now.
Version notes: v1 may forbid another replication factor.
Source: KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers
from krust.controller.leaders import ElectionMode, elect, in_new_epoch
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import RefusedError, chunks, write_all
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.store import SetData
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from krust.controller.entities import Partition, Topic
    from krust.controller.state import ControllerState, Decision, Request, Steps, Transactions
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
    from krust.metadata.store import MultiResult, Operation

Replicas = tuple[int, ...]

JOB = "moves"
_PARTITIONS_PER_WRITE = 40
"""partitions whose replicas are changed together"""


class AnnouncedPartition(NamedTuple):
    """A partition whose leader has got the new replicas in this term."""

    topic_id: str
    partition: int
    replicas: Replicas


class ReassignmentRefusal(NamedTuple):
    """Why a partition is not reassigned. No exception, because each would keep a traceback."""

    code: Code
    text: str


def alter(
    state: ControllerState, request: Request[AlterPartitionReassignmentsRequest]
) -> Decision[AlterPartitionReassignmentsResponse]:
    """AlterPartitionReassignments. A topic that is named twice is answered once, as in Kafka."""
    answers: dict[str, dict[int, ReassignablePartitionResponse]] = {}
    same_factor = not request.message.get("allow_replication_factor_change", True)
    pace = Pace()
    for asked in request.message["topics"]:
        name = asked["name"]
        results = answers.setdefault(name, {})
        wanted: dict[int, Replicas | None] = {}
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
            replicas = each["replicas"]
            wanted[index] = None if replicas is None else tuple(replicas)
            if pace.add():
                yield PAUSE
        refused = yield from begin(state, name, wanted, same_factor=same_factor)
        for index, why in refused.items():
            results[index] |= {"error_code": why.code, "error_message": why.text}
        if pace.add(BATCHED):
            yield PAUSE
    responses: list[ReassignableTopicResponse] = [
        {"name": name, "partitions": list(results.values())} for name, results in answers.items()
    ]
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "responses": responses,
    }


def list_ongoing(
    state: ControllerState, request: Request[ListPartitionReassignmentsRequest]
) -> Decision[ListPartitionReassignmentsResponse]:
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
            if partition.is_moving and (indexes is None or index in indexes):
                ongoing.append(
                    {
                        "partition_index": index,
                        "replicas": list(partition.replicas),
                        "adding_replicas": list(partition.adding),
                        "removing_replicas": list(partition.removing),
                    }
                )
            if pace.add():
                yield PAUSE
        if ongoing:
            topics.append({"name": name, "partitions": ongoing})
    return {
        "throttle_time_ms": 0,
        "error_code": Code.NONE,
        "error_message": None,
        "topics": topics,
    }


def begin(
    state: ControllerState,
    name: str,
    wanted: Mapping[int, Replicas | None],
    *,
    same_factor: bool = False,
) -> Generator[Transactions, list[MultiResult], dict[int, ReassignmentRefusal]]:
    """Begin the reassignments of partitions of a topic, in slices. Returns those that are refused.

    wanted       the target replicas of each; None: those from before its reassignment
    same_factor  refuse another number of replicas
    """
    refused: dict[int, ReassignmentRefusal] = {}
    indexes = list(wanted)
    for first in range(0, len(indexes), _PARTITIONS_PER_WRITE):
        if first:
            yield PAUSE
        topic = state.topics.get(name)
        begun: dict[int, Partition] = {}
        for index in indexes[first : first + _PARTITIONS_PER_WRITE]:
            try:
                partition = _begun(state, topic, index, wanted[index], same_factor=same_factor)
            except RefusedError as why:
                refused[index] = ReassignmentRefusal(why.code, str(why))
            else:
                begun[index] = partition
        if topic is not None and begun and not (yield from _write(state, topic, begun)):
            text = "The topic or the controller changed meanwhile."
            refused |= dict.fromkeys(begun, ReassignmentRefusal(Code.NOT_CONTROLLER, text))
    if len(refused) < len(wanted):
        state.for_jobs.wanted.add(JOB)
    return refused


def continue_moves(state: ControllerState, announced: set[AnnouncedPartition]) -> Steps:
    """Announce new replicas; end reassignments whose replicas are all in the ISR; in slices.

    announced  the partitions that this controller has announced; updated here
    """
    ongoing: set[AnnouncedPartition] = set()
    pace = Pace()
    for name in list(state.topics):
        topic = state.topics.get(name)
        epochs: dict[int, Partition] = {}
        ended: dict[int, Partition] = {}
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            if topic is not None and partition.is_moving:
                move = AnnouncedPartition(topic.id, index, partition.replicas)
                has_state = partition.version >= 0  # its first leader learns all replicas
                done = _ended(state, topic, index) if has_state else None
                if done is not None:
                    ended[index] = done
                elif has_state and move not in announced:
                    epochs[index] = in_new_epoch(partition)
                ongoing.add(move)
            if topic is not None and len(epochs) + len(ended) >= _PARTITIONS_PER_WRITE:
                ongoing -= yield from _step(state, topic, epochs, ended)
                epochs, ended = {}, {}
                yield PAUSE
            elif pace.add():
                yield PAUSE
        if topic is not None and (epochs or ended):
            ongoing -= yield from _step(state, topic, epochs, ended)
    announced.clear()
    announced |= ongoing


def _step(
    state: ControllerState,
    topic: Topic,
    epochs: dict[int, Partition],
    ended: dict[int, Partition],
) -> Generator[Transactions, list[MultiResult], set[AnnouncedPartition]]:
    """Write one slice of a topic. Returns those that are not announced, because others changed them
    meanwhile; the next run announces them.
    """
    outdated = yield from brokers.write_states(state, [(topic, epochs)] if epochs else [])
    state.for_jobs.outdated |= outdated
    if ended:
        yield from _write(state, topic, ended)
    failed = epochs if outdated else {}
    return {AnnouncedPartition(topic.id, index, each.replicas) for index, each in failed.items()}


def _begun(
    state: ControllerState,
    topic: Topic | None,
    index: int,
    wanted: Replicas | None,
    *,
    same_factor: bool,
) -> Partition:
    """The partition with a reassignment under way. RefusedError: it keeps what it has."""
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    partition = topic.partitions[index]
    before = tuple(each for each in partition.replicas if each not in partition.adding)
    if wanted is None:
        if not partition.is_moving:
            text = "The partition is not being reassigned."
            raise RefusedError(Code.NO_REASSIGNMENT_IN_PROGRESS, text)
        wanted = before
    if not wanted or len(set(wanted)) < len(wanted) or min(wanted) < 0:
        text = "Replicas are brokers, one at least, each once."
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    if same_factor and len(wanted) != len(before):
        text = f"The partition has {len(before)} replicas, not {len(wanted)}."
        raise RefusedError(Code.INVALID_REPLICATION_FACTOR, text)
    adding = tuple(each for each in wanted if each not in before)
    dead = [each for each in adding if each not in state.brokers]
    if dead:
        text = f"Replica assignment has brokers that are not alive: {dead}."
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    removing = tuple(each for each in before if each not in wanted)
    replicas = (*wanted, *removing)
    dropped = set(partition.replicas) - set(replicas)
    if dropped:
        partition = _without(state, topic, index, dropped)
    return partition._replace(replicas=replicas, adding=adding, removing=removing)


def _without(state: ControllerState, topic: Topic, index: int, dropped: set[int]) -> Partition:
    """The partition with another leader and ISR, without replicas that are `dropped`."""
    partition, rules = topic.partitions[index], brokers.leader_rules(state, topic)
    isr = tuple(each for each in partition.isr if each not in dropped)
    enough = min(rules.min_isr, len(partition.isr))
    only = partition._replace(removing=tuple(dropped))
    live = brokers.live_brokers(state, (topic.name, index))
    led = elect(only, live, ElectionMode.REASSIGNED, rules)
    if len(isr) < enough or led.leader in dropped:
        text = "Too few of the replicas that stay are in sync."
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, text)
    return _in_one_epoch(partition, led.leader, isr)


def _ended(state: ControllerState, topic: Topic, index: int) -> Partition | None:
    """The partition after its reassignment; None: replicas that stay are not in the ISR yet."""
    partition = topic.partitions[index]
    target = partition.target
    if not set(target) <= set(partition.isr) or partition.leader not in state.brokers:
        return None
    live = brokers.live_brokers(state, (topic.name, index))
    led = elect(partition, live, ElectionMode.REASSIGNED, brokers.leader_rules(state, topic))
    if led.leader in partition.removing:
        return None
    isr = tuple(each for each in partition.isr if each in target)
    ended = _in_one_epoch(partition, led.leader, isr)
    return ended._replace(replicas=target, adding=(), removing=())


def _in_one_epoch(partition: Partition, leader: int, isr: Replicas) -> Partition:
    """The partition in its next epoch, with another leader or ISR."""
    return in_new_epoch(partition)._replace(leader=leader, isr=isr, elr=())


def _write(
    state: ControllerState, topic: Topic, altered: Mapping[int, Partition]
) -> Generator[Transactions, list[MultiResult], bool]:
    """Write replicas of a topic's partitions, and those states that changed, in one transaction.
    False: the store refused it.

    topic  as it was when the decision was made
    """
    new = _with(topic, altered)
    if new.partitions == topic.partitions:
        return True
    states: list[Operation] = [
        state.write_of(topic.name, index, each)
        for index, each in altered.items()
        if each.version != topic.partitions[index].version
    ]
    data = new.assignment().encode()
    whole = SetData(znodes.topic(topic.name), data, topic.version)
    transactions = chunks(state.fence(), [*states, whole], state.same_brokers())
    (refused,) = yield from write_all([transactions])
    if refused is not None:
        state.for_jobs.outdated.add(topic.name)
        return False
    now = state.current_topic(topic.name, topic.id)
    if now is not None and now.version == topic.version:
        state.put(_with(now, altered)._replace(version=topic.version + 1))
    return True


def _with(topic: Topic, altered: Mapping[int, Partition]) -> Topic:
    """The topic with the replicas of these partitions, and with their states where these are
    newer. A state of the same version stays, because it may have been read again and corrected.
    """
    partitions = list(topic.partitions)
    for index, each in altered.items():
        now = partitions[index]
        partitions[index] = each if each.version > now.version else now.assigned_as(each)
    return topic._replace(partitions=tuple(partitions))
