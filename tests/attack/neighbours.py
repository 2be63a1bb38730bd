"""Well-behaved clients in a process of their own, each request timed.

    python -m tests.attack.neighbours HOST PORT

A line on standard input ends a period. The process then prints its measurements as JSON: the
milliseconds of every request by kind, and the age of a request that has no answer yet.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections.abc import Callable

from tests.attack.frames import plain
from tests.attack.layouts import scalar
from tests.attack.wire import Address, Connection, create_topic, text

TOPIC = b"neighbours"
PAUSE_S = 0.01
Ask = Callable[[Connection], object]


def requests() -> dict[str, Ask]:
    """The requests of a neighbour, by kind."""
    one = struct.pack(">i", 1)
    records = scalar("records", plain(3), flexible=False)
    produce = struct.pack(">hhii", -1, -1, 30_000, 1) + text(TOPIC) + one + b"\0\0\0\0" + records
    fetch = struct.pack(">iiiibi", -1, 0, 0, 1 << 20, 0, 1) + text(TOPIC)
    fetch += one + struct.pack(">iqi", 0, 0, 10_000)
    heartbeat = text(b"nobody") + one + text(b"member")
    configs = one + b"\x02" + text(TOPIC) + one + text(b"retention.ms")
    return {
        "produce": lambda connection: connection.ask(0, 3, produce),
        "fetch": lambda connection: connection.ask(1, 4, fetch),
        "metadata": lambda connection: connection.ask(3, 1, one + text(TOPIC)),
        "heartbeat": lambda connection: connection.ask(12, 0, heartbeat),
        "policy": lambda connection: connection.ask(32, 0, configs),
    }


class Neighbour:
    """One client: one request after the other on one connection."""

    def __init__(self, address: Address, ask: Ask) -> None:
        self._address, self._ask = address, ask
        self._taken: list[float] = []
        self._began: float | None = None
        self.errors = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        connection: Connection | None = None
        while True:
            self._began = time.perf_counter()
            try:
                connection = connection or Connection(self._address)
                self._ask(connection)
                self._taken.append(1000 * (time.perf_counter() - self._began))
            except OSError:
                self.errors += 1
                connection = None
            self._began = None
            time.sleep(PAUSE_S)

    def period(self) -> list[float]:
        taken, self._taken = self._taken, []
        began = self._began
        if began is not None and time.perf_counter() - began > 0.05:
            taken.append(1000 * (time.perf_counter() - began))
        return taken


def main() -> None:
    """Serve periods until standard input ends."""
    sys.setswitchinterval(0.0005)
    address = (sys.argv[1], int(sys.argv[2]))
    with Connection(address) as connection:
        create_topic(connection, TOPIC, 1)
    neighbours = {kind: Neighbour(address, ask) for kind, ask in requests().items()}
    print("ready", flush=True)
    for _ in sys.stdin:
        taken = {kind: each.period() for kind, each in neighbours.items()}
        errors = sum(each.errors for each in neighbours.values())
        print(json.dumps({"taken": taken, "errors": errors}), flush=True)


if __name__ == "__main__":
    main()
