"""Out of descriptors the broker stops accepting; connected clients are served, and it resumes.

Connections leave the last eighth of the descriptors (at most 64) to files, modules and pipes.
"""

from __future__ import annotations

import resource
import socket
import struct
from pathlib import Path

import pytest

from tests.foreign.clients import Confluent, Record
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, is_readable, until

LIMIT = 160
RESERVED = LIMIT // 8
RECORDS: list[Record] = [(None, b"%d" % number) for number in range(100)]


def lower_limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def ask(connection: socket.socket) -> None:
    """Send ApiVersions."""
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))


def answers(connection: socket.socket) -> bool:
    """Whether the next answer comes; reads all of it."""
    connection.settimeout(WAIT_S)
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    return bool(connection.recv(size, socket.MSG_WAITALL))


def answered(crowd: list[socket.socket]) -> list[socket.socket]:
    """The connections that have an answer by now."""
    return [one for one in crowd if is_readable(one, 0)]


def sent(connection: socket.socket, key: int, body: bytes) -> bytes:
    """The body of the answer to a request in version 0."""
    head = struct.pack(">hhih", key, 0, 5, -1)
    connection.sendall(struct.pack(">i", len(head + body)) + head + body)
    connection.settimeout(WAIT_S)
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    return connection.recv(size, socket.MSG_WAITALL)[4:]


def text(word: bytes) -> bytes:
    return struct.pack(">h", len(word)) + word


def test_many_connections_after_the_start_leave_descriptors_to_groups(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", limit=lower_limit) as broker:
        first = socket.create_connection(broker.address, WAIT_S)
        crowd = [socket.create_connection(broker.address, WAIT_S) for _ in range(LIMIT + 300)]
        for connection in crowd:
            ask(connection)
        until(lambda: broker.descriptors() >= LIMIT - RESERVED)
        protocol = text(b"range") + struct.pack(">i", 0)
        join = text(b"g") + struct.pack(">i", 10_000) + text(b"") + text(b"consumer")
        join += struct.pack(">i", 1) + protocol
        # What makes a group reads modules and opens a log.
        until(lambda: sent(first, 10, text(b"g"))[:2] == b"\0\0")
        until(lambda: sent(first, 11, join)[:2] == b"\0\0")
        assert broker.process.poll() is None
        assert broker.descriptors() < LIMIT
        assert len(answered(crowd)) < len(crowd)
        for connection in (*crowd, first):
            connection.close()


@pytest.mark.timeout(300)
def test_connections_beyond_the_limit_wait_and_the_rest_go_on(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", limit=lower_limit) as broker:
        Confluent().write(broker.bootstrap, "before", "none", RECORDS)
        first = socket.create_connection(broker.address, WAIT_S)
        ask(first)
        assert answers(first)
        crowd = [socket.create_connection(broker.address, WAIT_S) for _ in range(LIMIT + 40)]
        for connection in crowd:
            ask(connection)
        until(lambda: answered(crowd))
        ask(first)
        assert answers(first)
        assert len(answered(crowd)) < len(crowd)
        for connection in crowd:
            connection.close()
        assert Confluent().read(broker.bootstrap, "before", 100) == RECORDS
        Confluent().write(broker.bootstrap, "after", "none", RECORDS)
        assert Confluent().read(broker.bootstrap, "after", 100) == RECORDS
        first.close()


def test_more_partitions_than_descriptors_are_written_and_read(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", limit=lower_limit) as broker:
        for number in range(120):
            Confluent().write(broker.bootstrap, f"many-{number}", "none", RECORDS[:2])
        for number in range(0, 120, 7):
            assert Confluent().read(broker.bootstrap, f"many-{number}", 2) == RECORDS[:2]


@pytest.mark.timeout(300)
def test_a_descriptor_limit_cut_to_twenty_above_use_loses_no_record(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options={"log.segment.bytes": 2000}) as broker:
        for number in range(10):
            Confluent().write(broker.bootstrap, f"many-{number}", "none", RECORDS)
        limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        low = broker.descriptors() + 20
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (low, limits[1]))
        for number in range(10):
            Confluent().write(broker.bootstrap, f"many-{number}", "none", RECORDS)
            found = Confluent().read(broker.bootstrap, f"many-{number}", 200)
            assert found == RECORDS * 2
        crowd = [socket.create_connection(broker.address, WAIT_S) for _ in range(40)]
        for connection in crowd:
            ask(connection)
        until(lambda: broker.descriptors() >= low - low // 8)
        assert len(answered(crowd)) < len(crowd)
        for connection in crowd:
            connection.close()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        for number in range(10):
            assert Confluent().read(broker.bootstrap, f"many-{number}", 200) == RECORDS * 2
        assert broker.process.poll() is None
