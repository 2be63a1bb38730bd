"""Apache's brokers of 2015 (0.8.2.2) and 2017 (0.10.2.2), whose topics live in a ZooKeeper.

Their jars come from Maven once, as `zookeeper.py` has it; both run on Java 17, beside which the
younger one needs a part of the Java of its days.
"""

from __future__ import annotations

import functools
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.peers.absent import AbsentError, why
from tests.peers.zookeeper import LONG_MS, fetched
from tests.ports import free_port

VERSIONS = {
    "0.8.2.2": (("org.apache.kafka", "kafka_2.10", "0.8.2.2"),),
    "0.10.2.2": (
        ("org.apache.kafka", "kafka_2.11", "0.10.2.2"),
        ("javax.xml.bind", "jaxb-api", "2.3.1"),
    ),
}
WAIT_S = 60.0
_LOGGED = Path(__file__).parents[1] / "foreign/java/log4j.properties"
_JAVA = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    f"-Dlog4j.configuration=file:{_LOGGED}",
)


def jars(version: str) -> Path:
    """The folder with the jars of a version. AbsentError: they cannot be had."""
    return fetched(version, VERSIONS[version])


@functools.cache
def missing() -> str | None:
    """Why there are no such brokers here; None: there are."""
    return why(*(functools.partial(jars, version) for version in VERSIONS))


@contextmanager
def running(
    version: str, folder: Path, zookeeper: str, settings: Mapping[str, object]
) -> Iterator[tuple[str, int]]:
    """The address of broker 0, whose log directory is `folder`/data; it stops with the block."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    lines = {
        "broker.id": 0,
        "host.name": "127.0.0.1",
        "port": port,
        "log.dirs": folder / "data",
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": LONG_MS,
        **settings,
    }
    (folder / "server.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in lines.items())
    )
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(
            [*_command(version), "kafka.Kafka", str(folder / "server.properties")],
            stdout=out,
            stderr=out,
        )
    try:
        _wait(process, port, folder / "out")
        yield "127.0.0.1", port
        process.terminate()
        process.wait(WAIT_S)
    finally:
        process.kill()
        process.wait()


def create(version: str, zookeeper: str, name: str, partitions: int, **settings: str) -> None:
    """Make a topic with that version's own tool."""
    command = [*_command(version), "kafka.admin.TopicCommand", "--zookeeper", zookeeper]
    command += ["--create", "--topic", name, "--partitions", str(partitions)]
    command += ["--replication-factor", "1"]
    for key, value in settings.items():
        command += ["--config", f"{key.replace('_', '.')}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "Created topic" in done.stdout, done.stdout + done.stderr


def _command(version: str) -> list[str]:
    return ["java", *_JAVA, "-cp", f"{jars(version)}/*"]


def _wait(process: subprocess.Popen[bytes], port: int, out: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                text = out.read_text(errors="replace")[-300:]
                raise AbsentError(f"that Kafka does not start: {text}") from None
            time.sleep(0.05)
