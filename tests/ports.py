"""Ports for servers that need a fixed port, before they start or when they come back.

The kernel takes port 0 and the ports of outgoing connections from one range, so another process may
get the port of a stopped server. The ports here are below that range. Each worker of pytest-xdist
has its own, and gives none out twice in a row. The process locks a file for each port until it
ends, so another test run on this machine does not take it.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

FIRST, EACH, WORKERS = 12_000, 1250, 16


def _places() -> range:
    worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", ""))
    begin = FIRST + int(worker or 0) % WORKERS * EACH
    return range(begin, begin + EACH)


_OURS = _places()
_LOCKS = Path(tempfile.gettempdir()) / f"krust-ports-{os.getuid()}"
_locked: dict[int, int] = {}
"""port -> the descriptor of its locked file"""
_next = random.Random(os.getpid()).randrange(EACH)


def free_ports(count: int) -> list[int]:
    """This many consecutive ports on which nobody listens."""
    global _next
    for _ in range(EACH):
        begin = _OURS[_next % (EACH - count)]
        _next = (_next % (EACH - count)) + count
        found = [*range(begin, begin + count)]
        if all(map(_lock, found)) and _are_free(found):
            return found
    raise OSError(f"no {count} free ports from {_OURS.start} on")


def free_port() -> int:
    """One free port."""
    return free_ports(1)[0]


def _lock(port: int) -> bool:
    """Whether this process got the port; no other process of this user gets it meanwhile."""
    if port not in _locked:
        _LOCKS.mkdir(exist_ok=True)
        descriptor = os.open(_LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        _locked[port] = descriptor
    return True


def _are_free(ports: list[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            tried = stack.enter_context(socket.socket())
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
