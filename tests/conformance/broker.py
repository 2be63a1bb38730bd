"""A krust that is started for one foreign suite and stopped after it: one broker, or several over
a ZooKeeper. Each has a listener of every security protocol.

Production mode, since the suites were written against Kafka's defaults; a temporary data directory;
`ready.json` says when clients can connect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from krust._krust import Client
from tests.certificates import Authority
from tests.conformance.access import PROTOCOLS, Access, add_user, listener_settings
from tests.peers import zookeeper as peer
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START_LIMIT_S = 30
REPLICAS = 3


@contextlib.contextmanager
def serving(
    settings: Mapping[str, str], *, protocol: str, port: int = 0, brokers: int = 1
) -> Iterator[Access]:
    """Run `krust serve` with `settings`; yield how clients reach it.

    protocol  of the listener that they use
    port      of that listener of the broker whose address they get; others are anywhere
    brokers   several are numbered from 0; the address is that of the last, which does not hold the
              controller: the suite has to find the controller from there. Internal topics and
              topics of the default replication factor have a replica on up to REPLICAS of them
    raises    RuntimeError: it ended, or was not ready within START_LIMIT_S, with its stderr;
              AbsentError: several, and no ZooKeeper for them
    """
    options = dict(settings)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        authority = Authority(folder / "authority")
        if brokers == 1:
            (folder / "0").mkdir()
            add_user(folder, "--data-dir", str(folder / "0/data"))
        else:
            (folder / "zk").mkdir()
            place = f"{stack.enter_context(peer.running(folder / 'zk')).connect}/kafka"
            add_user(folder, "--zookeeper", place)
            options["zookeeper.connect"] = place
            for key in ("default.replication.factor", "offsets.topic.replication.factor"):
                options[key] = str(min(brokers, REPLICAS))
        places = []
        for number in range(brokers):
            at = _addresses(protocol, port if number == brokers - 1 else 0)
            own = {**options, **listener_settings(authority, at)}
            own |= {"broker.id": str(number)} if brokers > 1 else {}
            stack.enter_context(_broker(folder / f"{number}", own))
            places.append(at)
        _acquainted([at["PLAINTEXT"] for at in places])
        yield Access(places[-1], protocol, authority.certificate)


def _addresses(protocol: str, port: int) -> dict[str, str]:
    """An address for each protocol; that of `protocol` is the first, at `port` unless it is 0."""
    others = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    first = others.pop(protocol)
    ports = {protocol: port or first, **others}
    return {each: f"127.0.0.1:{chosen}" for each, chosen in ports.items()}


@contextlib.contextmanager
def _broker(folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "krust", "serve", "--prod"]
    command += ["--data-dir", f"{folder}/data", "--ready-file", str(ready)]
    command += [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
    try:
        _await_ready(process, ready, Path(stderr.name))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        process.wait(START_LIMIT_S)


def _await_ready(process: subprocess.Popen[bytes], ready: Path, stderr: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready.exists():
            return
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
