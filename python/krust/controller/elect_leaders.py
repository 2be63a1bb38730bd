"""ElectLeaders 0-2: make the preferred replica lead, or any replica where none can.

A partition whose preferred replica leads gets ELECTION_NOT_NEEDED; the answer leaves it out if the
request asks for all partitions. A partition that is named twice is answered once. The type UNCLEAN
elects any live replica if no replica in sync can lead; krust counts and logs that. Leaders are
written in batches.
Version notes: v0 is always preferred; v1 adds the type and the error of the whole request.
Source: KIP-183, KIP-460.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers
from krust.controller.brokers import PartitionStateBatch
from krust.controller.leaders import ElectionMode
from krust.controller.leaders import elect as elect_leader
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import ControllerState, Decision, RefusedError, Request
from krust.errors import Code

if TYPE_CHECKING:
    from krust.controller.entities import Partition, Topic
    from krust.controller.state import Steps
    from krust.messages.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersResponse,
        PartitionResult,
        ReplicaElectionResult,
    )

PREFERRED, UNCLEAN = 0, 1


def elect(
    state: ControllerState, request: Request[ElectLeadersRequest]
) -> Decision[ElectLeadersResponse]:
    """ElectLeaders."""
    asked = request.message["topic_partitions"]
    kind = request.message.get("election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        return _answer(Code.INVALID_REQUEST, [])
    everything = asked is None
    wanted = (
        [(name, list(range(len(topic.partitions)))) for name, topic in state.topics.items()]
        if asked is None
        else [(each["topic"], list(each["partitions"])) for each in asked]
    )
    results: list[ReplicaElectionResult] = []
    batch: PartitionStateBatch[PartitionResult] = PartitionStateBatch()
    pace = Pace()
    seen: set[tuple[str, int]] = set()
    for name, indexes in wanted:
        found: list[PartitionResult] = []
        if pace.add():
            yield PAUSE
        for index in indexes:
            if pace.add():
                yield PAUSE
            if (name, index) in seen:
                continue
            seen.add((name, index))
            result: PartitionResult = {
                "partition_id": index,
                "error_code": 0,
                "error_message": None,
            }
            try:
                topic, moved = _elected(state, name, index, kind)
                batch.add(topic, index, moved, result)
                if pace.add(BATCHED):
                    yield from _write(state, batch)
                    yield PAUSE
            except RefusedError as refused:
                result |= {"error_code": refused.code, "error_message": str(refused)}
            if not (everything and result["error_code"] == Code.ELECTION_NOT_NEEDED):
                found.append(result)
        if found:
            results.append({"topic": name, "partition_result": found})
    yield from _write(state, batch)
    return _answer(Code.NONE, results)


def _write(state: ControllerState, batch: PartitionStateBatch[PartitionResult]) -> Steps:
    """Write a batch, and refuse the partitions that were not written."""
    for result, _ in (yield from batch.write(state)):
        text = "the partition or the controller changed meanwhile"
        result |= {"error_code": Code.NOT_CONTROLLER, "error_message": text}


def _elected(state: ControllerState, name: str, index: int, kind: int) -> tuple[Topic, Partition]:
    """A partition under its new leader, with its topic. RefusedError: the leader stays."""
    topic = state.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    partition = topic.partitions[index]
    alive = partition.leader in state.brokers
    if alive and (kind == UNCLEAN or partition.leader == partition.replicas[0]):
        raise RefusedError(
            Code.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    live = brokers.live_brokers(state, (name, index))
    mode = ElectionMode.PREFERRED if kind == PREFERRED else ElectionMode.OFFLINE
    rules = brokers.leader_rules(state, topic)._replace(unclean=True)
    moved = elect_leader(partition, live, mode, rules)
    if kind == PREFERRED and moved is partition:
        raise RefusedError(
            Code.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader is not available."
        )
    if moved.leader == -1:
        raise RefusedError(
            Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica that is alive can lead."
        )
    return topic, moved


def _answer(code: Code, results: list[ReplicaElectionResult]) -> ElectLeadersResponse:
    return {"throttle_time_ms": 0, "error_code": code, "replica_election_results": results}
