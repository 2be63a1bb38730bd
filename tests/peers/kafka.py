"""Apache Kafka beside krust (kafka.sh), for tests and benches: its jars, and a broker of it."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.peers.absent import AbsentError, fetching, need_java_and_maven, why
from tests.ports import free_ports

SCRIPT = Path(__file__).with_name("kafka.sh")
VERSIONS = ("3.9.1", "4.3.0")
TRIES = 3
WAIT_S = 60
CREATE_TOPICS = 19


def jars(version: str, *artifacts: str) -> Path:
    """The folder with the jars of a Kafka; fetches them if they are missing.

    artifacts  others than a broker and its tools, such as kafka-streams

    raises  AbsentError: no Java, no Maven, or Maven has none for us
    """
    need_java_and_maven()
    with fetching():
        run = _script("jars", version, *artifacts)
    if run.returncode:
        raise AbsentError(f"Maven has no jars for us: {(run.stderr or run.stdout)[-200:]}")
    return Path(run.stdout.strip())


@functools.cache
def missing() -> str | None:
    """Why jars of some version are missing; None: all are there."""
    return why(*(functools.partial(jars, version) for version in VERSIONS))


@contextmanager
def running(
    version: str,
    folder: Path,
    settings: Mapping[str, object],
    before: Callable[[str], object] = str,
    zookeeper: str | None = None,
) -> Iterator[str]:
    """The address of a Kafka in `folder`, which may hold what an earlier one left; `before` hears
    it before it is served.

    settings   "{bootstrap}" in a value is replaced by the address, "{controller}" by that of a
               controller in KRaft
    zookeeper  HOST:PORT[/CHROOT] of one that runs; None: a Kafka that wants one brings its own

    On a busy machine it may open its port and die: it misses the session of its own ZooKeeper.
    Then it is started again.

    raises  AbsentError: there are no jars, or it does not start
    """
    jars(version)
    ports = free_ports(2)
    bootstrap = f"127.0.0.1:{ports[0]}"
    extra = "\n".join(f"{key}={value}" for key, value in settings.items())
    extra = extra.replace("{bootstrap}", bootstrap)
    extra = extra.replace("{controller}", f"127.0.0.1:{ports[1]}")
    before(bootstrap)
    try:
        for _ in range(TRIES):
            places = str(ports[0]), zookeeper or str(ports[1])
            run = _script("start", version, str(folder), *places, EXTRA=extra)
            if run.returncode == 0 and _serves(bootstrap):
                break
            _script("stop", str(folder))
        else:
            raise AbsentError(f"Kafka does not start: {(run.stderr or run.stdout)[-300:]}")
        yield bootstrap
    finally:
        _script("stop", str(folder))


@contextmanager
def several(
    version: str, folder: Path, count: int, zookeeper: str, settings: Mapping[str, object]
) -> Iterator[list[str]]:
    """The addresses of brokers 1 to `count` on one ZooKeeper; the first one is the controller.

    raises  AbsentError: as `running`
    """
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running(
                    version,
                    folder / str(number),
                    {**settings, "broker.id": number},
                    zookeeper=zookeeper,
                )
            )
            for number in range(1, count + 1)
        ]


def pid(folder: Path) -> int:
    """The process of the Kafka that runs in `folder`."""
    return int((folder / "pids").read_text().split()[-1])


def _script(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **more},
    )


def _serves(bootstrap: str) -> bool:
    """Whether the broker answers there and creates topics; an open port is not enough."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from krust import _krust

    end = time.monotonic() + WAIT_S
    admin = AdminClient({"bootstrap.servers": bootstrap})
    while True:
        try:
            admin.list_topics(timeout=WAIT_S)
            break
        except KafkaException as error:
            # It knows no broker until its controller has logged in at it.
            if error.args[0].code() != KafkaError._PARTIAL or time.monotonic() > end:
                return False
            time.sleep(0.1)
    while CREATE_TOPICS not in {key for key, *_ in _krust.Client(bootstrap).versions()}:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
