"""A peer that claims to be a controller or broker may send anything: the policy goes on."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from krust._krust import Client
from tests.cluster.brokers import Cluster
from tests.faults import malformed
from tests.faults.malformed import Answer, frame
from tests.waiting import until

pytestmark = pytest.mark.java

SEED = 20261122
KEYS = {4, 5, 6, 7, 56, 67}
EACH = 8
PATIENCE_S = 30.0
NAMES: dict[str, list[Any]] = {
    "controller_epoch": [0, 1, 1, 1],
    "controller_id": [1, 9, -1],
    "broker_epoch": [-1, -1, 2**40],
    "broker_id": [9, -1],
    "topic_name": ["here", "there", "", "..", "__consumer_offsets", "z" * 300],
    "name": ["here", "", "a/b"],
    "leader": [1, 2, 3, -1, -2],
    "replicas": [1, 2, 3],
    "isr": [1, 2, 3],
    "type": [0, 1, 2, 2, -1],
    "port": [0, 1, 9092, -1, 70_000],
}


class Line:
    """A connection that is opened again when the broker closes it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address, PATIENCE_S)

    def ask(self, data: bytes) -> bytes | None:
        """The answer; None: the connection was closed."""
        try:
            self._socket.sendall(data)
            size = int.from_bytes(self._read(4), "big")
            return self._read(size)
        except (EOFError, ConnectionError):
            self._socket.close()
            self._open()
            return None

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def brokers(three: Cluster) -> Iterator[Cluster]:
    three.create("here", 6)
    three.agree("here", lambda leaders: -1 not in leaders)
    yield three
    for number in (1, 2, 3):  # what they were told was not true
        three.stop(number)
    three.repair()
    three.agree("here", lambda leaders: -1 not in leaders)


def test_bad_control_requests_cost_an_answer_or_the_connection(brokers: Cluster) -> None:
    chance = random.Random(SEED)
    known = malformed.apis(KEYS)
    lines = [Line(brokers.brokers[number].address) for number in (1, 2)]
    answered = 0
    for api, version, body, whole in malformed.requests(known, chance, NAMES, EACH, {4, 5, 6}):
        if (api["key"], version) == (7, 0):
            continue  # its header has no client
        number = chance.choice((0, 1))
        data = lines[number].ask(frame(api, version, 5, body))
        if whole:
            assert data is not None, (api["name"], version, brokers.brokers[number + 1].stderr())
            assert Answer(api, version, data).number == 5
            answered += 1
    for line in lines:
        line.close()
    assert answered > 300
    for number in (1, 2):
        asked = {"resource_type": 4, "resource_name": str(number)}
        client = Client(brokers.bootstrap(number))
        described = client.request("DescribeConfigs", {"resources": [asked]})
        assert described["results"][0]["error_code"] == 0, "the policy lives"
        log = brokers.brokers[number].stderr()
        assert "Traceback" not in log, log[-2000:]
    until(lambda: brokers.ids() == [1, 2, 3])
