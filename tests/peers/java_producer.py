"""A transactional producer of Kafka's Java client, of any version since 0.11, beside a test."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

from tests.peers import kafka
from tests.peers.java_source import program
from tests.peers.zookeeper import fetched

PROGRAM = Path(__file__).parents[1] / "foreign/java/Transactions.java"
_JAVA = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars(version: str) -> Path:
    """The folder with the jars of a client. AbsentError: they cannot be had."""
    if version in kafka.VERSIONS:
        return kafka.jars(version)
    return fetched(f"client-{version}", (("org.apache.kafka", "kafka-clients", version),))


class JavaProducer:
    """A process that has called `initTransactions`.

    settings  Kafka's keys with `_` for `.`
    raises    AbsentError: there are no jars
    """

    def __init__(
        self, version: str, bootstrap: str, transactional_id: str, folder: Path, **settings: object
    ) -> None:
        command = ["java", *_JAVA, *program(PROGRAM, jars(version))]
        command += [bootstrap, transactional_id]
        command += [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        self._errors = folder / f"{transactional_id}.err"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._answer() == "done", self._why()

    def __call__(self, *words: object) -> str:
        """What it answers to a line: `done`, or the name of an exception."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def ok(self, *words: object) -> None:
        """A line that ends well."""
        assert self(*words) == "done", self._why()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _why(self) -> str:
        return self._errors.read_text()[-2000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
