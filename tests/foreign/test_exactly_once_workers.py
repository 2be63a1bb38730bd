"""A Kafka Streams application with `exactly_once_v2` and a Connect worker with
`exactly.once.source.support`, of 3.9.1 and 4.3.0: the worker and the broker are killed by turns,
and a read_committed reader sees each result once.

`make exactly-once` runs them, KRUST_WORKER_KILLS times (2); without it they are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import krust
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.peers.java_source import program
from tests.ports import free_port
from tests.serving import AT_ONCE, ServedBroker
from tests.waiting import WAIT_S, until

KILLS = int(os.environ.get("KRUST_WORKER_KILLS", "0"))
pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(300 + 120 * KILLS),
    pytest.mark.skipif(not KILLS, reason="it is long: make exactly-once"),
]

INPUT, OUTPUT, PARTITIONS = "input", "output", 2
KEYS, EACH = 5, 400
"""each key, and each turn, has so many records"""
ARTIFACTS = ("kafka-streams", "connect-runtime", "connect-file")


@pytest.fixture(params=kafka.VERSIONS)
def lib(request: pytest.FixtureRequest) -> Path:
    """The jars of Streams and Connect of a version."""
    try:
        return kafka.jars(request.param, *ARTIFACTS)
    except AbsentError as error:
        pytest.skip(str(error))


class Worker:
    """A program of Java that is killed and started again; one that gives up is started too."""

    def __init__(self, log: Path, words: list[str]) -> None:
        self._log, self._words = log, ["java", "-Xmx512m", *words]
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=subprocess.STDOUT)

    def keep(self) -> None:
        """Start it again if it has ended."""
        if self._process.poll() is not None:
            self._start()

    def kill(self) -> None:
        """Kill it without warning, and start it again."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-3000:]


class Killed:
    """A broker on one directory and one port, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._data, self._port = folder / "data", free_port()
        self.start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
        ).values():
            made.result(WAIT_S)

    def start(self) -> None:
        options: dict[str, object] = {**AT_ONCE, "transaction.state.log.num.partitions": 4}
        options["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = 500
        self.broker = ServedBroker(self._data, "--prod", port=self._port, options=options)
        self.bootstrap = self.broker.bootstrap

    def kill(self) -> None:
        """Kill it without warning, and start it again."""
        self.broker.kill()
        self.start()


@contextmanager
def served(folder: Path) -> Iterator[Killed]:
    """A broker with both topics."""
    killed = Killed(folder)
    try:
        yield killed
    finally:
        killed.broker.stop()


class Reader:
    """Reads the committed records of the output: key and value."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "reads"}
        settings |= {"isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({**settings, "reconnect.backoff.max.ms": 100})
        places = [TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)]
        self._consumer.assign(places)
        self.found: list[tuple[bytes | None, bytes | None]] = []

    def until_count(self, worker: Worker, count: int) -> None:
        """Read until there are so many."""
        deadline = time.monotonic() + 3 * WAIT_S
        while len(self.found) < count:
            assert time.monotonic() < deadline, (len(self.found), count, worker.log())
            worker.keep()
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    self.found.append((message.key(), message.value()))

    def close(self) -> None:
        self._consumer.close()


def killed_by_turns(
    served: Killed, worker: Worker, write: Callable[[int], None], turn_count: int
) -> Reader:
    """Write, and kill the worker or the broker in the middle of what follows; all of the output."""
    reader = Reader(served.bootstrap)
    turns = 2 * KILLS + 1
    for turn in range(turns):
        write(turn)
        reader.until_count(worker, turn * turn_count + turn_count // 3)
        if turn < turns - 1:
            (worker.kill if turn % 2 == 0 else served.kill)()
    reader.until_count(worker, turns * turn_count)
    return reader


def test_a_streams_application_counts_each_record_once(lib: Path, tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        source = Path(__file__).parent / "java/Counts.java"
        words = [*program(source, lib), broker.bootstrap, INPUT, OUTPUT]
        worker = Worker(tmp_path / "streams.log", [*words, str(tmp_path / "state")])

        def write(turn: int) -> None:
            writer = Producer({"bootstrap.servers": broker.bootstrap})
            for number in range(KEYS * EACH):
                writer.produce(INPUT, f"{turn}-{number}", key=f"k{number % KEYS}")
            assert writer.flush(WAIT_S) == 0

        try:
            reader = killed_by_turns(broker, worker, write, KEYS * EACH)
        finally:
            worker.stop()
        reader.close()
        counts: dict[bytes | None, list[int]] = {}
        for key, value in reader.found:
            counts.setdefault(key, []).append(int(value or 0))
        total = (2 * KILLS + 1) * EACH
        assert counts == {f"k{key}".encode(): list(range(1, total + 1)) for key in range(KEYS)}


def test_a_source_connector_writes_each_line_of_a_file_once(lib: Path, tmp_path: Path) -> None:
    rest = free_port()
    lines = tmp_path / "lines"
    lines.touch()
    with served(tmp_path) as broker:
        properties = tmp_path / "worker.properties"
        properties.write_text(worker_settings(broker.bootstrap, rest))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        worker = Worker(tmp_path / "connect.log", ["-cp", f"{lib}/*", main, str(properties)])
        connector = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(lines),
            "topic": OUTPUT,
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        }
        until(lambda: put(f"http://127.0.0.1:{rest}/connectors/lines/config", connector))

        pool = ThreadPoolExecutor(1)

        def write(turn: int) -> None:
            pool.submit(append_slowly, lines, range(turn * EACH, turn * EACH + EACH))

        try:
            reader = killed_by_turns(broker, worker, write, EACH)
        finally:
            worker.stop()
            pool.shutdown()
        reader.close()
        total = (2 * KILLS + 1) * EACH
        assert sorted(int(value or -1) for _, value in reader.found) == list(range(total))
        with krust.Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert {each.transactional_id for each in admin.list_transactions()} >= {
                "copies-lines-0"
            }


def append_slowly(lines: Path, numbers: range) -> None:
    """Append a line for each number: a task that has read part of a file ends a transaction."""
    for start in range(0, len(numbers), 10):
        with lines.open("a") as file:
            file.write("".join(f"{number}\n" for number in numbers[start : start + 10]))
        time.sleep(0.05)


def worker_settings(bootstrap: str, rest: int) -> str:
    """The properties of a distributed worker that writes each record once."""
    plain = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "copies",
        "listeners": f"http://127.0.0.1:{rest}",
        "plugin.discovery": "service_load",
        "key.converter": plain,
        "value.converter": plain,
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "producer.transaction.timeout.ms": "10000",
    }
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = f"connect-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def put(url: str, body: object) -> bool:
    """PUT a document; whether it was taken."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="PUT")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(200 <= answer.status < 300)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
