"""Connections that break while answers are on their way: nothing is lost, and with --idempotent
nothing comes twice or out of order."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.test_bad_peers import peer, take
from tests.serving import Served

PRODUCE = 0
LINES = [b"line %d" % n for n in range(20_000)]


class Cutter:
    """A proxy that loses every `every`th answer to Produce, with its connection."""

    def __init__(self, every: int) -> None:
        self.every, self.cuts = every, 0
        self.upstream: tuple[str, int] = ("", 0)
        self._answers = itertools.count(1)

    def serve(self, connection: socket.socket) -> None:
        with socket.create_connection(self.upstream) as broker:
            keys: list[int] = []

            def forward() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        request = take(connection)
                        keys.append(struct.unpack_from(">h", request)[0])
                        broker.sendall(struct.pack(">i", len(request)) + request)

            threading.Thread(target=forward, daemon=True).start()
            while True:
                answer = take(broker)
                if keys.pop(0) == PRODUCE and next(self._answers) % self.every == 0:
                    self.cuts += 1
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                connection.sendall(struct.pack(">i", len(answer)) + answer)


@contextlib.contextmanager
def cut(folder: Path, every: int) -> Iterator[tuple[Command, Cutter]]:
    """krust behind a cutter, which it tells its clients to use."""
    cutter = Cutter(every)
    with peer(cutter.serve) as address:
        options: dict[str, object] = {"advertised.listeners": f"PLAINTEXT://{address}"}
        with Served(folder / "data", "--prod", options=options) as broker:
            cutter.upstream = broker.address
            yield Command(address), cutter


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    tmp_path: Path, codec: str
) -> None:
    with cut(tmp_path, 7) as (krust, cutter):
        krust.ok("topic", "create", "t:1")
        small = ["-X", "batch.size=4000", "-X", "retry.backoff.ms=5", "-z", codec]
        krust.ok("produce", "t", "--idempotent", *small, given=b"\n".join(LINES))
        assert cutter.cuts > 3
        assert krust.ok("consume", "t", "-e").out.splitlines() == LINES


def test_any_other_producer_loses_nothing_and_keeps_the_order_of_what_is_new(
    tmp_path: Path,
) -> None:
    with cut(tmp_path, 7) as (krust, cutter):
        krust.ok("topic", "create", "t:1")
        small = ["-X", "batch.size=4000", "-X", "retry.backoff.ms=5"]
        krust.ok("produce", "t", *small, given=b"\n".join(LINES))
        assert cutter.cuts > 3
        found = krust.ok("consume", "t", "-e").out.splitlines()
        assert list(dict.fromkeys(found)) == LINES
        assert len(found) > len(LINES), "what was lost on the way back was written twice"
