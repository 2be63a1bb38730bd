"""Connections that send raw bytes, and the requests that prepare an attack."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time

from krust.closing import Closing
from tests.attack.frames import GROUP, WIDE, WIDE_PARTITIONS, filling
from tests.attack.layouts import Layout

Address = tuple[str, int]


class Connection(Closing):
    """One connection: frames out, replies in."""

    def __init__(self, address: Address, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, key: int, version: int, body: bytes, *, tags: bytes = b"") -> bytes:
        """The reply without its correlation id."""
        head = struct.pack(">hhih", key, version, 1, 9) + b"neighbour" + tags
        self.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        return self.reply()

    def reply(self) -> bytes:
        (size,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(size)[4:]

    def skip(self) -> int:
        """Read and discard a reply; returns its size."""
        (size,) = struct.unpack(">i", self.exactly(4))
        left = int(size)
        while left:
            piece = self.socket.recv(min(left, 1 << 20))
            if not piece:
                raise ConnectionError("closed")
            left -= len(piece)
        return int(size)

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("closed")
            found += piece
        return bytes(found)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def create_topic(connection: Connection, name: bytes, partitions: int) -> None:
    """Create a topic unless it exists."""
    body = struct.pack(">i", 1) + text(name) + struct.pack(">ihii", partitions, 1, 0, 0)
    reply = connection.ask(19, 0, body + struct.pack(">i", 30_000))
    (error,) = struct.unpack(">h", reply[-2:])
    assert error in (0, 36), error


def prepare(address: Address) -> bytes:
    """Create the topics of KNOWN, with records in each partition; returns the wide topic's id."""
    with Connection(address) as connection:
        create_topic(connection, WIDE, WIDE_PARTITIONS)
        connection.ask(0, 3, filling(WIDE, WIDE_PARTITIONS, 64 << 10))
        commit = text(GROUP) + struct.pack(">i", -1) + text(b"") + struct.pack(">qi", -1, 1)
        commit += text(WIDE) + struct.pack(">iiq", 1, 0, 1) + text(b"")
        until = time.monotonic() + 30
        while connection.ask(8, 2, commit)[-2:] != b"\0\0":
            connection.ask(10, 0, text(GROUP))
            assert time.monotonic() < until, "no offset can be committed"
            time.sleep(0.05)
        ask = b"\x02" + bytes(16) + bytes([len(WIDE) + 1]) + WIDE + b"\0" + b"\0\0\0"
        reply = connection.ask(3, 12, ask, tags=b"\0")
        at = reply.index(bytes([len(WIDE) + 1]) + WIDE) + 1 + len(WIDE)
        return reply[at : at + 16]


def served(address: Address) -> dict[int, tuple[int, int]]:
    """The versions of each API that the broker says it serves."""
    with Connection(address) as connection:
        reply = connection.ask(18, 0, b"")
    (number,) = struct.unpack(">i", reply[2:6])
    rows = [struct.unpack(">hhh", reply[6 + 6 * i : 12 + 6 * i]) for i in range(number)]
    return {key: (first, last) for key, first, last in rows}


def versions(layout: Layout, first: int, last: int) -> list[int]:
    """The first version that is served, the first flexible one and the last."""
    return sorted({first, min(max(layout.flexible, first), last), last})


def send_attack(address: Address, frames: bytes, times: int, patience_s: float) -> str:
    """Send the attack, read answers until the time-out, and hang up."""
    until, sent, got, total = time.monotonic() + patience_s, 0, 0, 0
    with Connection(address) as connection:
        connection.socket.setblocking(False)
        view = memoryview(frames)
        while time.monotonic() < until and (sent < len(view) or got == 0 or times > 1):
            poll = select.poll()
            wanted = select.POLLIN | (select.POLLOUT if sent < len(view) else 0)
            poll.register(connection.socket, wanted)
            ready = dict(poll.poll(100)).get(connection.socket.fileno(), 0)
            try:
                if ready & select.POLLOUT:
                    sent += connection.socket.send(view[sent : sent + (1 << 20)])
                if ready & ~select.POLLOUT:
                    connection.socket.setblocking(True)
                    connection.socket.settimeout(patience_s)
                    total += connection.skip()
                    got += 1
                    connection.socket.setblocking(False)
                    if got == times:
                        break
            except BlockingIOError:
                continue
            except TimeoutError:
                return "half an answer"
            except OSError:
                return "closed"
    if got < times:
        return f"{got} answers" if got else "no answer"
    return f"{total / (1 << 20):.2f} MiB"
