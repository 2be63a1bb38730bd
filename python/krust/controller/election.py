"""ElectLeaders 0-2: make the preferred replica lead, or any replica where none can.

A partition whose preferred replica leads needs no election: ELECTION_NOT_NEEDED, which is left out
where all partitions were asked for. A partition that is named again is answered once. A leader is
moved only to a replica in the ISR.
Version notes: v0 is always preferred; v1 adds the type and the error of the whole request.
Not done: unclean election, as long as a partition has one replica there is nobody to elect.
Source: KIP-183, KIP-460.
"""

from __future__ import annotations

from krust.controller.leaders import ElectionMode, LiveBrokers
from krust.controller.leaders import elect as elect_leader
from krust.controller.pace import PAUSE, WRITE, Pace
from krust.controller.state import Message, Policy, RefusedError, Request, State
from krust.errors import Code

PREFERRED, UNCLEAN = 0, 1


def elect(state: State, request: Request) -> Policy:
    """ElectLeaders."""
    asked: list[Message] | None = request.message.get("topic_partitions")
    kind = request.message.get("election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        return _answer(Code.INVALID_REQUEST, [])
    everything = asked is None
    wanted = (
        [(name, list(range(len(topic.partitions)))) for name, topic in state.topics.items()]
        if asked is None
        else [(each["topic"], each["partitions"]) for each in asked]
    )
    results: list[Message] = []
    pace = Pace()
    seen: set[tuple[str, int]] = set()
    for name, indexes in wanted:
        found: list[Message] = []
        if pace.is_over():
            yield PAUSE
        for index in indexes:
            if pace.is_over():
                yield PAUSE
            if (name, index) in seen:
                continue
            seen.add((name, index))
            result: Message = {"partition_id": index, "error_code": 0, "error_message": None}
            try:
                yield from _elect_one(state, name, index, kind)
                if pace.is_over(WRITE):
                    yield PAUSE
            except RefusedError as refused:
                result |= {"error_code": refused.code, "error_message": str(refused)}
            if not (everything and result["error_code"] == Code.ELECTION_NOT_NEEDED):
                found.append(result)
        if found:
            results.append({"topic": name, "partition_result": found})
    return _answer(Code.NONE, results)


def _elect_one(state: State, name: str, index: int, kind: int) -> Policy:
    """Move one partition's leader; RefusedError: it stays."""
    topic = state.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    partition = topic.partitions[index]
    alive = partition.leader in state.brokers
    if alive and (kind == UNCLEAN or partition.leader == partition.replicas[0]):
        raise RefusedError(
            Code.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    live = LiveBrokers(state.brokers.keys(), state.leaving)
    mode = ElectionMode.PREFERRED if kind == PREFERRED else ElectionMode.OFFLINE
    moved = elect_leader(partition, live, mode)
    if kind == PREFERRED and moved is partition:
        raise RefusedError(
            Code.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader is not available."
        )
    if moved.leader == -1:
        raise RefusedError(
            Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica that is alive can lead."
        )
    (done,) = yield [[state.fence(), state.write_of(name, index, moved)]]
    if done.refused is not None:
        raise RefusedError(Code.NOT_CONTROLLER, "the partition or the controller changed meanwhile")
    state.changed(topic, {index: moved})
    return {}


def _answer(code: Code, results: list[Message]) -> Message:
    return {"throttle_time_ms": 0, "error_code": code, "replica_election_results": results}
