"""`krust cluster replace-plan` reads a real ZooKeeper and real brokers.

KRUST_KAFKA_CLUSTER=1 starts a Kafka 3.9.1 among them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from krust.cli.exits import Exit
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.zookeeper import LONG_MS
from tests.three_brokers import Command

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def plan(cluster: Cluster, *args: str) -> tuple[int, dict[str, Any], dict[str, dict[str, str]]]:
    """The exit code, the plan, and its checks by their names."""
    import json

    command = Command(cluster.brokers[1].bootstrap)
    done = command("cluster", "replace-plan", "--zookeeper", cluster.connect, "--json", *args)
    assert done.out, done.err
    found = json.loads(done.out)
    return done.code, found, {each["check"]: each for each in found["checks"]}


@contextmanager
def znode(cluster: Cluster, path: str, data: bytes = b"") -> Iterator[None]:
    cluster.tree.create(path, data, makepath=True)
    try:
        yield
    finally:
        cluster.tree.delete(path)


def test_a_cluster_of_krust_has_nothing_to_replace_and_a_way_back(three: Cluster) -> None:
    code, found, checks = plan(three)
    assert (code, found["steps"]) == (0, []), checks
    assert {each["kind"] for each in found["brokers"]} == {"krust"}
    assert checks["ZooKeeper"]["status"] == "ok"
    code, found, _ = plan(three, "--back")
    others = [number for number in (1, 2, 3) if number != three.controller]
    assert [step["node"] for step in found["steps"]] == [*others, three.controller]
    assert found["steps"][0]["directories"], "the broker says where its data is"


def test_tokens_in_the_zookeeper_stop_a_replacement_and_acls_nobody_obeys_are_a_warning(
    three: Cluster,
) -> None:
    with (
        znode(three, "/kafka-acl/Topic/orders", b"{}"),
        znode(three, "/kafka-acl-extended/prefixed/Group/bill", b"{}"),
    ):
        code, _, checks = plan(three)
        assert (code, checks["access"]["status"]) == (0, "warning")
        assert "Topic:orders, Group:bill" in checks["access"]["detail"]
    with znode(three, "/delegation_token/tokens/t1", b"{}"):
        code, _, checks = plan(three)
        assert (code, checks["access"]["status"]) == (Exit.PROBLEMS, "problem")
        assert "1 delegation token" in checks["access"]["detail"]
    assert plan(three)[2]["access"]["status"] == "ok"


@pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1")
def test_a_kafka_among_the_brokers_is_the_step_that_is_left(three: Cluster, tmp_path: Path) -> None:
    settings = {"broker.id": 4, "zookeeper.session.timeout.ms": LONG_MS}
    with kafka.running("3.9.1", tmp_path, settings, zookeeper=three.connect) as bootstrap:
        code, found, checks = plan(three)
        assert {each["status"] for each in checks.values()} <= {"ok", "warning"}, checks
        assert code == 0
        [step] = found["steps"]
        assert (step["node"], step["current"], step["becomes"]) == (4, "Kafka", "krust")
        assert step["address"] == bootstrap
        assert checks["versions"]["status"] == "ok"
