"""Requests of 2013 to 2017, byte by byte, as clients of then sent them; answers are bytes."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, HEARTBEAT = 8, 9, 10, 12
LEAVE_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS, DELETE_TOPICS = 13, 15, 16, 19, 20
WAIT_S = 60.0
LARGE = 1 << 20
WRITTEN_MS = 1_500_000_000_000
"""a time of 2017, for messages that carry one"""


class OldRequest(NamedTuple):
    """A request: what it is about, its API's number and version, its body."""

    about: str
    api: int
    version: int
    body: bytes


class Old:
    """A connection on which old requests are asked, one after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._socket = socket.create_connection(address, WAIT_S)

    def ask(self, asked: OldRequest) -> bytes:
        """The body of the answer."""
        head = struct.pack(">hhi", asked.api, asked.version, 7) + text("old")
        frame = head + asked.body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = int.from_bytes(self._read(4), "big")
        answer = self._read(size)
        assert answer[:4] == b"\0\0\0\7"
        return answer[4:]

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "it hung up"
            found += more
        return found

    def close(self) -> None:
        self._socket.close()


def text(value: str | None) -> bytes:
    """A string."""
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value)) + value.encode()


def array(items: Iterable[bytes]) -> bytes:
    """An array."""
    whole = list(items)
    return struct.pack(">i", len(whole)) + b"".join(whole)


def topics(*named: tuple[str, Iterable[bytes]]) -> bytes:
    """An array of topics, each with an array of partitions."""
    return array(text(name) + array(partitions) for name, partitions in named)


def message(offset: int, value: bytes, magic: int) -> bytes:
    """A message without a key, in the set of one."""
    when = struct.pack(">q", WRITTEN_MS) if magic else b""
    body = struct.pack(">bb", magic, 0) + when + struct.pack(">ii", -1, len(value)) + value
    whole = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(whole)) + whole


def produce(version: int, topic: str, partition: int, messages: bytes) -> OldRequest:
    """Produce 0-2, acknowledged by the leader."""
    data = struct.pack(">ii", partition, len(messages)) + messages
    body = struct.pack(">hi", 1, 30_000) + topics((topic, [data]))
    return OldRequest(f"produce to {topic}-{partition}", PRODUCE, version, body)


def fetch(version: int, topic: str, partition: int, offset: int) -> OldRequest:
    """Fetch 0-3, which waits for nothing."""
    most = struct.pack(">i", LARGE) if version >= 3 else b""
    place = struct.pack(">iqi", partition, offset, LARGE)
    body = struct.pack(">iii", -1, 0, 0) + most + topics((topic, [place]))
    return OldRequest(f"fetch {topic}-{partition} from {offset}", FETCH, version, body)


def list_offsets(version: int, topic: str, partition: int, time_ms: int) -> OldRequest:
    """ListOffsets 0-1."""
    most = struct.pack(">i", 10) if version == 0 else b""
    place = struct.pack(">iq", partition, time_ms) + most
    body = struct.pack(">i", -1) + topics((topic, [place]))
    return OldRequest(f"offset of {topic}-{partition} at {time_ms}", LIST_OFFSETS, version, body)


def metadata(version: int, *names: str) -> OldRequest:
    """Metadata 0-2; without a name: of all topics."""
    body = array(map(text, names)) if names or version == 0 else struct.pack(">i", -1)
    return OldRequest(f"metadata of {names}", METADATA, version, body)


def commit(version: int, group: str, topic: str, partition: int, offset: int) -> OldRequest:
    """OffsetCommit 0-2 by nobody's member."""
    member = struct.pack(">i", -1) + text("") if version >= 1 else b""
    retention = struct.pack(">q", -1) if version >= 2 else b""
    when = struct.pack(">q", -1) if version == 1 else b""
    place = struct.pack(">iq", partition, offset) + when + text("noted")
    body = text(group) + member + retention + topics((topic, [place]))
    return OldRequest(f"commit {topic}-{partition} for {group}", OFFSET_COMMIT, version, body)


def committed(version: int, group: str, topic: str, *partitions: int) -> OldRequest:
    """OffsetFetch 0-2."""
    body = text(group) + topics((topic, [struct.pack(">i", each) for each in partitions]))
    return OldRequest(f"committed in {topic} for {group}", OFFSET_FETCH, version, body)


def coordinator(group: str) -> OldRequest:
    """FindCoordinator 0."""
    return OldRequest(f"coordinator of {group}", FIND_COORDINATOR, 0, text(group))


def heartbeat(group: str) -> OldRequest:
    """Heartbeat 0 of one who is no member."""
    body = text(group) + struct.pack(">i", 1) + text("nobody")
    return OldRequest(f"heartbeat in {group}", HEARTBEAT, 0, body)


def leave(group: str) -> OldRequest:
    """LeaveGroup 0 of one who is no member."""
    return OldRequest(f"leave {group}", LEAVE_GROUP, 0, text(group) + text("nobody"))


def describe(*groups: str) -> OldRequest:
    """DescribeGroups 0."""
    return OldRequest(f"describe {groups}", DESCRIBE_GROUPS, 0, array(map(text, groups)))


def list_groups() -> OldRequest:
    """ListGroups 0."""
    return OldRequest("list groups", LIST_GROUPS, 0, b"")


def create(version: int, name: str, partitions: int, replicas: int = 1) -> OldRequest:
    """CreateTopics 0-1."""
    topic = text(name) + struct.pack(">ih", partitions, replicas) + array([]) + array([])
    check = b"\0" if version >= 1 else b""
    body = array([topic]) + struct.pack(">i", 30_000) + check
    return OldRequest(f"create {name}", CREATE_TOPICS, version, body)


def delete(name: str) -> OldRequest:
    """DeleteTopics 0."""
    return OldRequest(
        f"delete {name}", DELETE_TOPICS, 0, array([text(name)]) + struct.pack(">i", 30_000)
    )
