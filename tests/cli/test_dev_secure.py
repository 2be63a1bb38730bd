"""`krust dev --secure`: clients of other projects with exactly the configuration that it prints."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from krust.properties import properties
from tests.peers import kafka, tools
from tests.serving import environment
from tests.waiting import WAIT_S, until

pytest.importorskip("cryptography")

CLIENTS = ("krust", "kcat", "Java", "confluent-kafka", "kafka-python", "aiokafka")
CALLS = {"Producer": lambda config: config, "KafkaProducer": dict, "AIOKafkaProducer": dict}


class Dev(NamedTuple):
    """A running `krust dev --secure`."""

    printed: str
    folder: Path
    bootstrap: str

    def line(self, client: str) -> str:
        """What it printed for a client."""
        found = re.search(rf"^    {re.escape(client)} +(.*)$", self.printed, re.MULTILINE)
        assert found is not None, self.printed
        return found[1]

    def settings(self, client: str, **other: object) -> dict[str, Any]:
        """The arguments in the line of a client in Python."""
        given: dict[str, Any] = eval(self.line(client), {**CALLS, "ssl": ssl})
        return {**given, **other}

    def file(self, name: str) -> str:
        return (self.folder / name).read_text()

    @property
    def users(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.file("secure.json"))["users"]
        return found


@contextmanager
def dev(folder: Path, *words: str) -> Iterator[Dev]:
    ready, said = folder / "ready", folder / "said"
    command = [sys.executable, "-m", "krust", "dev", "--secure", "--port", "0", *words]
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [*command, "--ready-file", str(ready)], stderr=errors, env=environment()
        ) as process,
    ):
        while not ready.exists():
            assert process.poll() is None, said.read_text()
            time.sleep(0.01)
        details = json.loads(ready.read_text())
        while "Ctrl-C" not in said.read_text():
            time.sleep(0.01)
        yield Dev(said.read_text(), Path(details["security"]), details["bootstrap"])
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0, said.read_text()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with dev(tmp_path_factory.mktemp("dev"), "-n", "2", "-o", "num.partitions=2") as made:
        yield made


def ran(*command: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=given, capture_output=True, timeout=WAIT_S, check=False)


def krust(line: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Another command by the line that was printed for `krust`."""
    first, option, file = shlex.split(line)[:3]
    assert first == "krust"
    return ran(sys.executable, "-m", first, "--timeout", "60s", option, file, *words, given=given)


def records(running: Dev, topic: str) -> list[bytes]:
    done = krust(running.line("krust"), "consume", topic, "-o", "start", "-e")
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def test_krusts_commands_use_the_printed_file(running: Dev) -> None:
    line = running.line("krust")
    assert ran(sys.executable, "-m", *shlex.split(line)).returncode == 0
    assert krust(line, "produce", "of-krust", given=b"a\nb\n").returncode == 0
    assert records(running, "of-krust") == [b"a", b"b"]
    denied = krust(line, "user", "list", "-X", "sasl.password=guess", "-b", running.bootstrap)
    assert denied.returncode == 7, denied.stderr
    assert krust(line, "topic", "list", "-b", "127.0.0.1:1", "--timeout", "1s").returncode == 4
    missing = ran(sys.executable, "-m", "krust", "topic", "list", "-F", "no-file")
    assert (missing.returncode, b"No such file" in missing.stderr) == (2, True)
    admin = ("-F", str(running.folder / "admin.properties"))
    assert b"alice" in ran(sys.executable, "-m", "krust", "user", "list", *admin).stdout


def test_confluent_kafka(running: Dev) -> None:
    from confluent_kafka import Producer

    producer = Producer(running.settings("confluent-kafka"))
    producer.produce("of-confluent", b"a")
    assert producer.flush(WAIT_S) == 0
    assert records(running, "of-confluent") == [b"a"]
    failures: list[object] = []
    wrong = {"sasl.password": "guess", "error_cb": failures.append}
    refused = Producer(running.settings("confluent-kafka", **wrong))
    until(lambda: refused.poll(0.1) or failures)
    assert "uthentication failed" in str(failures)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kafka_python(running: Dev) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(**running.settings("kafka-python"))
    producer.send("of-kafka-python", b"a").get(WAIT_S)
    producer.close()
    assert records(running, "of-kafka-python") == [b"a"]
    wrong = {"sasl_plain_password": "guess", "bootstrap_timeout_ms": 2_000}
    with pytest.raises(Exception, match=r"(?i)authentication|bootstrap|brokers") as told:
        KafkaProducer(**running.settings("kafka-python", **wrong))
    told.value.__traceback__ = None
    gc.collect()  # it leaves sockets open when it cannot log in


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_aiokafka(running: Dev) -> None:
    from aiokafka import AIOKafkaProducer

    async def write(**other: object) -> None:
        producer = AIOKafkaProducer(**running.settings("aiokafka", **other))
        try:
            await producer.start()
            await producer.send_and_wait("of-aiokafka", b"a")
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), WAIT_S))
    assert records(running, "of-aiokafka") == [b"a"]
    with pytest.raises(Exception, match=r"(?i)authentication|bootstrap|brokers") as told:
        asyncio.run(asyncio.wait_for(write(sasl_plain_password="guess"), WAIT_S))
    told.value.__traceback__ = None
    gc.collect()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(running: Dev, tmp_path: Path) -> None:
    line = shlex.split(running.line("kcat"))
    listed = ran(*line)
    assert (listed.returncode, b" 2 brokers" in listed.stdout) == (0, True), listed.stderr
    wrote = ran(*line[:-1], "-P", "-t", "of-kcat", given=b"a\n")
    assert wrote.returncode == 0, wrote.stderr
    assert records(running, "of-kcat") == [b"a"]
    wrong = tmp_path / "wrong.conf"
    wrong.write_text(running.file("alice.conf").replace(running.users["alice"], "guess"))
    refused = ran("kcat", "-F", str(wrong), "-L", "-m", "5")
    assert refused.returncode != 0
    assert b"uthentication failed" in refused.stderr


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.skipif("kafka.missing() is not None", reason="no jars of Kafka")
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_kafkas_own_tools(running: Dev, tmp_path: Path, version: str) -> None:
    line = shlex.split(running.line("Java"))
    topic = f"of-java-{version}"
    with tools.tools(version) as run:
        listed = run("kafka-topics", *line[1:])
        assert listed[0] == 0, listed
        file = line[line.index("--command-config") + 1]
        place = tools.ELSEWHERE.get((version, "kafka-console-producer"))
        producer = place or tools.PLACES["kafka-console-producer"]
        at = ("--bootstrap-server", running.bootstrap, "--topic", topic)
        option = "--command-config" if version >= "4.2" else "--producer.config"
        wrote = ran(*tools.command(version, producer), *at, option, file, given=b"a\n")
        assert wrote.returncode == 0, wrote.stderr
        assert records(running, topic) == [b"a"]
        wrong = tmp_path / "wrong.properties"
        text = running.file("client.properties")
        wrong.write_text(text.replace(running.users["alice"], "guess"))
        line[line.index(file)] = str(wrong)
        code, said = run("kafka-topics", *line[1:])
        assert (code, "invalid credentials" in said) == (1, True), said


def test_the_files_are_the_owners_alone_and_the_printed_users_are_those_in_them(
    running: Dev,
) -> None:
    assert stat.S_IMODE(running.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in running.folder.iterdir()} == {0o600}
    for name, password in running.users.items():
        assert re.search(rf"{name} +{password}", running.printed)
    of_alice = properties(running.file("alice.properties"))
    assert of_alice == properties(running.file("client.properties"))
    assert of_alice["bootstrap.servers"] == running.bootstrap
    assert all(running.line(client) for client in CLIENTS)


def test_users_that_are_named_are_kept_with_the_data_and_may_nothing_without_acls(
    tmp_path: Path,
) -> None:
    data = ("-n", "1", "--data-dir", str(tmp_path / "a b"))
    named = ("--user", "bob:bob's: secret", "--user", "carl", "--no-acls-for-users")
    with dev(tmp_path, *data, *named) as first:
        users, authority = first.users, first.file("ca.pem")
        assert list(users) == ["admin", "bob", "carl"]
        assert users["bob"] == "bob's: secret"
        denied = krust(first.line("krust"), "produce", "t", given=b"a\n")
        assert denied.returncode == 7, denied.stderr
        admin = ("-F", str(first.folder / "admin.properties"))
        granted = ran(
            *(sys.executable, "-m", "krust", "acl", "grant", "User:bob", *admin),
            *("--operation", "all", "--topic", "t"),
        )
        assert granted.returncode == 0, granted.stderr
        assert krust(first.line("krust"), "produce", "t", given=b"a\n").returncode == 0
    with dev(tmp_path, *data) as second:
        assert (second.users, second.file("ca.pem")) == (users, authority)
        assert krust(second.line("krust"), "produce", "t", given=b"b\n").returncode == 0
        assert records(second, "t") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--user", "a:b"), "need --secure"),
        (("--secure", "--user", "a b:c"), "is no name of a user"),
        (("--secure", "--zookeeper", "localhost:1/k"), "users of other brokers"),
        (("--secure", "-o", "listeners=PLAINTEXT://:0"), "secure makes the listeners"),
    ],
)
def test_what_cannot_be_is_refused_before_a_broker_starts(
    words: tuple[str, ...], said: str
) -> None:
    done = ran(sys.executable, "-m", "krust", "dev", "--port", "0", *words)
    assert (done.returncode, said in done.stderr.decode()) == (2, True), done.stderr
    assert os.fsencode("Traceback") not in done.stderr
