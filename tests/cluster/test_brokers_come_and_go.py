"""Brokers die, stand still and come back; ZooKeeper goes away: what must stay, stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.brokers import WAIT_S, Cluster, until
from tests.peers import zookeeper as peer

pytestmark = pytest.mark.java


def filled(cluster: Cluster, topic: str) -> list[int]:
    """A topic with a record in each partition of three; who leads them."""
    cluster.create(topic, 3)
    leaders = cluster.agree(topic, lambda all_of: sorted(all_of) == [1, 2, 3])
    for partition in range(3):
        cluster.produce(topic, [f"before-{partition}"], partition)
    return leaders


@pytest.fixture
def cluster(three: Cluster) -> Cluster:
    """Three brokers, whatever the test before did to them."""
    three.mend()
    return three


def test_a_killed_broker_takes_only_its_own_partitions_along_and_brings_them_back(
    cluster: Cluster,
) -> None:
    leaders = filled(cluster, "kept")
    gone = next(number for number in (3, 2) if number != cluster.controller)
    lost = leaders.index(gone)
    cluster.kill(gone)
    cluster.produce("kept", ["meanwhile"], (lost + 1) % 3)
    cluster.agree("kept", lambda all_of: all_of[lost] == -1)
    assert gone not in cluster.ids()
    cluster.create("later", 2)
    assert gone not in cluster.agree("later", lambda all_of: -1 not in all_of)
    cluster.start(gone)
    assert cluster.agree("kept", lambda all_of: -1 not in all_of) == leaders
    cluster.produce("kept", ["after"], lost)
    values = [*(f"before-{partition}" for partition in range(3)), "meanwhile", "after"]
    assert sorted(cluster.consume("kept", 5)) == sorted(values)


def test_a_killed_controller_has_a_successor_that_knows_everything(cluster: Cluster) -> None:
    leaders = filled(cluster, "known")
    killed, epoch = cluster.controller, cluster.epoch
    cluster.kill(killed)
    until(lambda: cluster.controller not in (-1, killed))
    assert cluster.epoch == epoch + 1
    cluster.agree("known", lambda all_of: all_of[leaders.index(killed)] == -1)
    cluster.create("anew", 2)
    cluster.produce("anew", ["x"])
    cluster.start(killed)
    assert cluster.agree("known", lambda all_of: -1 not in all_of) == leaders
    assert cluster.controller != killed
    assert len(cluster.consume("known", 3)) == 3


def test_a_stopped_broker_brings_its_groups_back(cluster: Cluster) -> None:
    leaders = filled(cluster, "stopped")
    for number in range(6):
        assert len(cluster.consume("stopped", 3, f"g{number}")) == 3
    cluster.stop(2)
    cluster.agree("stopped", lambda all_of: all_of[leaders.index(2)] == -1)
    assert cluster.ids() == [1, 3]
    cluster.start(2)
    cluster.agree("stopped", lambda all_of: all_of == leaders)
    cluster.produce("stopped", ["new"], 0)
    for number in range(6):
        assert cluster.consume("stopped", 1, f"g{number}") == ["new"], "its offsets were kept"


def test_the_office_of_one_that_stands_still_is_taken_and_it_finds_out(cluster: Cluster) -> None:
    leaders = filled(cluster, "office")
    still, epoch = cluster.controller, cluster.epoch
    cluster.pause(still)
    until(lambda: cluster.controller not in (-1, still))
    assert cluster.epoch == epoch + 1
    awake = [number for number in (1, 2, 3) if number != still]
    cluster.create("without", 2, through=cluster.bootstrap(*awake))
    cluster.resume(still)
    until(lambda: cluster.ids() == [1, 2, 3])
    cluster.agree("without", lambda all_of: sorted(all_of) == awake)
    assert cluster.agree("office", lambda all_of: -1 not in all_of) == leaders
    new = cluster.controller
    assert new != still
    until(lambda: {cluster.view(each)["controller_id"] for each in (1, 2, 3)} == {new})
    cluster.produce("office", ["after"], leaders.index(still))


def test_without_zookeeper_leaders_serve_on_and_afterwards_all_is_one_again(
    tmp_path: Path,
) -> None:
    if reason := peer.missing():
        pytest.skip(reason)
    (tmp_path / "zk").mkdir()
    with (
        peer.running(tmp_path / "zk") as ensemble,
        Cluster(tmp_path, f"{ensemble.connect}/k") as cluster,
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
        until(lambda: {cluster.view(n)["controller_id"] for n in (1, 2, 3)} == {cluster.controller})
        assert len(cluster.consume("served", 7)) == 7
