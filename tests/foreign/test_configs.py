"""Kafka's own kafka-configs sets, shows and deletes quotas of users, clients and addresses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.foreign.conftest import jars
from tests.peers.java_source import program
from tests.serving import ServedBroker

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

USER, CLIENT, IP = (f"--entity-type {kind} --entity-name" for kind in ("users", "clients", "ips"))
USERS, CLIENTS, IPS = (f"--entity-type {kind}" for kind in ("users", "clients", "ips"))
DEFAULT = "--entity-default"
QUOTAS = {
    f"{USER} ann": "producer_byte_rate=1024",
    f"{CLIENT} app": "consumer_byte_rate=2048",
    f"{USER} ann {CLIENT} app": "controller_mutation_rate=5.5",
    f"{USERS} {DEFAULT}": "producer_byte_rate=9",
    f"{CLIENTS} {DEFAULT}": "request_percentage=8",
    f"{USERS} {DEFAULT} {CLIENTS} {DEFAULT}": "producer_byte_rate=7",
    f"{IP} 10.0.0.1": "connection_creation_rate=10",
    f"{IPS} {DEFAULT}": "connection_creation_rate=11",
}
SHOWN = {
    "user-principal 'ann' are producer_byte_rate=1024.0",
    "the default user-principal are producer_byte_rate=9.0",
    "client-id 'app' are consumer_byte_rate=2048.0",
    "the default client-id are request_percentage=8.0",
    "ip '10.0.0.1' are connection_creation_rate=10.0",
    "the default ip are connection_creation_rate=11.0",
}
OF_BOTH = {
    "user-principal 'ann', client-id 'app' are controller_mutation_rate=5.5",
    "the default user-principal, the default client-id are producer_byte_rate=7.0",
}


def configs(version: str, bootstrap: str, lines: list[str]) -> list[list[str]]:
    """The tool's output for each line; all in one process."""
    source = Path(__file__).parent / "java/Configs.java"
    words = ["java", *program(source, jars(version)), "kafka.admin.ConfigCommand"]
    given = "".join(f"--bootstrap-server {bootstrap} {line}\n" for line in lines)
    run = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    answers: list[list[str]] = []
    for line in run.stdout.splitlines():
        if line.startswith("> "):
            answers.append([])
        elif answers:
            answers[-1].append(line)
    assert len(answers) == len(lines), run.stdout
    return answers


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_kafka_configs_changes_quotas_of_every_kind_of_entity(version: str, tmp_path: Path) -> None:
    kinds = (USERS, CLIENTS, IPS)
    lines = [f"--alter --add-config {quota} {whose}" for whose, quota in QUOTAS.items()]
    lines += [f"--describe {kind}" for kind in kinds]
    lines += [f"--describe {USERS} {CLIENTS}", f"--describe {USER} ann"]
    lines += [f"--alter --add-config producer_byte_rate=1.5 {USER} ann"]
    lines += [
        f"--alter --delete-config {quota.partition('=')[0]} {whose}"
        for whose, quota in QUOTAS.items()
    ]
    lines += [f"--describe {kind}" for kind in kinds]
    with ServedBroker(tmp_path / "data") as broker:
        answers = configs(version, broker.bootstrap, lines)
    done, answers = answers[: len(QUOTAS)], answers[len(QUOTAS) :]
    assert all(one[-1].startswith("Completed updating") for one in done), done
    shown = [{line.removeprefix("Quota configs for ") for line in one} for one in answers[:5]]
    assert shown[0] | shown[1] | shown[2] == SHOWN
    assert shown[3] == OF_BOTH
    assert shown[4] == {"user-principal 'ann' are producer_byte_rate=1024.0"}
    assert "must be a LONG value" in "".join(answers[5])
    gone = answers[6 : 6 + len(QUOTAS)]
    assert all(one[-1].startswith("Completed updating") for one in gone), gone
    assert answers[-3:] == [[], [], []]
