"""Any bytes on the port: the broker runs on, its memory stays bounded, other connections work."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.clients import Confluent
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

SEED = 20260101
ROUNDS = 1500
GROWTH_LIMIT = 64 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("bytes") / "data") as served:
        yield served


def api_versions(connection: socket.socket, number: int) -> None:
    """Send a request on a connection that stays open; the answer must come."""
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, number, -1))
    size = struct.unpack(">i", exactly(connection, 4))[0]
    body = exactly(connection, size)
    assert struct.unpack(">ih", body[:6]) == (number, 0)


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        assert piece, "closed"
        found += piece
    return found


def frames(chance: random.Random) -> Iterator[bytes]:
    """Noise, frames that lie about their length, and known requests with noise for a body."""
    keys = [*range(80), -1, 32767]
    for number in range(ROUNDS):
        noise = chance.randbytes(chance.choice([0, 1, 3, 17, 200, 4000]))
        shape = number % 4
        if shape == 0:
            yield noise
        elif shape == 1:
            lie = chance.choice([-1, 0, 1, 2**31 - 1, -(2**31), 100 << 20, (100 << 20) + 1])
            yield struct.pack(">i", lie) + noise
        else:
            client = b"\xff\xff" if shape == 2 else struct.pack(">h", 5) + b"noise"
            key, version = chance.choice(keys), chance.randrange(-1, 20)
            body = struct.pack(">hhi", key, version, number) + client + noise
            yield struct.pack(">i", len(body)) + body


def test_noise_closes_only_its_own_connection(broker: ServedBroker) -> None:
    chance = random.Random(SEED)
    witness = socket.create_connection(broker.address, WAIT_S)
    api_versions(witness, 0)
    before = broker.resident_bytes()
    for number, frame in enumerate(frames(chance), 1):
        with socket.create_connection(broker.address, WAIT_S) as noisy:
            noisy.sendall(frame)
            if number % 3 == 0:
                noisy.shutdown(socket.SHUT_WR)
                noisy.settimeout(WAIT_S)
                try:
                    while noisy.recv(65536):
                        pass
                except ConnectionResetError:
                    pass
        if number % 50 == 0:
            api_versions(witness, number)
    api_versions(witness, ROUNDS)
    assert broker.process.poll() is None
    assert broker.resident_bytes() - before < GROWTH_LIMIT
    witness.close()


def test_a_frame_length_of_100_mib_reserves_no_memory(broker: ServedBroker) -> None:
    before = broker.resident_bytes()
    open_ones = []
    for _ in range(100):
        connection = socket.create_connection(broker.address, WAIT_S)
        connection.sendall(struct.pack(">ihhih", 100 << 20, 0, 9, 1, -1))
        open_ones.append(connection)
    with socket.create_connection(broker.address, WAIT_S) as witness:
        api_versions(witness, 1)
    assert broker.resident_bytes() - before < GROWTH_LIMIT
    for connection in open_ones:
        connection.close()


def test_a_client_works_while_others_send_noise(broker: ServedBroker, tmp_path: Path) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [(None, b"%d" % n) for n in range(500)]
    Confluent().write(broker.bootstrap, "quiet", "zstd", records)
    assert Confluent().read(broker.bootstrap, "quiet", 500) == records
    assert "panic" not in broker.stderr().lower()
