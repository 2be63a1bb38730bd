"""Brokers die, hang and come back, and ZooKeeper goes away: records, topics and groups stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.brokers import Cluster
from tests.peers import zookeeper as peer
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.java

BRIEF: dict[str, Any] = {"zookeeper.session.timeout.ms": 4000}
SHORT: dict[str, Any] = {"zookeeper.session.timeout.ms": 10_000}
"""a session whose end a test waits for, and that a busy machine does not end before"""


def filled(cluster: Cluster, topic: str) -> list[int]:
    """Create a topic with a record in each of three partitions; returns their leaders."""
    cluster.create(topic, 3)
    leaders = cluster.agree(topic, lambda all_of: sorted(all_of) == [1, 2, 3])
    for partition in range(3):
        cluster.produce(topic, [f"before-{partition}"], partition)
    return leaders


def test_a_killed_broker_affects_only_its_own_partitions_and_leads_them_again(
    three: Cluster,
) -> None:
    leaders = filled(three, "kept")
    gone = next(number for number in (3, 2) if number != three.controller)
    lost = leaders.index(gone)
    three.kill(gone)
    three.missed(gone)
    three.produce("kept", ["meanwhile"], (lost + 1) % 3)
    three.agree("kept", lambda all_of: all_of[lost] == -1)
    assert gone not in three.ids()
    three.create("later", 2)
    assert gone not in three.agree("later", lambda all_of: -1 not in all_of)
    three.start(gone)
    assert three.agree("kept", lambda all_of: -1 not in all_of) == leaders
    three.produce("kept", ["after"], lost)
    values = [*(f"before-{partition}" for partition in range(3)), "meanwhile", "after"]
    assert sorted(three.consume("kept", 5)) == sorted(values)


def test_the_successor_of_a_killed_controller_has_its_whole_state(three: Cluster) -> None:
    leaders = filled(three, "known")
    killed, epoch = three.controller, three.epoch
    three.kill(killed)
    three.missed(killed)
    until(lambda: three.controller not in (-1, killed))
    assert three.epoch == epoch + 1
    three.agree("known", lambda all_of: all_of[leaders.index(killed)] == -1)
    three.create("anew", 2)
    three.produce("anew", ["x"])
    three.start(killed)
    assert three.agree("known", lambda all_of: -1 not in all_of) == leaders
    assert three.controller != killed
    assert len(three.consume("known", 3)) == 3


def test_a_stopped_broker_brings_its_groups_back(three: Cluster) -> None:
    leaders = filled(three, "stopped")
    for number in range(6):
        assert len(three.consume("stopped", 3, f"g{number}")) == 3
    three.stop(2)
    three.agree("stopped", lambda all_of: all_of[leaders.index(2)] == -1)
    assert three.ids() == [1, 3]
    three.start(2)
    three.agree("stopped", lambda all_of: all_of == leaders)
    three.produce("stopped", ["new"], 0)
    for number in range(6):
        assert three.consume("stopped", 1, f"g{number}") == ["new"], "its offsets were kept"


def test_a_suspended_controller_is_replaced_and_resigns_when_it_resumes(three: Cluster) -> None:
    leaders = filled(three, "orders")
    still, epoch = three.controller, three.epoch
    three.pause(still)
    three.missed(still)
    until(lambda: three.controller not in (-1, still))
    assert three.epoch == epoch + 1
    awake = [number for number in (1, 2, 3) if number != still]
    three.create("without", 2, through=three.bootstrap(*awake))
    three.resume(still)
    until(lambda: three.ids() == [1, 2, 3])
    three.agree("without", lambda all_of: sorted(all_of) == awake)
    assert three.agree("orders", lambda all_of: -1 not in all_of) == leaders
    new = three.controller
    assert new != still
    until(lambda: three.known_controllers() == {new})
    three.produce("orders", ["after"], leaders.index(still))


def test_leaders_serve_without_zookeeper_and_the_cluster_is_whole_afterwards(
    tmp_path: Path,
) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    (tmp_path / "zk").mkdir()
    with (
        peer.running(tmp_path / "zk") as ensemble,
        Cluster(tmp_path, f"{ensemble.connect}/k", **SHORT) as cluster,
    ):
        leaders = filled(cluster, "served")
        ensemble.leader.kill()
        for partition in range(3):
            cluster.produce("served", [f"dark-{partition}"], partition)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
        refused = admin.create_topics([NewTopic("late", 1, 1)], request_timeout=2)["late"]
        with pytest.raises(KafkaException):
            refused.result(WAIT_S)
        overdue = "silent for as long as a session lasts"
        until(lambda: all(overdue in each.stderr() for each in cluster.brokers.values()))
        cluster.produce("served", ["darker"], 0)
        ensemble.leader.start()
        until(lambda: cluster.ids() == [1, 2, 3])
        assert cluster.agree("served", lambda all_of: -1 not in all_of) == leaders
        cluster.create("late")
        until(lambda: cluster.known_controllers() == {cluster.controller})
        assert len(cluster.consume("served", 7)) == 7


def test_a_controller_stops_in_time_although_zookeeper_is_silent(tmp_path: Path) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    (tmp_path / "zk").mkdir()
    with (
        peer.running(tmp_path / "zk") as ensemble,
        Cluster(tmp_path, f"{ensemble.connect}/s", 2, replicas=2, **BRIEF) as cluster,
    ):
        cluster.create("led", 2)
        cluster.agree("led", lambda leaders: sorted(leaders) == [1, 2])
        (server,) = ensemble.servers
        server.pause()
        try:
            cluster.stop(1)
        finally:
            server.resume()
