"""A port that a test answers itself; a proxy that delays, cuts or loses a broker's answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tests.serving import ServedBroker

Answer = Callable[[int, bytes, socket.socket], bool]
"""Called with (API key, the frame, the client's connection); True: it was dealt with."""


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A port where `serve` has every connection to itself."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    def serve_one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def take(connection: socket.socket) -> bytes:
    """One frame, without its length."""
    head = exactly(connection, 4)
    return exactly(connection, struct.unpack(">i", head)[0])


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the client left")
        data += more
    return data


class Cutting:
    """Sends only `part` of each `every`th answer to some APIs, and hangs up."""

    def __init__(
        self, every: int, apis: Collection[int], part: Callable[[bytes], bytes] = lambda _: b""
    ) -> None:
        self.cuts = 0
        self._every, self._apis, self._part = every, apis, part
        self._answers = itertools.count(1)

    def __call__(self, api: int, frame: bytes, connection: socket.socket) -> bool:
        if api not in self._apis or next(self._answers) % self._every:
            return False
        self.cuts += 1
        with contextlib.suppress(OSError):
            connection.sendall(self._part(struct.pack(">i", len(frame)) + frame))
            connection.shutdown(socket.SHUT_RDWR)
        return True


class Proxy:
    """A proxy between clients and a broker; `answer` may delay, cut or lose each answer, `asked`
    sees each request before it (API key, frame)."""

    def __init__(self, answer: Answer, asked: Callable[[int, bytes], object] | None = None) -> None:
        self.upstream: tuple[str, int] = ("", 0)
        self._answer, self._asked = answer, asked

    def forward_to(self, bootstrap: str) -> None:
        """Where the broker is."""
        host, _, port = bootstrap.rpartition(":")
        self.upstream = (host, int(port))

    def serve(self, connection: socket.socket) -> None:
        with socket.create_connection(self.upstream) as broker:
            keys: list[int] = []

            def forward() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        request = take(connection)
                        key: int = struct.unpack_from(">h", request)[0]
                        keys.append(key)
                        if self._asked is not None:
                            self._asked(key, request)
                        broker.sendall(struct.pack(">i", len(request)) + request)
                with contextlib.suppress(OSError):
                    broker.shutdown(socket.SHUT_RDWR)  # who waits for its answer goes too

            threading.Thread(target=forward, daemon=True).start()
            while True:
                answer = take(broker)
                if not self._answer(keys.pop(0), answer, connection):
                    connection.sendall(struct.pack(">i", len(answer)) + answer)


@contextlib.contextmanager
def behind(folder: Path, answer: Answer, *flags: str) -> Iterator[str]:
    """The address of a proxy to a broker that tells its clients to come through it."""
    proxy = Proxy(answer)
    with peer(proxy.serve) as address:
        options: dict[str, object] = {"advertised.listeners": f"PLAINTEXT://{address}"}
        with ServedBroker(folder / "data", *flags, options=options) as broker:
            proxy.upstream = broker.address
            yield address
