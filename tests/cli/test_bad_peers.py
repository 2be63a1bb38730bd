"""Commands end in time, with one line and bounded memory if a peer is silent, hostile or old."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.proxy import peer, take
from tests.three_brokers import Command
from tests.waiting import WAIT_S


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def replies(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        take(connection)
        connection.sendall(answer)
        silent(connection)

    return serve


def hang_up(connection: socket.socket) -> None:
    take(connection)


METADATA = 3
BAD = {
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "a negative length": struct.pack(">i", -1),
    "a huge length": struct.pack(">i", 2**31 - 1) + b"x" * 100,
    "a length of nothing": struct.pack(">i", 0),
    "another's answer": struct.pack(">ii", 10, 77) + bytes(6),
    "a huge array": struct.pack(">iihi", 10, 1, 0, 2**31 - 1),
}


@pytest.mark.parametrize("what", BAD)
def test_a_peer_without_kafkas_protocol_is_reported_in_one_line(what: str) -> None:
    with peer(replies(BAD[what])) as bootstrap:
        done = Command(bootstrap)("topic", "list")
    assert done.code in (1, 4), done.err
    assert "does not speak Kafka's protocol" in done.err
    assert "Traceback" not in done.err


def test_silence_ends_at_the_timeout() -> None:
    with peer(silent) as bootstrap:
        done = Command(bootstrap)("topic", "list", timeout="1s")
    assert (done.code, done.out) == (4, b"")
    assert "no answer in time" in done.err


def test_ctrl_c_ends_a_wait_for_a_silent_peer() -> None:
    waits = threading.Event()

    def serve(connection: socket.socket) -> None:
        take(connection)
        waits.set()
        silent(connection)

    with peer(serve) as bootstrap:
        argv = Command(bootstrap).argv("topic", "list", timeout="1h")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
            assert waits.wait(WAIT_S)
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(WAIT_S) == 130, "and not after an hour"


def test_a_peer_that_hangs_up_is_exit_4() -> None:
    with peer(hang_up) as bootstrap:
        done = Command(bootstrap)("topic", "list")
    assert done.code == 4
    assert "closed the connection" in done.err


def before_0_10(upstream: str) -> Callable[[socket.socket], None]:
    """A proxy that hangs up on what 0.9 did not know, hands on version 0 of the rest, and tells
    clients to come back to itself."""
    host, _, port = upstream.rpartition(":")

    def serve(connection: socket.socket) -> None:
        with socket.create_connection((host, int(port))) as broker:
            while True:
                request = take(connection)
                key, version = struct.unpack_from(">hh", request)
                if key > 16 or version > 0:
                    return
                broker.sendall(struct.pack(">i", len(request)) + request)
                answer = take(broker)
                if key == METADATA:
                    answer = advertise(answer, connection.getsockname()[1])
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    return serve


def advertise(metadata: bytes, port: int) -> bytes:
    """A Metadata v0 answer with another port for its only broker."""
    _, brokers, _, size = struct.unpack_from(">iiih", metadata)
    assert brokers == 1
    at = 4 + 4 + 4 + 2 + size
    return metadata[:at] + struct.pack(">i", port) + metadata[at + 4 :]


def test_a_broker_from_before_api_versions_is_served(krust: Command, topic: str) -> None:
    served = krust.ok("cluster", "versions", "--json").json()
    if any(row["first"] > 0 for row in served if row["api"] in ("Produce", "Fetch", "Metadata")):
        pytest.skip("this broker has forgotten version 0")
    lines = b"".join(b"line %d\n" % n for n in range(3000))
    with peer(before_0_10(krust.bootstrap)) as bootstrap:
        old = Command(bootstrap)
        rows = old.ok("cluster", "versions", "--json").json()
        assert {row["last"] for row in rows} == {0}
        assert topic in old.ok("topic", "list").text
        old.ok("produce", topic, "-p", "1", "-z", "gzip", given=lines)
        old.ok("produce", topic, "-p", "1", given=lines)
        assert old.ok("consume", topic, "-e").out == lines * 2
        assert old.ok("consume", f"{topic}:1", "-o", "-2", "-e").out == lines[-20:]
        refused = old("produce", topic, "--idempotent", given=b"x\n")
        assert "serves no version of InitProducerId" in refused.err
    assert krust.ok("consume", topic, "-e").out == lines * 2
