"""Attack a broker with connections, beside clients that behave well, and compare their rate.

    python -m tests.attack.connections [KIND ...] [--seconds 10] [--rounds 3]

    plain       2,000 new connections a second, each closed after half a second
    handshakes  300 TLS handshakes a second, none resumed, each closed after half a second
    logins      2,000 logins that stop in the middle of a frame; each that is closed begins anew
    silent      5,000 connections that say nothing; the same
    crowded     like silent, to a broker with 4,096 descriptors
    limited     like crowded, with max.connections.per.ip=1000: 2,000 a second are closed

Each attack has its own broker. Rounds alternate: some seconds without the attack, some with it.
`known` are clients that are connected all the time (`neighbours.py`), `new` are clients that
connect, log in where that is asked, and leave. A row has their requests in a second without and
with the attack, the ratio, and the waits. Not promised: a bound; the figures are for
docs/FIGURES.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import select
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from krust import jaas
from tests.attack.__main__ import Neighbours, quantile
from tests.attack.wire import Address, Connection, text
from tests.certificates import Authority
from tests.ports import free_ports
from tests.serving import ServedBroker

KINDS = ("plain", "handshakes", "logins", "silent", "crowded", "limited")
RATE, HALF_OPEN, SILENT, DESCRIPTORS, PER_IP = 2_000, 2_000, 5_000, 4_096, 1_000
HANDSHAKES = 300
SOURCE = ("127.0.0.2", 0)
NO_PORT_YET = 24  # IP_BIND_ADDRESS_NO_PORT: connect() chooses the port
KEPT_S, NEW_PAUSE_S, SETTLE_S = 0.5, 0.05, 3.0
LOGIN = b"\0good\0a-secret"
USERS = f'{jaas.PLAIN} required user_good="a-secret";'


class Period(NamedTuple):
    """What the good clients did in some seconds."""

    known: float
    """requests a second"""
    new: float
    """connections a second"""
    known_ms: list[float]
    new_ms: list[float]
    resident: int
    connections: int


class Newcomers:
    """A client that connects, asks for the versions, logs in if that is asked, and leaves."""

    def __init__(self, address: Address, *, logs_in: bool) -> None:
        self._address, self._logs_in = address, logs_in
        self._taken: list[float] = []
        self.errors = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.perf_counter()
            try:
                with Connection(self._address, 30) as connection:
                    connection.ask(18, 0, b"")
                    if self._logs_in:
                        connection.ask(17, 1, text(b"PLAIN"))
                        reply = connection.ask(36, 0, struct.pack(">i", len(LOGIN)) + LOGIN)
                        assert reply[:2] == b"\0\0", reply
                self._taken.append(1000 * (time.perf_counter() - began))
            except OSError:
                self.errors += 1
            time.sleep(NEW_PAUSE_S)

    def period(self) -> list[float]:
        taken, self._taken = self._taken, []
        return taken


def attack(kind: str, address: Address) -> None:
    """Attack until standard input ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if kind == "plain":
        _at_rate(RATE, lambda: _connect(address))
    elif kind == "handshakes":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _at_rate(HANDSHAKES, lambda: context.wrap_socket(socket.create_connection(address, 30)))
    else:
        _hold(address, HALF_OPEN if kind == "logins" else SILENT, says=kind == "logins")


def _connect(address: Address) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_IP, NO_PORT_YET, 1)
    connection.bind(SOURCE)
    connection.connect_ex(address)
    return connection


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _at_rate(rate: int, connect: Callable[[], socket.socket]) -> None:
    """So many connections a second, each kept for KEPT_S."""
    kept: deque[tuple[float, socket.socket]] = deque()
    began, made = time.monotonic(), 0
    while not _is_over():
        now = time.monotonic()
        while made < rate * (now - began):
            kept.append((now + KEPT_S, connect()))
            made += 1
        while kept and kept[0][0] < now:
            kept.popleft()[1].close()
        time.sleep(0.002)


def _hold(address: Address, count: int, *, says: bool) -> None:
    """Keep `count` connections open, each in the middle of the second frame if it says anything."""
    versions = struct.pack(">hhih", 18, 0, 1, -1)
    words = struct.pack(">i", len(versions)) + versions
    words += struct.pack(">i", 400_000) + bytes(8_000)
    held: dict[int, socket.socket] = {}
    events = select.epoll()
    while not _is_over():
        for _ in range(min(RATE // 50, count - len(held))):
            connection = _connect(address)
            held[connection.fileno()] = connection
            wanted = select.EPOLLIN | (select.EPOLLOUT if says else 0)
            events.register(connection, wanted | select.EPOLLET)
        for number, event in events.poll(0):
            connection = held[number]
            try:
                if event & select.EPOLLOUT and says:
                    events.modify(number, select.EPOLLIN)
                    connection.send(words)
                    continue
                if connection.recv(1 << 16):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            events.unregister(number)
            held.pop(number).close()
        time.sleep(0.02)


class Target:
    """A broker, the good clients and the attacker's address."""

    def __init__(self, kind: str, directory: Path) -> None:
        plain, login, tls = free_ports(3)
        places = {"OPEN": plain, "LOGIN": login, "TLS": tls}
        certificate = Authority(directory.with_name("authority")).certify("server")
        options: dict[str, object] = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in places.items()),
            "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificate,
            "inter.broker.listener.name": "OPEN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": USERS,
        }
        if kind == "limited":
            options["max.connections.per.ip"] = PER_IP
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limit = DESCRIPTORS if kind in ("crowded", "limited") else hard
        self.broker = ServedBroker(
            directory,
            options=options,
            port=None,
            limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )
        attacked = {"logins": login, "handshakes": tls}.get(kind, plain)
        self.address, self.kind = ("127.0.0.1", attacked), kind
        self.neighbours = Neighbours(("127.0.0.1", plain))
        logs_in = kind == "logins"
        self.newcomers = Newcomers(("127.0.0.1", login if logs_in else plain), logs_in=logs_in)

    def measure(self, seconds: float) -> Period:
        self.neighbours.period()
        self.newcomers.period()
        time.sleep(seconds)
        known = [each for kind in self.neighbours.period().values() for each in kind]
        new = self.newcomers.period()
        resident, descriptors = self.broker.resident_bytes(), self.broker.descriptors()
        return Period(len(known) / seconds, len(new) / seconds, known, new, resident, descriptors)

    def under_attack(self, seconds: float) -> Period:
        command = [sys.executable, "-m", "tests.attack.connections", "--attack", self.kind]
        host, port = self.address
        attacker = subprocess.Popen([*command, host, str(port)], stdin=subprocess.PIPE)
        try:
            time.sleep(SETTLE_S)
            return self.measure(seconds)
        finally:
            attacker.kill()
            attacker.wait(30)

    def close(self) -> None:
        self.neighbours.close()
        self.broker.kill()


def compare(kind: str, seconds: float, rounds: int) -> None:
    """Print the row of one attack."""
    with tempfile.TemporaryDirectory() as directory:
        target = Target(kind, Path(directory) / "data")
        try:
            time.sleep(SETTLE_S)
            without, under = [], []
            for _ in range(rounds):
                without.append(target.measure(seconds))
                under.append(target.under_attack(seconds))
                time.sleep(SETTLE_S)
            errors = target.newcomers.errors
        finally:
            with contextlib.suppress(Exception):
                target.close()
    print(f"{kind}: {rounds} rounds of {seconds:g} s, {os.cpu_count()} processors")
    for who in ("known", "new"):
        rates = [
            statistics.fmean(getattr(period, who) for period in periods)
            for periods in (without, under)
        ]
        waits = [
            [each for period in periods for each in getattr(period, f"{who}_ms")]
            for periods in (without, under)
        ]
        p99 = [quantile(taken, 0.99) for taken in waits]
        print(
            f"  {who:<6} {rates[0]:7.1f}/s without, {rates[1]:7.1f}/s with: "
            f"{rates[1] / max(rates[0], 0.001):6.1%}; "
            f"p99 {p99[0]:.0f} and {p99[1]:.0f} ms, worst {max(waits[1], default=0):.0f} ms"
        )
    resident = [max(period.resident for period in periods) >> 20 for periods in (without, under)]
    descriptors = max(period.connections for period in under)
    print(
        f"  broker {resident[0]} and {resident[1]} MiB resident, {descriptors} descriptors, "
        f"{errors} new clients failed",
        flush=True,
    )


def main() -> None:
    """Compare with the attacks of the command line."""
    parser = argparse.ArgumentParser(prog="attack.connections")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        kind, host, port = options.attack
        attack(kind, (host, int(port)))
        return
    for kind in options.kinds or KINDS:
        compare(kind, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
