"""Kafka's `kafka-consumer-groups` (ConsumerGroupCommand), 3.9.1 and 4.3.0, on a group with a member
and on the same group after the member left; and on a group of KIP-848.

A check is its command line and what the tool must print: a pattern over its output with every run
of blanks as one. The member is librdkafka; it has read ten records of each of two partitions.
"""

from __future__ import annotations

import re
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.conformance.suites import java_tools
from tests.peers import kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.access import Access

SETTINGS: dict[str, str] = {}
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
NEEDS, prepare = java_tools.NEEDS, java_tools.prepare
VERSIONS = tuple(java_tools.API_VERSIONS)
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LIMIT_S = 120
TIMEOUT_MS = "60000"  # the tool's own 5 s are short for a JVM on a busy machine
RECORDS, PARTITIONS = 10, 2
REFUSED = (
    (
        "reset-offsets is refused",
        "--reset-offsets --group g --to-earliest --topic t --execute",
        r"can only be reset if the group 'g' is inactive, but the current state is Stable",
    ),
    ("delete is refused", "--delete --group g", r"'g' could not be deleted .*GroupNotEmpty"),
)
JOINED = (
    ("list", "--list", r"^g$"),
    ("list --state", "--list --state", r"^g Stable"),
    ("list of a state", "--list --state Stable", r"^g Stable"),
    ("list of another state", "--list --state Empty", r"STATE\s*\Z"),
    ("list --type", "--list --type", r"(?i)^g classic"),
    ("list of a type", "--list --type classic", r"(?i)^g classic"),
    ("describe --offsets", "--describe --group g --offsets", r"^g t 1 10 10 0 m-\S+ /\S+ m$"),
    ("describe --members", "--describe --group g --members", r"^g m-\S+ /\S+ m 2"),
    ("describe --members --verbose", "--describe --group g --members --verbose", r" m 2 .*0,1"),
    ("describe --state", "--describe --group g --state", r"^g \S+ \(\d+\) range Stable 1$"),
    ("describe --all-groups", "--describe --all-groups --offsets", r"^g t 0 10 10 0 m-"),
    *REFUSED,
    (
        "delete-offsets is refused",
        "--delete-offsets --group g --topic t",
        r"t 0 Error: .*GroupSubscribedToTopic",
    ),
)
RESET = "--reset-offsets --group g --topic t:0 --dry-run"
LEFT = (
    ("describe without members", "--describe --group g", r"^g t 1 10 10 0 - - -$"),
    ("describe no --members", "--describe --group g --members", r"#PARTITIONS\s*\Z"),
    ("describe --state Empty", "--describe --group g --state", r"^g \S+ \(\d+\).* Empty 0$"),
    ("reset --to-earliest", f"{RESET} --to-earliest", r"g t 0 0\b"),
    ("reset --to-latest", f"{RESET} --to-latest", r"g t 0 10\b"),
    ("reset --to-offset", f"{RESET} --to-offset 4", r"g t 0 4\b"),
    ("reset --shift-by", f"{RESET} --shift-by -2", r"g t 0 8\b"),
    ("reset --by-duration", f"{RESET} --by-duration PT1H", r"g t 0 0\b"),
    ("reset --to-datetime", f"{RESET} --to-datetime 2020-01-01T00:00:00.000", r"g t 0 0\b"),
    ("reset --to-current", f"{RESET} --to-current", r"g t 0 10\b"),
    ("a dry run changes nothing", "--describe --group g", r"^g t 0 10 10 0"),
    (
        "reset --execute",
        "--reset-offsets --group g --all-topics --to-offset 3 --execute",
        r"g t 1 3\b",
    ),
    (
        "reset --export",
        "--reset-offsets --group g --all-topics --to-current --export --dry-run",
        r"^\"?t\"?,1,3$",
    ),
    (
        "reset --from-file",
        "--reset-offsets --group g --from-file {folder}/plan.csv --execute",
        r"g t 1 6\b",
    ),
    ("describe what was reset", "--describe --group g", r"^g t 0 5 10 5"),
    ("delete-offsets", "--delete-offsets --group g --topic t:0", r"t 0 Successful"),
    ("describe what is left", "--describe --group g", r"LAG[^\n]*\n+g t 1 6 10 4 - - - *\n*\Z"),
    ("delete", "--delete --group g", r"^Deletion of requested consumer groups \('g'\) was succ"),
    ("list nothing", "--list", r"\A\s*\Z"),
    ("describe what is gone", "--describe --group g", r"Error: .*(?:not exist|not found)"),
    ("delete what is gone", "--delete --group g", r"'g' could not be deleted .*GroupIdNotFound"),
)

CONSUMER = (
    ("list --type", "--list --type", r"(?i)^g consumer"),
    ("list of a type", "--list --type consumer", r"(?i)^g consumer"),
    ("list of the other type", "--list --type classic", r"TYPE\s*\Z"),
    ("describe --offsets", "--describe --group g --offsets", r"^g t 1 10 10 0 \S+ /\S+ m$"),
    ("describe --members", "--describe --group g --members", r"^g \S+ /\S+ m 2"),
    ("describe --members --verbose", "--describe --group g --members --verbose", r" m 2 .*0,1"),
    ("describe --state", "--describe --group g --state", r"^g \S+ \(\d+\) uniform Stable 1$"),
    *REFUSED,
)
CONSUMER_LEFT = (
    ("describe --state Empty", "--describe --group g --state", r"^g \S+ \(\d+\).* Empty 0$"),
    ("reset --execute", f"{RESET.removesuffix('dry-run')}execute --to-offset 4", r"g t 0 4\b"),
    ("describe what was reset", "--describe --group g", r"^g t 0 4 10 6"),
    ("delete", "--delete --group g", r"^Deletion of requested consumer groups \('g'\) was succ"),
)


def run(cache: Path, access: Access) -> dict[str, bool]:
    """Run all checks with each version; its group and topic are new."""
    outcomes: dict[str, bool] = {}
    (cache / "plan.csv").write_text('"t",0,5\n"t",1,6\n')
    (cache / "client.properties").write_text(access.java)
    for version in VERSIONS:
        with _topic(access):
            with _member(access, "classic"):
                outcomes |= _checks(cache, version, access, JOINED)
            outcomes |= _checks(cache, version, access, LEFT)
            with _member(access, "consumer"):
                found = _checks(cache, version, access, CONSUMER)
            found |= _checks(cache, version, access, CONSUMER_LEFT)
            outcomes |= {f"{name} (KIP-848)": passed for name, passed in found.items()}
    return outcomes


def _checks(
    cache: Path, version: str, access: Access, table: tuple[tuple[str, str, str], ...]
) -> dict[str, bool]:
    outcomes = {}
    for name, line, pattern in table:
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka.jars(version)}/*"]
        command += [TOOL, "--bootstrap-server", access.bootstrap, "--timeout", TIMEOUT_MS]
        command += ["--command-config", str(cache / "client.properties")]
        command += line.format(folder=cache).split()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        output = re.sub(r"[ \t]+", " ", done.stdout)
        output = "\n".join(each.rstrip() for each in output.splitlines())
        passed = re.search(pattern, output, re.MULTILINE) is not None
        outcomes[f"{version}: {name}"] = passed
        if not passed:
            print(f"{version}: {line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return outcomes


@contextmanager
def _topic(access: Access) -> Iterator[None]:
    """Topic `t` with RECORDS in each of its partitions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"bootstrap.servers": access.bootstrap, **access.librdkafka}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", PARTITIONS, -1)])["t"].result(LIMIT_S)
    producer = Producer(settings)
    for number in range(RECORDS * PARTITIONS):
        producer.produce("t", str(number), partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0
    yield
    admin.delete_topics(["t"])["t"].result(LIMIT_S)


@contextmanager
def _member(access: Access, protocol: str) -> Iterator[None]:
    """A member of group `g` that has read and committed all, and stays until the block ends."""
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {"bootstrap.servers": access.bootstrap, **access.librdkafka}
    settings |= {
        "group.id": "g",
        "client.id": "m",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    for _ in range(RECORDS * PARTITIONS):
        assert consumer.poll(LIMIT_S) is not None
    consumer.commit(asynchronous=False)
    over = threading.Event()

    def stay() -> None:
        while not over.is_set():
            consumer.poll(0.1)

    staying = threading.Thread(target=stay)
    staying.start()
    try:
        yield
    finally:
        over.set()
        staying.join()
        consumer.close()
