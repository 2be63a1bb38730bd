"""OffsetCommit 0 and OffsetFetch 0: the offsets of consumers from 2013, in the znode tree.

`/consumers/GROUP/offsets/TOPIC/PARTITION` holds the offset as decimal digits. There is no metadata
and no membership; the last write wins. Later versions keep offsets in `__consumer_offsets`.
A topic or partition that a request names twice is answered once.
Source: Kafka 0.8.1's protocol guide; version 0 of both APIs in Kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.controller.pace import PAUSE, SLICE, Pace
from krust.controller.state import refused_code
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.json_fields import BadZnodeError, number
from krust.metadata.store import Create, MultiResult, Node, Read, Refusal, SetData, is_path

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.state import ControllerState, Decision, Request, Transactions
    from krust.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
    )
    from krust.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetFetchResponsePartition,
    )

_NOTHING_COMMITTED = -1
_OFFSETS_PER_SLICE = SLICE // 2
"""so many offsets are read or written in one slice"""
_TopicPartition = tuple[str, int]


def commit(
    state: ControllerState, request: Request[OffsetCommitRequest]
) -> Decision[OffsetCommitResponse]:
    """OffsetCommit 0. INVALID_GROUP_ID: the group's name cannot be the name of a node."""
    group: str = request.message["group_id"]
    most = state.whole("offset.metadata.max.bytes")
    codes: dict[_TopicPartition, Code] = {}
    data: dict[_TopicPartition, bytes] = {}
    pace = Pace()
    for topic in request.message["topics"]:
        if pace.add():
            yield PAUSE
        for each in topic["partitions"]:
            if pace.add():
                yield PAUSE
            place = (topic["name"], each["partition_index"])
            codes[place] = _refusal_of(state, group, *place)
            if len((each["committed_metadata"] or "").encode()) > most:
                codes[place] = Code.OFFSET_METADATA_TOO_LARGE
            if codes[place] is Code.NONE:
                data[place] = str(each["committed_offset"]).encode()
    places = list(data)
    for start in range(0, len(places), _OFFSETS_PER_SLICE):
        some = {place: data[place] for place in places[start : start + _OFFSETS_PER_SLICE]}
        codes |= yield from _write_offsets(group, some)
        if start + _OFFSETS_PER_SLICE < len(places):
            yield PAUSE
    topics: dict[str, list[OffsetCommitResponsePartition]] = {
        topic["name"]: [] for topic in request.message["topics"]
    }
    for (name, index), code in codes.items():
        if pace.add():
            yield PAUSE
        topics[name].append({"partition_index": index, "error_code": code})
    return {"topics": [{"name": name, "partitions": rows} for name, rows in topics.items()]}


def fetch(
    state: ControllerState, request: Request[OffsetFetchRequest]
) -> Decision[OffsetFetchResponse]:
    """OffsetFetch 0. UNKNOWN_TOPIC_OR_PARTITION where nothing was committed, as Kafka says."""
    group: str = request.message["group_id"]
    asked = request.message["topics"] or []
    found: dict[_TopicPartition, tuple[Code, int]] = {}
    pace = Pace()
    for topic in asked:
        if pace.add():
            yield PAUSE
        for partition in topic["partition_indexes"]:
            if pace.add():
                yield PAUSE
            place = (topic["name"], partition)
            if place not in found:
                found[place] = (_refusal_of(state, group, *place), _NOTHING_COMMITTED)
    wanted = [place for place, (code, _) in found.items() if code is Code.NONE]
    for start in range(0, len(wanted), _OFFSETS_PER_SLICE):
        found |= yield from _read_offsets(state, group, wanted[start : start + _OFFSETS_PER_SLICE])
        if start + _OFFSETS_PER_SLICE < len(wanted):
            yield PAUSE
    topics: dict[str, list[OffsetFetchResponsePartition]] = {topic["name"]: [] for topic in asked}
    for (name, partition), (code, offset) in found.items():
        if pace.add():
            yield PAUSE
        topics[name].append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "metadata": "",
                "error_code": code,
            }
        )
    return {"topics": [{"name": name, "partitions": rows} for name, rows in topics.items()]}


def _refusal_of(state: ControllerState, group: str, name: str, partition: int) -> Code:
    if not group or not is_path(f"/{group}") or "/" in group:
        return Code.INVALID_GROUP_ID
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE


def _write_offsets(
    group: str, data: dict[_TopicPartition, bytes]
) -> Generator[Transactions, list[MultiResult], dict[_TopicPartition, Code]]:
    """Set the data of nodes. Create those that are missing, and their parents."""
    paths = {place: znodes.consumer_offset(group, *place) for place in data}
    done = yield [[SetData(paths[place], data[place])] for place in data]
    refusals = {place: each.refused for place, each in zip(data, done, strict=True)}
    missing = [place for place in data if refusals[place] is Refusal.NO_NODE]
    if missing:
        split = [paths[place].split("/") for place in missing]
        above = {"/".join(parts[:end]) for parts in split for end in range(2, len(parts))}
        yield [[Create(path)] for path in sorted(above)]
        done = yield [[Create(paths[place], data[place])] for place in missing]
        refusals |= {place: each.refused for place, each in zip(missing, done, strict=True)}
        raced = [place for place in missing if refusals[place] is Refusal.NODE_EXISTS]
        done = (yield [[SetData(paths[place], data[place])] for place in raced]) if raced else []
        refusals |= {place: each.refused for place, each in zip(raced, done, strict=True)}
    return {place: _code_of(reason) for place, reason in refusals.items()}


def _read_offsets(
    state: ControllerState, group: str, places: list[_TopicPartition]
) -> Generator[Transactions, list[MultiResult], dict[_TopicPartition, tuple[Code, int]]]:
    paths = {place: znodes.consumer_offset(group, *place) for place in places}
    done = yield [[Read(paths[place])] for place in places]
    found: dict[_TopicPartition, tuple[Code, int]] = {}
    for place, each in zip(places, done, strict=True):
        node: Any = each.results[0]
        if isinstance(node, Node):
            try:
                found[place] = Code.NONE, number(node.data)
            except BadZnodeError as error:
                state.fault(paths[place], error)
                found[place] = Code.UNKNOWN_SERVER_ERROR, _NOTHING_COMMITTED
        elif node is Refusal.NO_NODE:
            found[place] = Code.UNKNOWN_TOPIC_OR_PARTITION, _NOTHING_COMMITTED
        else:
            found[place] = _code_of(each.refused), _NOTHING_COMMITTED
    return found


def _code_of(reason: Refusal | None) -> Code:
    """The code for the client, which asks again after COORDINATOR_NOT_AVAILABLE."""
    if reason is Refusal.NOT_APPLIED:
        return Code.COORDINATOR_NOT_AVAILABLE
    return Code.NONE if reason is None else refused_code(reason)
