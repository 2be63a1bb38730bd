"""Every request stays within its bounds: each API and version that krust serves, with each kind of
hostile frame that its layout allows (`tests/attack/frames.py`). The test counts and does not time.

It counts, for each attack: the memory leased from the pool of requests, and that all of it comes
back; the memory of the process, by the kernel; the longest work of a network thread without a
pause; the policy's calls in one slice. A new API of the schema is included automatically. `make
attack` measures times, at all sizes and versions.
"""

from __future__ import annotations

import gc
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import krust
from krust._krust import Server
from krust.controller.controller import Controller
from krust.runtime.groups import Groups
from tests.attack.frames import KNOWN, Attack, attacks
from tests.attack.layouts import Layout, layouts
from tests.attack.wire import Address, Connection, prepare, send_attack, served, versions

MIB = 1 << 20
SMALL, LARGE = 64 << 10, MIB
LARGE_KINDS = ("same", "smallest", "nested")
LEAST_MEMORY, PER_BYTE = 8 * MIB, 16
LONGEST_WORK = 16 * MIB
MOST_CALLS = 100_000
PATIENCE_S, SETTLED_S = 1, 120
BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}
CREATES = "allow_auto_topic_creation"


class Slices:
    """Counts the calls that the policy makes before others have a turn: until it takes events,
    goes on with a decision that paused, or begins the next batch of groups' events.
    """

    begins = frozenset(
        (Server.events.__name__, Controller.resume.__name__, Groups._decide.__name__)
    )

    def __init__(self) -> None:
        self._calls = 0
        self._longest = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            name = frame.f_code.co_name
        elif event == "c_call":
            name = getattr(arg, "__name__", "")
        else:
            return
        self._calls += 1
        if name in self.begins:
            self._longest, self._calls = max(self._longest, self._calls), 0

    def take_longest(self) -> int:
        """The most calls in one slice since the last time."""
        longest, self._longest = max(self._longest, self._calls), 0
        return longest


class Target:
    """A broker of this process, and its costs."""

    def __init__(self, broker: krust.Broker, slices: Slices) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self.address: Address = (host, int(port))
        self.topic_id = prepare(self.address)
        self.served = served(self.address)
        self._server, self._slices = broker._running().server, slices

    def costs(self, attack: Attack) -> list[str]:
        """The bounds that an attack went over."""
        used = self._server.memory()[1]
        self._server.reset_memory_peak()
        self._server.take_longest_work()
        self._slices.take_longest()
        frames = attack.frames()
        Path("/proc/self/clear_refs").write_text("5")
        resident = status("VmRSS")
        send_attack(self.address, frames, attack.times, PATIENCE_S)
        ask_policy(self.address)
        until = time.monotonic() + SETTLED_S
        while (left := self._server.memory()[1]) > used and time.monotonic() < until:
            gc.collect()  # a refused request may be part of a cycle, with the error it caused
            time.sleep(0.05)  # a collection holds the interpreter, which the policy needs
        most = max(LEAST_MEMORY, PER_BYTE * len(frames))
        costs = {
            "leased": (self._server.memory()[2] - used, most),
            "left": (left, used),
            "resident": (status("VmHWM") - resident, most),
            "work": (self._server.take_longest_work(), LONGEST_WORK),
            "calls": (self._slices.take_longest(), MOST_CALLS),
        }
        name = f"v{attack.version} {attack.kind} {attack.place} {attack.size:,} bytes"
        return [
            f"{name}: {what} {much:,} > {bound:,}"
            for what, (much, bound) in costs.items()
            if much > bound
        ]


def ask_policy(address: Address) -> None:
    """Wait until the policy has answered every earlier request."""
    with Connection(address, SETTLED_S) as connection:
        connection.ask(32, 0, struct.pack(">ibhi", 1, 2, 0, 0))


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with attacked(creates=False) as target:
        yield target


@contextmanager
def attacked(*, creates: bool) -> Iterator[Target]:
    """A broker whose policy thread is counted; `creates`: topics, on first use."""
    slices = Slices()
    threading.setprofile(slices)
    try:
        config = {"auto.create.topics.enable": creates, "group.initial.rebalance.delay.ms": 0}
        broker = krust.Broker(config=config)
    finally:
        threading.setprofile(None)
    with broker:
        yield Target(broker, slices)


def matrix(layout: Layout, target: Target) -> Iterator[Attack]:
    chosen = versions(layout, *target.served[layout.key])
    for version in chosen:
        yield from attacks(layout, version, SMALL, target.topic_id)
    for attack in attacks(layout, chosen[-1], LARGE, target.topic_id):
        if attack.kind in LARGE_KINDS:
            yield attack


def test_topics_created_on_first_use_stay_within_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KNOWN, CREATES, True)
    creating = [
        layout
        for layout in layouts().values()
        if any(each.name == CREATES for each in layout.fields)
    ]
    assert [layout.name for layout in creating] == ["Metadata"]
    with attacked(creates=True) as target:
        for layout in creating:
            for version in target.served[layout.key]:
                for attack in attacks(layout, version, SMALL, target.topic_id):
                    if attack.kind in ("distinct", "colliding", "longest"):
                        over = target.costs(attack)  # the topics stay, and take memory
                        assert not [each for each in over if ": resident" not in each]
        with Connection(target.address) as connection:
            assert len(connection.ask(3, 1, b"\xff\xff\xff\xff")) > 1000 * 20


@pytest.mark.parametrize("layout", layouts().values(), ids=lambda layout: layout.name)
def test_every_request_stays_within_its_bounds(layout: Layout, target: Target) -> None:
    if layout.key not in target.served:
        assert layout.key in BETWEEN_BROKERS
        for attack in attacks(layout, layout.last, SMALL, target.topic_id):
            assert send_attack(target.address, attack.frames(), 1, PATIENCE_S) == "closed"
        return
    over = [each for attack in matrix(layout, target) for each in target.costs(attack)]
    assert not over, "\n".join(["", *over])
    with Connection(target.address) as connection:
        assert connection.ask(18, 0, b"")
