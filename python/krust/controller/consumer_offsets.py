"""OffsetCommit 0 and OffsetFetch 0: offsets of the consumers of 2013, which lie in the znode tree.

`/consumers/GROUP/offsets/TOPIC/PARTITION` holds the offset as decimal digits. There is no metadata
and no membership; the last writer holds. Later versions keep offsets in `__consumer_offsets`.
Source: Kafka 0.8.1's protocol guide; version 0 of both APIs in Kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.controller.state import refused_code
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import BadZnodeError, number
from krust.metadata.store import Create, Done, Node, Read, Refusal, SetData

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.state import Asked, Policy, Request, State

_NONE_YET = -1


def commit(state: State, request: Request) -> Policy:
    """OffsetCommit 0. INVALID_GROUP_ID: the group's name cannot be a node's."""
    group: str = request.message["group_id"]
    most = state.whole("offset.metadata.max.bytes")
    topics = []
    for topic in request.message["topics"]:
        codes = []
        for each in topic["partitions"]:
            partition: int = each["partition_index"]
            if len((each["committed_metadata"] or "").encode()) > most:
                code = Code.OFFSET_METADATA_TOO_LARGE
            else:
                code = _refused(state, group, topic["name"], partition)
            if code is Code.NONE:
                path = znodes.consumer_offset(group, topic["name"], partition)
                code = yield from _write(path, str(each["committed_offset"]).encode())
            codes.append({"partition_index": partition, "error_code": code})
        topics.append({"name": topic["name"], "partitions": codes})
    return {"topics": topics}


def fetch(state: State, request: Request) -> Policy:
    """OffsetFetch 0. UNKNOWN_TOPIC_OR_PARTITION where nothing was committed, as Kafka says."""
    group: str = request.message["group_id"]
    topics = []
    for topic in request.message["topics"] or []:
        found = []
        for partition in topic["partition_indexes"]:
            code, offset = _refused(state, group, topic["name"], partition), _NONE_YET
            if code is Code.NONE:
                path = znodes.consumer_offset(group, topic["name"], partition)
                code, offset = yield from _read(state, path)
            found.append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "metadata": "",
                    "error_code": code,
                }
            )
        topics.append({"name": topic["name"], "partitions": found})
    return {"topics": topics}


def _refused(state: State, group: str, name: str, partition: int) -> Code:
    if not group or "/" in group or group in (".", ".."):
        return Code.INVALID_GROUP_ID
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE


def _write(path: str, data: bytes) -> Generator[Asked, list[Done], Code]:
    """Set a node's data, making it and what is above it where it is missing."""
    (done,) = yield [[SetData(path, data)]]
    if done.refused is Refusal.NO_NODE:
        parts = path.split("/")
        for end in range(3, len(parts)):
            (done,) = yield [[Create("/".join(parts[:end]))]]
        (done,) = yield [[Create(path, data)]]
        if done.refused is Refusal.NODE_EXISTS:
            (done,) = yield [[SetData(path, data)]]
    return Code.NONE if done.refused is None else refused_code(done.refused)


def _read(state: State, path: str) -> Generator[Asked, list[Done], tuple[Code, int]]:
    (done,) = yield [[Read(path)]]
    node: Any = done.results[0]
    if done.refused is Refusal.NO_NODE:
        return Code.UNKNOWN_TOPIC_OR_PARTITION, _NONE_YET
    if not isinstance(node, Node):
        return Code.UNKNOWN_SERVER_ERROR, _NONE_YET
    try:
        return Code.NONE, number(node.data)
    except BadZnodeError as error:
        state.fault(path, error)
        return Code.UNKNOWN_SERVER_ERROR, _NONE_YET
