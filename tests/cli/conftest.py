"""The client commands, run as processes against three brokers (see tests/three_brokers.py)."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.three_brokers import Command, leader_count
from tests.waiting import until

_NUMBER = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A topic's name that nothing else uses."""
    return f"cli-{os.getpid()}-{next(_NUMBER)}"


@pytest.fixture
def topic(krust: Command, name: str) -> str:
    """A new topic with three partitions, which the broker knows."""
    krust.ok("topic", "create", f"{name}:3")
    until(lambda: leader_count(krust.bootstrap, name) == 3)
    return name
