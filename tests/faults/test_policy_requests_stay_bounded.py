"""A large request that Python decides costs what was leased for it: at most 16 times its size.

All requests use one broker. After each one the pool is empty again and others are served.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

import krust
from krust._krust import Client
from tests.coordinated import ready
from tests.waiting import until

SIZE = 1 << 20
FLOOR = 8 << 20
FACTOR = 16
PATIENCE_S = 60.0


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def many(item: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    """An array of equal items that reaches SIZE."""
    count = SIZE // len(item)
    return before + number(count) + item * count + after


def names(before: bytes, after: bytes) -> bytes:
    """The same, of items that differ: `before`, a name, `after`."""
    items = [before + text(f"name-{n:08}") + after for n in range(SIZE // 24)]
    return number(len(items)) + b"".join(items)


SETTINGS_OF_BROKER = b"\x04" + text("0") + number(-1)
SETTINGS_OF_TOPIC = b"\x02" + text("t") + number(-1)
JOIN = text("j") + number(10_000) + text("") + text("consumer")
CASES: dict[str, tuple[int, bytes]] = {
    "DescribeConfigs, one broker n times": (32, many(SETTINGS_OF_BROKER)),
    "DescribeConfigs, one topic n times": (32, many(SETTINGS_OF_TOPIC)),
    "DescribeConfigs, no name n times": (32, many(b"\x02" + text("") + number(-1))),
    "DescribeConfigs, n names": (32, names(b"\x02", number(-1))),
    "DescribeGroups, one group n times": (15, many(text("g"))),
    "DescribeGroups, n groups": (15, names(b"", b"")),
    "DeleteGroups, n groups": (42, names(b"", b"")),
    "DeleteTopics, n topics": (20, names(b"", b"") + number(1000)),
    "CreateTopics, one without a name n times": (
        19,
        many(text("") + number(1) + b"\0\1" + number(0) + number(0), after=number(1000)),
    ),
    "CreateTopics, n settings of one": (
        19,
        many(
            text("") + text(""),
            number(1) + text("c") + number(1) + b"\0\1" + number(0),
            number(1000),
        ),
    ),
    "AlterConfigs, nothing n times": (33, many(b"\x02" + text("") + number(0), after=b"\1")),
    "IncrementalAlterConfigs, nothing n times": (
        44,
        many(b"\x02" + text("") + number(0), after=b"\1"),
    ),
    "CreatePartitions, one topic n times": (
        37,
        many(text("n") + number(2) + number(-1), after=number(1000) + b"\1"),
    ),
    "ElectLeaders, one topic n times": (43, many(text("n") + number(0), after=number(1000))),
    "AlterReplicaLogDirs, one directory n times": (34, many(text("d") + number(0))),
    "DescribeClientQuotas, n parts": (48, many(text("x") + b"\0" + text(""), after=b"\0")),
    "AlterClientQuotas, nobody n times": (49, many(number(0) + number(0), after=b"\1")),
    "JoinGroup, n protocols": (11, many(text("") + number(0), JOIN)),
    "JoinGroup, large metadata": (
        11,
        JOIN + number(1) + text("range") + number(SIZE) + b"\0" * SIZE,
    ),
    "SyncGroup, n assignments": (14, many(text("") + number(0), text("j") + number(1) + text("m"))),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[krust.Broker]:
    with krust.Broker() as broker:
        broker.create_topic("t")
        ready(Client(broker.bootstrap), "g", "j")
        yield broker


@pytest.mark.parametrize("name", CASES)
def test_a_large_policy_request_costs_at_most_its_lease(broker: krust.Broker, name: str) -> None:
    key, body = CASES[name]
    server = broker._server
    assert server is not None
    until(lambda: server.memory()[1] == 0)
    server.reset_memory_peak()
    request = struct.pack(">hhi", key, 0, 1) + text("attacker") + body
    host, _, port = broker.bootstrap.split(",")[0].rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as attacker:
        attacker.sendall(number(len(request)) + request)
        with suppress(ConnectionError):
            read_answer(attacker)
    until(lambda: server.memory()[1] == 0)
    _, _, peak, _ = server.memory()
    assert peak <= max(FLOOR, FACTOR * len(request))
    neighbour = {"resources": [{"resource_type": 2, "resource_name": "t"}]}
    answer = Client(broker.bootstrap).request("DescribeConfigs", neighbour)
    assert answer["results"][0]["error_code"] == 0


def read_answer(connection: socket.socket) -> None:
    """Read a whole answer, or up to the end of the connection."""
    left, is_head, head = 4, True, b""
    while left:
        part = connection.recv(min(left, 1 << 16))
        if not part:
            return
        left -= len(part)
        if is_head:
            head += part
            if not left:
                left, is_head = struct.unpack(">i", head)[0], False
