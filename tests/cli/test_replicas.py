"""Commands about replicas, as a user types them, against a cluster of three brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import krust
from krust import Cluster
from krust.cli.exits import Exit
from tests.three_brokers import Command
from tests.waiting import until, until_is


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config={"replica.lag.time.max.ms": 1000}) as made:
        yield made


def write(cluster: Cluster, topic: str, partitions: int, count: int = 100) -> None:
    """Records of 1,000 bytes, acknowledged by every replica in sync."""
    with krust.Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(count):
            producer.produce(topic, b"x" * 1000, partition=number % partitions)


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


def test_health_names_a_lost_broker_and_waits_until_it_has_caught_up(cluster: Cluster) -> None:
    command = ask(cluster)
    command.ok("topic", "create", "t:3", "-r", "3", "-c", "min.insync.replicas=2")
    assert command.ok("cluster", "health", "--wait", "10s", "--json").json()["healthy"] is True
    lost = next(number for number in range(3) if number != cluster.controller)
    cluster.kill(lost)
    write(cluster, "t", 3)
    done = until(lambda: (found := ask(cluster)("cluster", "health")).code and found)
    assert done.code == Exit.PROBLEMS
    assert f"broker {lost} is away" in done.text
    cluster.start(lost)
    assert ask(cluster)("cluster", "health", "--wait", "60s").code == 0
    cluster.wait_in_sync("t")
    rows = ask(cluster).ok("cluster", "elect", "--json").json()
    assert all(row["elected"] for row in rows)
    until(lambda: ask(cluster)("cluster", "health", "--strict").code == 0)


def test_a_broker_that_does_not_reach_the_leader_is_behind(cluster: Cluster) -> None:
    leader = cluster.controller
    behind, other = (number for number in range(3) if number != leader)
    ask(cluster).ok("topic", "create", "t", "--assign", f"0={leader},{behind},{other}")
    cluster.partition_network(behind, leader)
    write(cluster, "t", 1)
    until(lambda: cluster.in_sync("t") == (leader, other))
    done = until(lambda: (found := ask(cluster)("cluster", "health")).code and found)
    assert f"t:0      broker {behind} is behind" in done.text
    cluster.heal()
    cluster.wait_in_sync("t")
    until(lambda: ask(cluster)("cluster", "health").code == 0)


def test_partitions_move_with_their_records_and_come_back(cluster: Cluster, tmp_path: Path) -> None:
    command = ask(cluster)
    command.ok("topic", "create", "t:4", "-r", "1")
    write(cluster, "t", 4, 400)
    before = [cluster.replicas("t", number) for number in range(4)]
    ends = [row["end_offset"] for row in command.ok("topic", "offsets", "t", "--json").json()]
    emptied = next(number for number in range(3) if number != cluster.controller)
    plan = tmp_path / "plan.json"
    how = ("cluster", "reassign", "--remove", str(emptied), "--topic", "t", "--save", str(plan))
    shown = command.ok(*how, "--dry-run")
    assert "copied: " in shown.err
    assert [cluster.replicas("t", number) for number in range(4)] == before
    rows = command.ok(*how, "--yes", "--json").json()
    assert rows
    assert all(row["moved"] and row["bytes"] > 50_000 for row in rows)
    assert all(emptied not in cluster.replicas("t", number) for number in range(4))
    now = [row["end_offset"] for row in command.ok("topic", "offsets", "t", "--json").json()]
    assert now == ends
    back = command.ok("cluster", "reassign", "--file", f"{plan}.back", "--yes")
    assert "moving" in back.err
    assert [cluster.replicas("t", number) for number in range(4)] == before


def test_a_topic_gets_more_replicas_and_fewer(cluster: Cluster) -> None:
    command = ask(cluster)
    command.ok("topic", "create", "t:3", "-r", "1")
    write(cluster, "t", 3)
    for factor in (3, 2):
        command.ok("cluster", "reassign", "-r", str(factor), "--topic", "t", "--yes")
        assert [len(cluster.in_sync("t", number)) for number in range(3)] == [factor] * 3
    refused = command("cluster", "reassign", "-r", "4", "--topic", "t", "--yes")
    assert (refused.code, "INVALID_REPLICATION_FACTOR" in refused.err) == (1, True)
