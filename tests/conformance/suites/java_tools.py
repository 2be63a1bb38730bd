"""Kafka's own Java tools, 3.9.1 and 4.3.0, from Maven: a client of either age must see a broker.

`ClientCompatibilityTest` walks producer, consumer and admin client through what a broker may lack;
`BrokerApiVersionsCommand` lists every API that the broker offers and the client understands.
The first of them has no option for a login.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from krust._krust import Client
from tests.peers import kafka

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.access import Access

SETTINGS: dict[str, str] = {}
NEEDS = ("java", "mvn")
API_VERSIONS = {
    "3.9.1": "kafka.admin.BrokerApiVersionsCommand",
    "4.3.0": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}
LIMIT_S = 120
YES = (
    "offsets-for-times-supported",
    "cluster-id-supported",
    "create-topics-supported",
    "describe-acls-supported",
    "describe-configs-supported",
    "idempotent-producer-supported",
)


def prepare(_: Path) -> None:
    """Fetch the jars of both versions, which other tests use too."""
    for version in API_VERSIONS:
        kafka.jars(version)


def run(_: Path, access: Access) -> dict[str, bool]:
    """Run both tools of both versions against one broker."""
    outcomes: dict[str, bool] = {}
    server = ("--bootstrap-server", access.bootstrap)
    brokers = str(len(Client(access.bootstrap).request("Metadata", {"topics": []})["brokers"]))
    for version, api_versions in API_VERSIONS.items():
        topics = "org.apache.kafka.tools.TopicCommand"
        topic = f"compatibility-{version}"
        _java(version, topics, *server, "--create", "--topic", topic)
        flags = [part for flag in YES for part in (f"--{flag}", "true")]
        arguments = [*server, "--topic", topic, "--num-cluster-nodes", brokers, *flags]
        arguments += ["--expect-record-too-large-exception", "false"]
        run = _java(version, "org.apache.kafka.tools.ClientCompatibilityTest", *arguments)
        outcomes[f"ClientCompatibilityTest-{version}"] = run.returncode == 0
        listing = _java(version, api_versions, *server)
        outcomes[f"BrokerApiVersionsCommand-{version}"] = (
            listing.returncode == 0 and "Produce(0): 0 to 13" in listing.stdout
        )
        _java(version, topics, *server, "--delete", "--topic", "newtopic")
    return outcomes


def _java(version: str, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["java", "-Xmx256m", "-cp", f"{kafka.jars(version)}/*", main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        print(f"{main} {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done
