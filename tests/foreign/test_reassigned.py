"""Apache's own tools that elect leaders and move replicas, against krust."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from tests.foreign.conftest import jars

TOOLS = "org.apache.kafka.tools."
ELECT, MOVE = TOOLS + "LeaderElectionCommand", TOOLS + "reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def broker() -> Iterator[krust.Broker]:
    jars("3.9.1")
    with krust.Broker(config={"broker.id": 1}) as running:
        running.create_topic("t", 2)
        yield running


def tool(
    broker: krust.Broker, name: str, *arguments: str, version: str = "3.9.1"
) -> tuple[int, str]:
    """Exit code, and what it printed."""
    command = ["java", "-cp", f"{jars(version)}/*", name, "--bootstrap-server", broker.bootstrap]
    run = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def test_an_unneeded_election_answers_election_not_needed(broker: krust.Broker) -> None:
    kind = ("--election-type", "preferred")
    code, text = tool(broker, ELECT, *kind, "--topic", "t", "--partition", "1")
    assert code == 0, text
    assert "t-1" in text.split("Valid replica already elected", 1)[1]
    code, text = tool(broker, ELECT, *kind, "--all-topic-partitions")
    assert code == 0, text
    code, text = tool(broker, ELECT, *kind, "--topic", "t", "--partition", "7")
    assert code == 1
    assert "UnknownTopicOrPartition" in text


def test_an_unchanged_assignment_is_accepted_and_complete(
    broker: krust.Broker, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"

    def moved(*replicas: int) -> tuple[int, str]:
        one = {"topic": "t", "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [one]}))
        return tool(broker, MOVE, "--execute", "--reassignment-json-file", str(plan))

    code, text = moved(1)
    assert code == 0, text
    assert "Successfully started partition reassignment for t-0" in text
    code, text = tool(broker, MOVE, "--verify", "--reassignment-json-file", str(plan))
    assert code == 0, text
    assert "Reassignment of partition t-0 is completed" in text
    code, text = tool(broker, MOVE, "--list")
    assert code == 0, text
    assert "No partition reassignments found." in text
    code, text = tool(broker, MOVE, "--cancel", "--reassignment-json-file", str(plan))
    assert code == 0, text
    assert "None of the specified partition moves are active." in text


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_a_move_is_begun_listed_and_cancelled(tmp_path: Path, version: str) -> None:
    plan = tmp_path / "plan.json"
    jars(version)
    with krust.Cluster(3) as cluster:
        cluster.create_topic("t")
        leader = cluster.leader("t")
        to = next(each for each in cluster.brokers if each not in (leader, cluster.controller))
        cluster.pause(to, expire=False)
        asked = cluster.brokers[cluster.controller]
        one = {"topic": "t", "partition": 0, "replicas": [to]}
        plan.write_text(json.dumps({"version": 1, "partitions": [one]}))
        file = ("--reassignment-json-file", str(plan))
        code, text = tool(asked, MOVE, "--execute", *file, version=version)
        assert code == 0, text
        code, text = tool(asked, MOVE, "--list", version=version)
        assert code == 0, text
        assert f"t-0: replicas: {to},{leader}." in text
        assert f"adding: {to}." in text
        assert f"removing: {leader}." in text
        code, text = tool(asked, MOVE, "--cancel", *file, "--preserve-throttles", version=version)
        assert code == 0, text
        assert "Successfully cancelled partition reassignment for: t-0" in text
        code, text = tool(asked, MOVE, "--list", version=version)
        assert "No partition reassignments found." in text
        assert cluster.leader("t") == leader
        cluster.resume(to)
