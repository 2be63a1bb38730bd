"""Kafka's own Java tools, 3.9.1 and 4.3.0, from Maven: a client of either age must see a broker.

`ClientCompatibilityTest` walks producer, consumer and admin client through what a broker may lack;
`BrokerApiVersionsCommand` lists every API that the broker offers and the client understands.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS: dict[str, str] = {}
NEEDS = ("java", "mvn")
API_VERSIONS = {
    "3.9.1": "kafka.admin.BrokerApiVersionsCommand",
    "4.3.0": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}
LIMIT_S = 120
ARTIFACTS = ("kafka_2.13", "kafka-tools")
YES = (
    "offsets-for-times-supported",
    "cluster-id-supported",
    "create-topics-supported",
    "describe-acls-supported",
    "describe-configs-supported",
    "idempotent-producer-supported",
)


def prepare(cache: Path) -> None:
    """Copy the jars of both versions out of the Maven repository."""
    for version in API_VERSIONS:
        folder = cache / version
        folder.mkdir(parents=True, exist_ok=True)
        wanted = "".join(
            f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
            for artifact in ARTIFACTS
        )
        (folder / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>krust</groupId><artifactId>conformance</artifactId><version>1</version>"
            f"<dependencies>{wanted}</dependencies></project>"
        )
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run([*copy, "-DincludeScope=runtime"], cwd=folder, check=True)


def run(cache: Path, bootstrap: str) -> dict[str, bool]:
    """Run both tools of both versions against one broker."""
    outcomes: dict[str, bool] = {}
    server = ("--bootstrap-server", bootstrap)
    for version, api_versions in API_VERSIONS.items():
        topics = "org.apache.kafka.tools.TopicCommand"
        topic = f"compatibility-{version}"
        _java(cache / version, topics, *server, "--create", "--topic", topic)
        flags = [part for flag in YES for part in (f"--{flag}", "true")]
        arguments = [*server, "--topic", topic, "--num-cluster-nodes", "1", *flags]
        arguments += ["--expect-record-too-large-exception", "false"]
        told = _java(cache / version, "org.apache.kafka.tools.ClientCompatibilityTest", *arguments)
        outcomes[f"ClientCompatibilityTest-{version}"] = told.returncode == 0
        listing = _java(cache / version, api_versions, *server)
        outcomes[f"BrokerApiVersionsCommand-{version}"] = (
            listing.returncode == 0 and "Produce(0): 0 to 13" in listing.stdout
        )
        _java(cache / version, topics, *server, "--delete", "--topic", "newtopic")
    return outcomes


def _java(folder: Path, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["java", "-Xmx256m", "-cp", f"{folder}/lib/*", main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        print(f"{main} {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done
