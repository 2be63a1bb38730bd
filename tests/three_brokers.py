"""One command or client against three brokers: krust, Apache Kafka 3.9 and 4.3.

Each runs once in a worker, for all folders whose tests ask for the fixture `krust`.

Without Java or Maven the two are skipped, and say so. `KRUST_TEST_KAFKA39=host:port` and
`KRUST_TEST_KAFKA43=host:port` name brokers that run already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from krust._krust import Client
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.serving import AT_ONCE, ServedBroker


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """One JSON object a line."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Command:
    """`krust`, bound to a broker."""

    bootstrap: str

    def argv(self, *args: str, timeout: str = "60s") -> list[str]:
        first = ["-b", self.bootstrap, "--timeout", timeout]
        return [sys.executable, "-m", "krust", *first, *args]

    def __call__(self, *args: str, given: bytes = b"", timeout: str = "60s") -> CommandResult:
        run = subprocess.run(
            self.argv(*args, timeout=timeout),
            input=given,
            capture_output=True,
            check=False,
            timeout=100,
        )
        return CommandResult(run.returncode, run.stdout, run.stderr.decode())

    def ok(self, *args: str, given: bytes = b"") -> CommandResult:
        done = self(*args, given=given)
        assert done.code == 0, done.err
        return done


# Tests write records of 2020: the first check of retention would take them in the middle of a test.
SHARED = AT_ONCE | {"log.retention.ms": -1}


def _kafka(which: str, folder: Path) -> Iterator[str]:
    running = os.environ.get(f"KRUST_TEST_{which.upper()}")
    if running:
        yield running
        return
    version = {"kafka39": "3.9.1", "kafka43": "4.3.0"}[which]
    try:
        with kafka.running(version, folder, SHARED) as bootstrap:
            yield bootstrap
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.fixture(
    scope="session",
    params=[
        "krust",
        pytest.param("kafka39", marks=[pytest.mark.java, pytest.mark.timeout(600)]),
        pytest.param("kafka43", marks=[pytest.mark.java, pytest.mark.timeout(600)]),
    ],
)
def krust(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    """The command, against each broker in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "krust":
        with ServedBroker(folder / "data", "--prod", options=SHARED) as broker:
            yield Command(broker.bootstrap)
    else:
        for bootstrap in _kafka(request.param, folder):
            yield Command(bootstrap)


def leader_count(bootstrap: str, name: str) -> int:
    """The number of partitions of a topic that have leaders, as a broker names them."""
    client = Client(bootstrap)
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    known = [each["node_id"] for each in client.request("Metadata", {"topics": []})["brokers"]]
    answers = [client.request("Metadata", asked, broker=each)["topics"][0] for each in known]
    counts = [sum(p["leader_id"] >= 0 for p in each["partitions"]) for each in answers]
    return min(counts, default=0)
