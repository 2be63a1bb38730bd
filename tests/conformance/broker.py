"""A krust that is started for one foreign suite and stopped after it: one broker, or several over
a ZooKeeper.

Production mode, since the suites were written against Kafka's defaults; a temporary data directory;
`ready.json` says when clients can connect.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from krust._krust import Client
from tests.peers import zookeeper as peer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START_LIMIT_S = 30
REPLICAS = 3


@contextlib.contextmanager
def serving(settings: Mapping[str, str], *, port: int = 0, brokers: int = 1) -> Iterator[str]:
    """Run `krust serve` with `settings`; yield its bootstrap address.

    port     of the broker whose address it is; other brokers are anywhere
    brokers  several are numbered from 0; the address is that of the last, which does not hold the
             controller: the suite has to find the controller from there. Internal topics and
             topics of the default replication factor have a replica on up to REPLICAS of them
    raises   RuntimeError: it ended, or was not ready within START_LIMIT_S, with its stderr;
             AbsentError: several, and no ZooKeeper for them
    """
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if brokers == 1:
            yield stack.enter_context(_broker(folder, "--port", str(port), *options))
            return
        (folder / "zk").mkdir()
        ensemble = stack.enter_context(peer.running(folder / "zk"))
        options += ["--zookeeper", f"{ensemble.connect}/kafka"]
        for key in ("default.replication.factor", "offsets.topic.replication.factor"):
            options += ["-o", f"{key}={min(brokers, REPLICAS)}"]
        places = []
        for number in range(brokers):
            own = ["--node-id", str(number), "--port", str(port if number == brokers - 1 else 0)]
            places.append(stack.enter_context(_broker(folder / f"{number}", *options, *own)))
        _acquainted(places)
        yield places[-1]


@contextlib.contextmanager
def _broker(folder: Path, *flags: str) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "krust", "serve", "--prod"]
    command += ["--data-dir", f"{folder}/data", "--ready-file", str(ready), *flags]
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
    try:
        yield _bootstrap(process, ready, Path(stderr.name))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        process.wait(START_LIMIT_S)


def _bootstrap(process: subprocess.Popen[bytes], ready: Path, stderr: Path) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready.exists():
            return str(json.loads(ready.read_text())["bootstrap"])
        time.sleep(0.01)
    raise RuntimeError(f"krust serve is not ready: {stderr.read_text()}")


def _acquainted(places: list[str]) -> None:
    """Return when every broker tells clients of all."""
    deadline = time.monotonic() + START_LIMIT_S
    for place in places:
        client = Client(place)
        while len(client.request("Metadata", {"topics": []})["brokers"]) < len(places):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the broker at {place} does not know all others")
            time.sleep(0.01)
