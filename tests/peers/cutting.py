"""A proxy to a ZooKeeper that cuts a connection where a test asks for it: see `Cutter`."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from tests.proxy import peer, take

WRITES = {1, 2, 5, 14, 15}
"""create, delete, setData, multi, create2"""


class Cutter:
    """A proxy between clients and a ZooKeeper.

    at      what happens to the next write: "request": it is not passed on; "answer": it is, and
            its answer is lost; then the connection ends, and `at` is None again
    open    whether anybody is let in
    garble  the next answer to a read is no answer to it
    silent  the next connection is accepted, and nothing answers on it
    """

    def __init__(self, upstream: str) -> None:
        host, port = upstream.split(":")
        self._upstream = (host, int(port))
        self._held: list[socket.socket] = []
        self.at: str | None = None
        self.cuts = 0
        """how many answers were lost"""
        self.open = True
        self.garble = False
        self.silent = False

    def drop(self) -> None:
        """End all connections."""
        while self._held:
            _end(self._held.pop())

    def serve(self, client: socket.socket) -> None:
        if not self.open:
            return
        if self.silent:
            self.silent = False
            with contextlib.suppress(OSError):
                while client.recv(4096):
                    pass
            return
        with socket.create_connection(self._upstream) as server:
            self._held += [client, server]
            lost: set[int] = set()
            server.sendall(_framed(take(client)))
            client.sendall(_framed(take(server)))
            threading.Thread(target=self._ask, args=(client, server, lost), daemon=True).start()
            with contextlib.suppress(OSError):
                while True:
                    answer = take(server)
                    (xid,) = struct.unpack_from(">i", answer)
                    if xid in lost:
                        break
                    if self.garble and xid > 0:
                        self.garble = False
                        answer = struct.pack(">i", xid + 1000) + answer[4:]
                    client.sendall(_framed(answer))
            _end(client)
            _end(server)

    def _ask(self, client: socket.socket, server: socket.socket, lost: set[int]) -> None:
        with contextlib.suppress(OSError):
            while True:
                request = take(client)
                xid, kind = struct.unpack_from(">ii", request)
                if kind in WRITES and self.at is not None:
                    at, self.at = self.at, None
                    if at == "request":
                        break
                    lost.add(xid)
                    self.cuts += 1
                server.sendall(_framed(request))
        if not lost:
            _end(client)
            _end(server)


@contextlib.contextmanager
def cutter(upstream: str) -> Iterator[tuple[Cutter, str]]:
    """A cutter and its address."""
    made = Cutter(upstream)
    with peer(made.serve) as address:
        yield made, address
        made.open = False
        made.drop()


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
