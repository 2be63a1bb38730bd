"""A connection of one user, logged in by SASL/PLAIN, that asks one request after the other."""

from __future__ import annotations

import socket
from typing import Self

from tests.acl_matrix import codec
from tests.acl_matrix.codec import Body
from tests.waiting import WAIT_S


class Closed(Exception):  # noqa: N818
    """The broker closed the connection instead of an answer."""


class Connection:
    """Closed at the end of a `with`."""

    def __init__(self, place: str, user: str, password: str) -> None:
        self.is_closed = False
        host, _, port = place.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shaken = self.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        assert shaken["error_code"] == 0, shaken
        told = self.ask("SaslAuthenticate", 1, {"auth_bytes": f"\0{user}\0{password}".encode()})
        assert told["error_code"] == 0, told

    def ask(self, api: str, version: int, body: Body) -> Body:
        """The answer. Closed: there is none."""
        try:
            self._socket.sendall(codec.request(api, version, body))
            data = self._read(int.from_bytes(self._read(4), "big"))
        except (ConnectionError, Closed):
            self.close()
            raise Closed from None
        return codec.answer(api, version, data)

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise Closed
            found += more
        return bytes(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Once is enough."""
        self.is_closed = True
        self._socket.close()
