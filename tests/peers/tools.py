"""Kafka's command line tools of one version, all in one Java process that a test talks to.

A tool takes a second in a process of its own, and a tenth of that in one that runs already.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers import kafka
from tests.peers.java_source import program

SOURCE = Path(__file__).with_name("Tools.java")
END = "\x04"
QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1")
PLACES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""The class behind each of Kafka's scripts, in 3.9.1 and in 4.3.0."""
ELSEWHERE = {
    ("3.9.1", "kafka-acls"): "kafka.admin.AclCommand",
    ("3.9.1", "kafka-console-producer"): "kafka.tools.ConsoleProducer",
}
"""Those that a version has elsewhere."""


class Tools:
    """`tools("kafka-topics", "--bootstrap-server", ...)` is its exit code, and what it prints."""

    def __init__(self, version: str, process: subprocess.Popen[str]) -> None:
        self.version, self._process = version, process

    def __call__(self, script: str, *words: str) -> tuple[int, str]:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        place = ELSEWHERE.get((self.version, script), PLACES[script])
        asked.write("\t".join([place, *words]) + "\n")
        asked.flush()
        lines: list[str] = []
        for line in answered:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError("".join(lines))


@contextmanager
def tools(version: str, *properties: str) -> Iterator[Tools]:
    """The tools of a version.

    properties  of Java, as `-Dname=value`

    raises  AbsentError: there are no jars
    """
    with subprocess.Popen(
        ["java", *QUICK, *properties, *program(SOURCE, kafka.jars(version))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Tools(version, process)
        assert process.stdin is not None
        process.stdin.close()


def command(version: str, main: str, *properties: str) -> list[str]:
    """The words that start a class with the jars of a version."""
    return ["java", *QUICK, *properties, "-cp", f"{kafka.jars(version)}/*", main]
