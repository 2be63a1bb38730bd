"""Commands about replicas, as a user types them, against a cluster of three brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from krust import Cluster
from krust.cli.exits import Exit
from tests.three_brokers import Command
from tests.waiting import until, until_is


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as made:
        yield made


def ask(cluster: Cluster) -> Command:
    """The command, with the addresses of the brokers that run."""
    return Command(cluster.bootstrap)


def described(cluster: Cluster, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(cluster).ok("topic", "describe", *args, "--json").json()
    return found


def test_a_topic_gets_the_replicas_that_the_command_line_names(cluster: Cluster) -> None:
    made = ask(cluster).ok("topic", "create", "t", "--assign", "1=2,0", "--assign", "0=1,2")
    assert "t" in made.text
    [topic] = described(cluster, "t")
    assert [each["replicas"] for each in topic["partitions"]] == [[1, 2], [2, 0]]
    assert [each["leader"] for each in topic["partitions"]] == [1, 2]
    for wrong in (
        ["t2", "--assign", "1=0"],
        ["t2", "t3", "--assign", "0=0"],
        ["t2:2", "--assign", "0=0"],
        ["t2", "-r", "2", "--assign", "0=0"],
    ):
        assert ask(cluster)("topic", "create", *wrong).code == Exit.USAGE
    refused = ask(cluster)("topic", "create", "t2", "--assign", "0=7")
    assert (refused.code, "INVALID_REPLICA_ASSIGNMENT" in refused.err) == (1, True)


def test_filters_list_the_partitions_that_a_lost_broker_leaves_in_trouble(
    cluster: Cluster,
) -> None:
    command = ask(cluster)
    command.ok("topic", "create", "three:3", "-r", "3", "-c", "min.insync.replicas=2")
    command.ok("topic", "create", "one:3", "--replication-factor", "1")
    assert described(cluster, "--under-replicated", "--under-min-isr", "--unavailable") == []
    lost = next(number for number in range(3) if number != cluster.controller)
    cluster.kill(lost)
    [alone] = [number for number in range(3) if cluster.replicas("one", number) == (lost,)]
    until_is(
        [("one", alone)],
        lambda: [(e["topic"], e["partition"]) for e in described(cluster, "--unavailable")],
    )
    # At least the partition that it led has a smaller ISR at once.
    behind = until(lambda: described(cluster, "three", "--under-replicated"))
    assert all(each["isr"] and lost not in each["isr"] for each in behind)
    assert [each["status"] for each in behind] == ["at min ISR"] * len(behind)
    assert described(cluster, "three", "--at-min-isr") == behind
    assert "at min ISR" in ask(cluster).ok("topic", "describe", "three").text
    assert ask(cluster)("topic", "describe").code == Exit.USAGE


def test_health_names_a_lost_broker(cluster: Cluster) -> None:
    command = ask(cluster)
    command.ok("topic", "create", "t:3", "-r", "3")
    assert command.ok("cluster", "health", "--wait", "10s", "--json").json()["healthy"] is True
    lost = next(number for number in range(3) if number != cluster.controller)
    cluster.kill(lost)
    until(lambda: ask(cluster)("cluster", "health", "--wait", "10ms").code == Exit.PROBLEMS)
    found = ask(cluster)("cluster", "health").text
    assert f"broker {lost} is away" in found
