"""Brokers in network namespaces, so that links between them can be cut while the processes run.

Each broker has a namespace and four links: one to each other broker, one to ZooKeeper, one to the
clients. A cut link loses packets and answers nothing; connections stay open until their ends
notice. All addresses are in one random /24 that this machine does not use.
Needs root, `ip` and `nsenter` (Debian's iproute2 and util-linux); `missing` says why there is no
such network here.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

BROKERS = (1, 2, 3)
PAIRS = tuple(combinations(BROKERS, 2))
NOWHERE = "02:00:00:00:00:99"
"""a hardware address that nobody has"""
CLIENT_PORT, BROKER_PORT = 9092, 9093


def missing() -> str | None:
    """Why there are no network namespaces here; None: there are."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    for command, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(command) is None:
            return f"there is no `{command}` here (Debian's {package})"
    name = f"krust-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces are refused here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return None


def _ip(*words: str) -> str:
    run = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"ip {' '.join(words)}: {run.stderr}"
    return run.stdout


class Network:
    """Namespaces and links of three brokers; `heal` repairs every cut."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._mark = f"{os.getpid() % 100_000}{random.randrange(36**2):x}"
        self._cut: set[tuple[int, str]] = set()
        self._deaf: set[tuple[int, str]] = set()

    def make(self) -> None:
        """Create everything."""
        for number in BROKERS:
            _ip("netns", "add", self._space(number))
            self._in(number, "link", "set", "lo", "up")
            self._in(number, "addr", "add", f"{self._of_broker(number)}/32", "dev", "lo")
        _ip("addr", "add", f"{self.zookeeper_host}/32", "dev", "lo")
        for number in BROKERS:
            self._link_to_host(number, "c", number)
            _, near = self._link_to_host(number, "z", 6 + number)
            self._in(number, "route", "add", f"{self.zookeeper_host}/32", "via", near)
        for index, (a, b) in enumerate(PAIRS, 4):
            ends = [f"{self._base}.{4 * index + 1}", f"{self._base}.{4 * index + 2}"]
            names = [self._peer_link(a, b), self._peer_link(b, a)]
            where = ["netns", self._space(a), "type", "veth", "peer", "name", names[1]]
            _ip("link", "add", names[0], *where, "netns", self._space(b))
            for number, name, end in zip((a, b), names, ends, strict=True):
                self._in(number, "addr", "add", f"{end}/30", "dev", name)
                self._in(number, "link", "set", name, "up")
            self._in(a, "route", "add", f"{self._of_broker(b)}/32", "via", ends[1])
            self._in(b, "route", "add", f"{self._of_broker(a)}/32", "via", ends[0])

    def remove(self) -> None:
        """Remove whatever was created."""
        for number in BROKERS:
            subprocess.run(["ip", "netns", "del", self._space(number)], check=False)
        where = [f"{self.zookeeper_host}/32", "dev", "lo"]
        subprocess.run(["ip", "addr", "del", *where], check=False)

    # -- for the processes

    @property
    def zookeeper_host(self) -> str:
        """The address at which brokers find ZooKeeper, which runs outside of the namespaces."""
        return f"{self._base}.200"

    def command(self, number: int) -> list[str]:
        """The words that start a command in the namespace of a broker.

        `ip netns exec` would keep every disk mounted, in a mount namespace of its own.
        """
        return ["nsenter", f"--net=/run/netns/{self._space(number)}"]

    def settings(self, number: int) -> dict[str, object]:
        """The listeners of a broker."""
        clients = f"CLIENTS://{self._base}.{4 * number + 2}:{CLIENT_PORT}"
        brokers = f"BROKERS://{self._of_broker(number)}:{BROKER_PORT}"
        return {
            "listeners": f"{clients},{brokers}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }

    # -- faults

    def cut(self, a: int, b: int) -> None:
        """Two brokers do not reach each other."""
        self._down(a, self._peer_link(a, b))

    def cut_from_zookeeper(self, number: int) -> None:
        """A broker does not reach ZooKeeper; clients and other brokers reach it."""
        self._down(number, self._host_link(number, "z"))

    def cut_all_from_zookeeper(self) -> None:
        """No broker reaches ZooKeeper."""
        for number in BROKERS:
            self.cut_from_zookeeper(number)

    def cut_one_way(self, a: int, b: int) -> None:
        """Packets from broker `a` to broker `b` are lost; those from `b` to `a` arrive."""
        name = self._peer_link(a, b)
        ours, theirs = self._ends(a, b)
        assert ours != theirs
        entry = [theirs, "lladdr", NOWHERE, "nud", "permanent", "dev", name]
        self._in(a, "neigh", "replace", *entry)
        self._deaf.add((a, name))

    def isolate(self, number: int) -> None:
        """A broker reaches neither the others nor ZooKeeper; clients still reach it."""
        for other in BROKERS:
            if other != number:
                self.cut(number, other)
        self.cut_from_zookeeper(number)

    def heal(self) -> None:
        """Mend every cut."""
        while self._cut:
            number, name = self._cut.pop()
            self._in(number, "link", "set", name, "up")
            for address in self._routes_of(number, name):
                self._in(number, "route", "replace", *address, "dev", name)
        while self._deaf:
            number, name = self._deaf.pop()
            self._in(number, "neigh", "flush", "dev", name, "nud", "permanent")

    def _down(self, number: int, name: str) -> None:
        self._in(number, "link", "set", name, "down")
        self._cut.add((number, name))

    # -- names and addresses

    def _routes_of(self, number: int, name: str) -> Iterator[tuple[str, ...]]:
        """The routes that the kernel forgets while a link is down."""
        if name == self._host_link(number, "z"):
            yield f"{self.zookeeper_host}/32", "via", f"{self._base}.{4 * (6 + number) + 1}"
        for other in BROKERS:
            if other != number and name == self._peer_link(number, other):
                _, theirs = self._ends(number, other)
                yield f"{self._of_broker(other)}/32", "via", theirs

    def _ends(self, a: int, b: int) -> tuple[str, str]:
        """The addresses of the link between two brokers: of `a`, of `b`."""
        pair = (min(a, b), max(a, b))
        first = 4 * (4 + PAIRS.index(pair)) + 1
        ends = f"{self._base}.{first}", f"{self._base}.{first + 1}"
        return ends if a < b else (ends[1], ends[0])

    def _of_broker(self, number: int) -> str:
        return f"{self._base}.{100 + number}"

    def _space(self, number: int) -> str:
        return f"krust-{self._mark}-{number}"

    def _peer_link(self, a: int, b: int) -> str:
        return f"kr{self._mark}p{a}{b}"

    def _host_link(self, number: int, kind: str) -> str:
        return f"kr{self._mark}{kind}{number}"

    def _link_to_host(self, number: int, kind: str, index: int) -> tuple[str, str]:
        """Create a link between a namespace and this one; the addresses of the ends."""
        name = self._host_link(number, kind)
        host, inside = f"{self._base}.{4 * index + 1}", f"{self._base}.{4 * index + 2}"
        outer = f"{name}h"
        _ip(
            "link", "add", outer, "type", "veth", "peer", "name", name, "netns", self._space(number)
        )
        _ip("addr", "add", f"{host}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        self._in(number, "addr", "add", f"{inside}/30", "dev", name)
        self._in(number, "link", "set", name, "up")
        return inside, host

    def _in(self, number: int, *words: str) -> None:
        _ip("-n", self._space(number), *words)


@contextmanager
def namespaces() -> Iterator[Network]:
    """A network of three brokers."""
    used = {
        info["local"].rpartition(".")[0]
        for link in json.loads(_ip("-j", "addr"))
        for info in link.get("addr_info", ())
    }
    base = ""
    while not base or base in used:
        base = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
    network = Network(base)
    try:
        network.make()
        yield network
    finally:
        network.remove()
