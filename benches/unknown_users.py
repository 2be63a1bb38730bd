"""Whether the time of a failed login tells an unknown user from a known one: Welch's t.

    PYTHONPATH=. python benches/unknown_users.py [--logins 10000]

Logins of known users with a wrong password and of unknown users take turns, in an order that is
drawn anew for each pair, over connections of their own, at a broker in another process that answers
failures at once (`connection.failed.authentication.delay.ms=0`). Timed is from the last byte of a
token to the last of its answer. With |t| below 4.5 the two cannot be told apart by so many logins.

Printed for each step: t of all logins and t without those slower than the 90th percentile of both
kinds together, because one pause of a busy machine outweighs thousands of logins. Also the means,
and the load of the machine. It is no test: it reports a large t and does not fail.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from krust import Admin, jaas
from krust.controller import scram
from tests.serving import ServedBroker

SEED = 38_153
USERS = 100
LIMIT = 4.5
HANDSHAKE, AUTHENTICATE, FAILED = 17, 36, 58
SHA512 = "SCRAM-SHA-512"
LONG_PASSWORD = 200_000
Times = dict[str, tuple[list[float], list[float]]]
"""step -> seconds of known and of unknown users"""
Attempt = Callable[["Login", str], dict[str, float]]
"""logs a user in; the seconds of each step"""


class Login:
    """One connection that logs in."""

    def __init__(self, address: tuple[str, int], mechanism: str, nth: int) -> None:
        source = (f"127.0.{nth // 250 % 250}.{nth % 250 + 1}", 0)  # a host has too few ports
        self.socket = socket.create_connection(address, 60, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = mechanism.encode()
        self.socket.sendall(_request(HANDSHAKE, 1, struct.pack(">h", len(name)) + name))
        self._answer()

    def ask(self, token: bytes, error: int) -> tuple[float, bytes]:
        """The seconds until the answer to a token, and the answer's token."""
        request = _request(AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        self.socket.sendall(request[:-1])
        began = time.perf_counter()
        self.socket.sendall(request[-1:])
        answer = self._answer()
        seconds = time.perf_counter() - began
        code, size = struct.unpack_from(">hh", answer, 4)
        if code != error:
            raise RuntimeError(f"error {code} instead of {error}")
        return seconds, answer[12 + max(size, 0) :]

    def _answer(self) -> bytes:
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("closed")
            found += piece
        return found


def _request(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def plain(password: str) -> Attempt:
    """By PLAIN with this wrong password."""

    def attempt(login: Login, user: str) -> dict[str, float]:
        return {"token": login.ask(f"\0{user}\0{password}".encode(), FAILED)[0]}

    return attempt


def salted(login: Login, user: str) -> dict[str, float]:
    """By SCRAM-SHA-512 with a proof that nobody made of a password."""
    first, challenge = login.ask(f"n,,n={user},r=nonce".encode(), 0)
    nonce = challenge.partition(b",")[0]
    last = b"c=biws," + nonce + b",p=" + b"A" * 86 + b"=="
    return {"first token": first, "last token": login.ask(last, FAILED)[0]}


ATTEMPTS: dict[str, tuple[str, Attempt]] = {
    "PLAIN": ("PLAIN", plain("wrong")),
    f"PLAIN, a password of {LONG_PASSWORD:,} bytes": ("PLAIN", plain("w" * LONG_PASSWORD)),
    SHA512: (SHA512, salted),
}


def measure(address: tuple[str, int], what: str, logins: int) -> Times:
    """The times of so many logins of each kind."""
    mechanism, attempt = ATTEMPTS[what]
    chance = random.Random(SEED)
    found: Times = {}
    for nth in range(logins):
        for kind in chance.sample((0, 1), 2):
            user = f"{('known', 'other')[kind]}-{chance.randrange(USERS):03}"
            login = Login(address, mechanism, nth)
            with login.socket:
                for step, seconds in attempt(login, user).items():
                    found.setdefault(step, ([], []))[kind].append(seconds)
    return found


def welch(one: list[float], other: list[float]) -> float:
    """Welch's t of two samples."""
    spread = statistics.variance(one) / len(one) + statistics.variance(other) / len(other)
    return float((statistics.fmean(one) - statistics.fmean(other)) / spread**0.5)


def show(what: str, times: Times) -> None:
    """Print the lines of one way to log in."""
    for step, (known, unknown) in times.items():
        most = statistics.quantiles(known + unknown, n=10)[-1]
        kept = [[each for each in kind if each <= most] for kind in (known, unknown)]
        whole, trimmed = welch(known, unknown), welch(*kept)
        means = " and ".join(f"{1e6 * statistics.fmean(kind):.1f}" for kind in kept)
        verdict = "alike" if max(abs(whole), abs(trimmed)) < LIMIT else f"NOT below {LIMIT}"
        print(
            f"{what}, {step}: t {whole:+.2f}, without the slowest tenth {trimmed:+.2f} "
            f"({means} us; {len(known):,} and {len(unknown):,} logins): {verdict}",
            flush=True,
        )


def main() -> None:
    """Measure all ways to log in."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logins", type=int, default=10_000, help="of each kind")
    given = parser.parse_args()
    names = [f"known-{nth:03}" for nth in range(USERS)]
    users = " ".join(f'user_{name}="secret"' for name in names)
    options: dict[str, object] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": f"PLAIN,{SHA512}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas.PLAIN} required {users};",
        "connection.failed.authentication.delay.ms": 0,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        ServedBroker(Path(folder) / "data", port=None, options=options) as broker,
    ):
        settings: dict[str, object] = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": names[0],
            "sasl.password": "secret",
        }
        with Admin(settings) as admin:
            salt = {name: random.Random(name).randbytes(25) for name in names}
            made = [scram.upsertion(name, SHA512, "secret", salt[name]) for name in names]
            admin.request("AlterUserScramCredentials", {"deletions": [], "upsertions": made})
        for what in ATTEMPTS:
            show(what, measure(broker.address, what, given.logins))
        print("load of 1, 5, 15 minutes:", *(f"{each:.1f}" for each in os.getloadavg()))
        print(f"{os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
