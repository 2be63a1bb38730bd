"""krust's clients trust brokers no more than krust trusts clients (`docs/security-record.md`).

A hostile broker is a proxy before a real one that answers one API itself: with lengths of nothing,
with work without end, with metadata that never ends.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from krust import Admin, jaas
from krust.errors import KafkaError, KrustError
from tests.proxy import Answer, Proxy, peer, take
from tests.waiting import WAIT_S

PASSWORD = "open sesame"
METADATA, AUTHENTICATE = 3, 36
GROWTH_LIMIT = 48 << 20
REFUSED = r"frame of|does not speak|no answer|closed"


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def broker() -> Iterator[krust.Broker]:
    settings: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{jaas.PLAIN} required user_alice="{PASSWORD}";'
        ),
    }
    with krust.Broker(config=settings) as broker:
        broker.create_topic("t", 1)
        yield broker


def hostile(broker: krust.Broker, listener: str, answer: Answer) -> Proxy:
    """A proxy before the broker's listener."""
    proxy = Proxy(answer)
    proxy.forward_to(dict(broker.listeners)[listener])
    return proxy


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("stated", [-1, 0, (128 << 20) + 1, 2**31 - 1])
def test_cve_2026_10142_a_length_that_no_answer_has_is_an_error_at_once(stated: int) -> None:
    def serve(connection: socket.socket) -> None:
        take(connection)
        connection.sendall(struct.pack(">i", stated))
        connection.recv(1)  # until the client hangs up

    before = resident_bytes()
    with (
        peer(serve) as address,
        Admin({"bootstrap.servers": address}) as admin,
        pytest.raises(KrustError, match=REFUSED),
    ):
        admin.topics()
    assert resident_bytes() - before < GROWTH_LIMIT


def test_cve_2026_10142_a_length_takes_memory_only_as_bytes_arrive() -> None:
    asked = threading.Semaphore(0)

    def serve(connection: socket.socket) -> None:
        take(connection)
        connection.sendall(struct.pack(">i", 128 << 20) + bytes(1000))
        asked.release()
        connection.recv(1)

    before = resident_bytes()
    clients = []
    with peer(serve) as address:
        for _ in range(8):
            settings: dict[str, object] = {"bootstrap.servers": address}
            clients.append(Admin({**settings, "request.timeout.ms": 500}))
        calls = [threading.Thread(target=fails, args=(each,)) for each in clients]
        for call in calls:
            call.start()
        for _ in calls:
            assert asked.acquire(timeout=WAIT_S)
        assert resident_bytes() - before < GROWTH_LIMIT
        for call in calls:
            call.join(WAIT_S)
        for each in clients:
            each.close()
    assert resident_bytes() - before < GROWTH_LIMIT


def fails(admin: Admin) -> None:
    with pytest.raises(KrustError):
        admin.topics()


COUNTS = {
    "brokers": struct.pack(">i", 2**31 - 1),
    "brokers below none": struct.pack(">i", -2),
    "topics": struct.pack(">i", 0) + struct.pack(">h", -1) + struct.pack(">ii", 0, 2**31 - 1),
    "a string": struct.pack(">iih", 1, 0, 32_767),
}


@pytest.mark.parametrize("what", COUNTS)
def test_cve_2026_10142_counts_are_checked_before_memory_is_taken(
    broker: krust.Broker, what: str
) -> None:
    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        if api != METADATA:
            return False
        throttle = struct.pack(">i", 0)
        for body in (throttle + COUNTS[what], COUNTS[what], b"\0" + throttle + b"\xff\xff\xff\x7f"):
            connection.sendall(framed(frame[:4] + body))
        return True

    before = resident_bytes()
    with peer(hostile(broker, "PLAINTEXT", answer).serve) as address:
        settings: dict[str, object] = {"bootstrap.servers": address, "request.timeout.ms": 2000}
        with Admin(settings) as admin, pytest.raises(KrustError):
            admin.topics()
    assert resident_bytes() - before < GROWTH_LIMIT


def metadata(correlation: bytes, brokers: range, topics: int) -> bytes:
    """A Metadata answer of version 13: brokers nobody can reach, and topics without a leader."""
    host = b"\xfb\x01" + b"h" * 250  # a compact string
    rows = b"".join(
        struct.pack(">i", node) + host + struct.pack(">i", 1) + b"\0\0" for node in brokers
    )
    head = correlation + b"\0" + struct.pack(">i", 0) + varint(len(brokers) + 1) + rows
    named = b"".join(
        struct.pack(">h", 5)
        + b"\x02t"
        + bytes(16)
        + b"\0"
        + b"\x01"
        + struct.pack(">i", -1)
        + b"\0"
        for _ in range(topics)
    )
    error = struct.pack(">h", 0)
    return head + b"\0" + struct.pack(">i", -1) + varint(topics + 1) + named + error + b"\0"


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def new_brokers(numbers: Iterator[int]) -> Answer:
    """Answers each Metadata with a thousand brokers that nobody has named before."""

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        if api != METADATA:
            return False
        first = 1000 * next(numbers)
        connection.sendall(framed(metadata(frame[:4], range(first, first + 1000), 1)))
        return True

    return answer


def test_cve_2026_10142_metadata_that_names_new_brokers_each_time_is_not_kept(
    broker: krust.Broker,
) -> None:
    with (
        peer(hostile(broker, "PLAINTEXT", new_brokers(itertools.count())).serve) as address,
        Admin({"bootstrap.servers": address}) as admin,
    ):
        for _ in range(20):
            admin.request("Metadata", {"topics": None}, 13)
        before = resident_bytes()
        for _ in range(150):
            admin.request("Metadata", {"topics": None}, 13)
        assert resident_bytes() - before < GROWTH_LIMIT // 2


def test_cve_2026_10142_metadata_without_a_leader_ends_at_the_time_out(
    broker: krust.Broker,
) -> None:
    asked = itertools.count()
    before = resident_bytes()
    with peer(hostile(broker, "PLAINTEXT", new_brokers(asked)).serve) as address:
        settings: dict[str, object] = {"bootstrap.servers": address, "retry.backoff.ms": 1}
        with (
            krust.Producer(settings, delivery_timeout_ms=1500) as producer,
            pytest.raises(KrustError, match=r"LEADER_NOT_AVAILABLE|no leader|time"),
        ):
            producer.send("t", b"x").result(60_000)
    assert next(asked) > 1
    assert resident_bytes() - before < GROWTH_LIMIT


def logged_in(address: str, mechanism: str = "SCRAM-SHA-256") -> Admin:
    settings: dict[str, object] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "request.timeout.ms": 5_000,
    }
    return Admin(settings)


def challenge(parts: str, frame: bytes) -> bytes:
    """A SaslAuthenticate answer (version 2) with this token."""
    token = parts.encode()
    body = struct.pack(">h", 0) + b"\0" + varint(len(token) + 1) + token
    return framed(frame[:4] + b"\0" + body + struct.pack(">q", 0) + b"\0")


@pytest.mark.parametrize("iterations", ["4294967295", "2147483647", "16385", "4095", "0", "-1"])
def test_cve_2026_10143_a_client_computes_no_more_than_16384_iterations(
    broker: krust.Broker, iterations: str
) -> None:
    """Four billion would take hours: the limit of the test's time finds them."""
    nonces: list[str] = []

    def asked(api: int, request: bytes) -> None:
        if api == AUTHENTICATE and b"n=alice,r=" in request:
            nonces.append(request.rpartition(b"r=")[2].rstrip(b"\0").decode())

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        if api != AUTHENTICATE:
            return False
        told = f"r={nonces[-1]}theirs,s=AAAA,i={iterations}"
        connection.sendall(challenge(told, frame))
        return True

    proxy = Proxy(answer, asked)
    proxy.forward_to(dict(broker.listeners)["SASL_PLAINTEXT"])
    with (
        peer(proxy.serve) as address,
        logged_in(address) as admin,
        pytest.raises(KrustError, match=r"iterations|first message"),
    ):
        admin.topics()
    assert nonces


def test_cve_2026_10143_a_broker_that_proves_nothing_is_not_trusted(broker: krust.Broker) -> None:
    nonces: list[str] = []
    proofs: list[bytes] = []

    def asked(api: int, request: bytes) -> None:
        if api == AUTHENTICATE and b"n=alice,r=" in request:
            nonces.append(request.rpartition(b"r=")[2].rstrip(b"\0").decode())
        elif api == AUTHENTICATE:
            proofs.append(request)

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        if api != AUTHENTICATE:
            return False
        told = "v=AAAA" if proofs else f"r={nonces[-1]}theirs,s=AAAA,i=4096"
        connection.sendall(challenge(told, frame))
        return True

    proxy = Proxy(answer, asked)
    proxy.forward_to(dict(broker.listeners)["SASL_PLAINTEXT"])
    with (
        peer(proxy.serve) as address,
        logged_in(address) as admin,
        pytest.raises(KafkaError, match="does not know the password"),
    ):
        admin.topics()
    assert PASSWORD.encode() not in b"".join(proofs)
