"""krust.Cluster: several brokers in this process, killed and started as a test likes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import krust
from krust.errors import ConfigError, KafkaError, ServerError
from tests.leftovers import nothing_left
from tests.ports import free_ports
from tests.waiting import WAIT_S, until


@pytest.fixture
def cluster() -> Iterator[krust.Cluster]:
    config = {"offsets.topic.replication.factor": 1}
    with krust.Cluster(3, port=free_ports(3)[0], config=config) as made:
        yield made


def write(cluster: krust.Cluster, topic: str, partitions: int, *values: bytes) -> None:
    with krust.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for partition in range(partitions):
            for value in values:
                producer.produce(topic, value, partition=partition)


def read(cluster: krust.Cluster, topic: str, partition: int, count: int) -> list[bytes | None]:
    with krust.Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([(topic, partition, 0)])
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(100)]
        return found


def test_partitions_are_spread_and_clients_find_each_leader(cluster: krust.Cluster) -> None:
    cluster.create_topic("t", 6)
    assert sorted(cluster.leader("t", partition) for partition in range(6)) == [0, 0, 1, 1, 2, 2]
    write(cluster, "t", 6, b"a", b"b")
    for broker in cluster.brokers.values():  # one is enough to find the others
        consumer = Confluent({**broker.client_config(), "group.id": "g"})
        ends = [
            consumer.get_watermark_offsets(at, WAIT_S)
            for at in [TopicPartition("t", partition) for partition in range(6)]
        ]
        assert ends == [(0, 2)] * 6
        consumer.close()


def test_partitions_of_a_killed_broker_wait_and_the_others_are_served(
    cluster: krust.Cluster,
) -> None:
    cluster.create_topic("t", 3)
    write(cluster, "t", 3, b"before")
    victim = cluster.leader("t", 0)
    cluster.kill(victim)
    until(lambda: cluster.leader("t", 0) == -1)
    for partition in (1, 2):
        assert cluster.leader("t", partition) not in (-1, victim)
        assert read(cluster, "t", partition, 1) == [b"before"]
    address = cluster.start(victim).bootstrap
    assert address == cluster.brokers[victim].bootstrap
    until(lambda: cluster.leader("t", 0) == victim)
    write(cluster, "t", 1, b"after")
    assert read(cluster, "t", 0, 2) == [b"before", b"after"]


def test_a_partition_without_leader_delays_no_other(cluster: krust.Cluster) -> None:
    cluster.create_topic("t", 3)
    victim = cluster.leader("t", 0)
    cluster.kill(victim)
    until(lambda: cluster.leader("t", 0) == -1)
    with (
        krust.Producer(bootstrap_servers=cluster.bootstrap) as producer,
        krust.Consumer(bootstrap_servers=cluster.bootstrap, group_id=None) as consumer,
    ):
        waits = producer.send("t", b"waits", partition=0)
        goes = producer.send("t", b"goes", partition=1)
        assert goes.result(WAIT_S * 1000).offset == 0
        consumer.assign([("t", partition, 0) for partition in range(3)])
        found: list[bytes | None] = []
        while not found:
            found += [record.value for record in consumer.poll(100)]
        assert found == [b"goes"]
        assert not waits.done()
        cluster.start(victim)
        assert waits.result(WAIT_S * 1000).offset == 0
        while len(found) < 2:
            found += [record.value for record in consumer.poll(100)]
        assert found == [b"goes", b"waits"]


def test_another_broker_becomes_the_controller_and_creates_topics(
    cluster: krust.Cluster,
) -> None:
    first = cluster.controller
    cluster.create_topic("before", 2)
    cluster.kill(first)
    until(lambda: cluster.controller not in (-1, first))
    cluster.create_topic("after", 4)
    cluster.start(first)
    until(lambda: cluster.brokers[first].leader("after", 3) is not None)
    until(lambda: cluster.controller not in (-1, first))
    until(lambda: first in {cluster.leader("before", 0), cluster.leader("before", 1)})


def test_a_hanging_broker_loses_its_leaderships_and_leads_again_afterwards(
    cluster: krust.Cluster,
) -> None:
    cluster.create_topic("t", 3)
    write(cluster, "t", 3, b"before")
    victim = cluster.controller
    [mine] = [partition for partition in range(3) if cluster.leader("t", partition) == victim]
    cluster.pause(victim)
    cluster.pause(victim)
    until(lambda: cluster.controller not in (-1, victim))
    until(lambda: cluster.leader("t", mine) == -1)
    cluster.create_topic("later", 2)
    cluster.resume(victim)
    until(lambda: cluster.leader("t", mine) == victim)
    until(lambda: cluster.brokers[victim].leader("later") not in (None, -1))
    until(lambda: cluster.controller not in (-1, victim))
    write(cluster, "t", 3, b"after")
    assert read(cluster, "t", mine, 2) == [b"before", b"after"]


def test_a_pause_that_the_cluster_does_not_notice_makes_clients_wait(
    cluster: krust.Cluster,
) -> None:
    cluster.create_topic("t", 3)
    victim = cluster.leader("t", 0)
    with krust.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("t", b"first", partition=0).result(WAIT_S * 1000)
        cluster.pause(victim, expire=False)
        waits = producer.send("t", b"waits", partition=0)
        producer.send("t", b"goes", partition=1).result(WAIT_S * 1000)
        assert not waits.done()
        assert cluster.leader("t", 0) == victim
        cluster.resume(victim)
        assert waits.result(WAIT_S * 1000).offset == 1


def test_partitions_of_a_stopped_broker_have_no_leader_until_it_restarts(
    cluster: krust.Cluster,
) -> None:
    cluster.create_topic("t", 3)
    victim = cluster.leader("t", 1)
    cluster.stop(victim)
    until(lambda: cluster.leader("t", 1) == -1)
    cluster.start(victim)
    until(lambda: cluster.leader("t", 1) == victim)


def test_every_client_creates_topics_at_every_broker(cluster: krust.Cluster) -> None:
    for number, broker in cluster.brokers.items():
        admin = AdminClient(broker.client_config())
        admin.create_topics([NewTopic(f"asked-{number}", 3, 1)])[f"asked-{number}"].result(WAIT_S)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            delivery = producer.send(f"written-{number}", b"x")
            assert delivery.result(WAIT_S * 1000).offset == 0
    for number in range(3):
        until(lambda name=f"written-{number}": cluster.leader(name) >= 0)  # type: ignore[misc]
    with pytest.raises(KafkaError):
        cluster.leader("nowhere")


def test_members_read_from_all_brokers_and_their_commits_hold(cluster: krust.Cluster) -> None:
    cluster.create_topic("t", 6)
    write(cluster, "t", 6, *(b"%d" % number for number in range(10)))
    for protocol in ("classic", "consumer"):
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "group_id": protocol}
        with krust.Consumer(
            "t", group_protocol=protocol, auto_offset_reset="earliest", **settings
        ) as consumer:
            count = 0
            while count < 60:
                count += len(consumer.poll(100))
        with krust.Consumer(**settings, group_protocol=protocol) as consumer:
            places = [("t", partition) for partition in range(6)]
            assert set(consumer.committed(places).values()) == {10}


def test_a_cluster_serves_what_its_directory_holds(tmp_path: Path) -> None:
    with krust.Cluster(2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 2, config={"retention.ms": 123456})
        write(cluster, "t", 2, b"a")
    with krust.Cluster(2, data_dir=tmp_path) as cluster:
        assert [read(cluster, "t", partition, 1) for partition in (0, 1)] == [[b"a"], [b"a"]]


def test_a_closed_cluster_leaves_no_process_thread_or_file() -> None:
    with krust.Cluster(2):
        pass
    with nothing_left(), krust.Cluster(3) as cluster:
        cluster.create_topic("t", 3)
        cluster.kill(1)
        cluster.pause(2)
        folder = cluster.brokers[0].data_dir
        assert folder.exists()
    assert not folder.exists()
    cluster.close()


def test_a_cluster_of_zero_brokers_is_refused() -> None:
    with pytest.raises(ConfigError, match="no cluster"):
        krust.Cluster(0)
    with krust.Cluster(1) as cluster, pytest.raises(ConfigError, match="no broker 7"):
        cluster.start(7)


def test_a_broker_cut_off_from_the_controller_learns_of_topics_after_the_heal(
    cluster: krust.Cluster,
) -> None:
    controller = cluster.controller
    far, near = sorted({0, 1, 2} - {controller})
    cluster.partition_network(far, {controller, near})
    cluster.brokers[controller].create_topic("t", 3)
    until(lambda: cluster.brokers[near].leader("t") is not None)
    assert cluster.brokers[far].leader("t") is None
    assert far in cluster.brokers[near].known_brokers(), "its session with ZooKeeper lasts"
    cluster.heal()
    until(lambda: cluster.brokers[far].leader("t") is not None)


def test_a_cut_in_one_direction_leaves_the_other(cluster: krust.Cluster) -> None:
    controller = cluster.controller
    other = next(number for number in range(3) if number != controller)
    cluster.partition_network(other, controller, both=False)
    cluster.create_topic("t", 3)
    assert cluster.brokers[other].leader("t") is not None
    cluster.partition_network(controller, other, both=False)
    cluster.brokers[controller].create_topic("later", 1)
    until(lambda: cluster.brokers[controller].leader("later") is not None)
    assert cluster.brokers[other].leader("later") is None


def replicated(cluster: krust.Cluster, topic: str) -> tuple[int, int, int]:
    """Create a partition that the controller leads: (leader, follower, follower)."""
    leader = cluster.controller
    first, second = (number for number in range(3) if number != leader)
    with krust.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        one = {"partition_index": 0, "broker_ids": [leader, first, second]}
        wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1}
        admin.request("CreateTopics", {"topics": [{**wanted, "assignments": [one]}]})
    until(lambda: all(each.leader(topic) == leader for each in cluster.brokers.values()))
    cluster.wait_in_sync(topic)
    return leader, first, second


@pytest.fixture
def quick() -> Iterator[krust.Cluster]:
    """A cluster whose followers leave the ISR soon."""
    with krust.Cluster(3, config={"replica.lag.time.max.ms": 1000}) as made:
        yield made


def test_a_follower_that_cannot_connect_to_its_leader_is_out_of_sync_until_the_heal(
    quick: krust.Cluster,
) -> None:
    leader, follower, other = replicated(quick, "t")
    quick.partition_network(follower, leader, both=False)
    write(quick, "t", 1, b"a")
    until(lambda: quick.in_sync("t") == (leader, other))
    with pytest.raises(ServerError, match="not in sync: t:0 after 100 ms"):
        quick.wait_in_sync("t", timeout_ms=100)
    assert read(quick, "t", 0, 1) == [b"a"]
    quick.heal()
    quick.wait_in_sync("t")
    assert set(quick.in_sync("t")) == {leader, follower, other}


def test_a_leader_that_cannot_connect_to_its_followers_is_fetched_from_all_the_same(
    quick: krust.Cluster,
) -> None:
    leader, first, second = replicated(quick, "t")
    quick.partition_network(leader, {first, second}, both=False)
    write(quick, "t", 1, b"a")
    assert read(quick, "t", 0, 1) == [b"a"]
    assert set(quick.in_sync("t")) == {leader, first, second}


def test_a_paused_follower_copies_nothing_until_it_resumes(quick: krust.Cluster) -> None:
    leader, follower, other = replicated(quick, "t")
    quick.pause(follower, expire=False)
    write(quick, "t", 1, b"a")
    until(lambda: quick.in_sync("t") == (leader, other))
    quick.resume(follower)
    quick.wait_in_sync("t")


def test_a_broker_that_restarts_is_cut_off_as_before(cluster: krust.Cluster) -> None:
    cluster.partition_network(0, 2, both=False)
    cluster.kill(0)
    cluster.partition_network(0, 1, both=False)
    assert cluster.start(0)._cut_off == {1, 2}
    assert cluster.brokers[1]._cut_off == set()
    cluster.heal()
    assert cluster.brokers[0]._cut_off == set()


def test_a_cut_needs_two_sides_of_known_brokers(cluster: krust.Cluster) -> None:
    with pytest.raises(ConfigError, match="no broker 7"):
        cluster.partition_network(0, {1, 7})
    with pytest.raises(ConfigError, match="broker 1 is on both sides"):
        cluster.partition_network({0, 1}, {1, 2})


def test_replicas_in_sync_are_known_and_waited_for(cluster: krust.Cluster) -> None:
    cluster.create_topic("t", 3)
    for partition in range(3):
        leader = cluster.leader("t", partition)
        assert cluster.replicas("t", partition) == (leader,)
        assert cluster.in_sync("t", partition) == (leader,)
    cluster.wait_in_sync("t")
    cluster.wait_in_sync("t", 2)
    with pytest.raises(KafkaError, match="there is no t:3"):
        cluster.in_sync("t", 3)
    with pytest.raises(KafkaError, match="there is no nowhere:0"):
        cluster.wait_in_sync("nowhere")


def stop_replica(topic: str, partition: int, epoch: int) -> bytes:
    """StopReplica 0 that deletes a partition, in its frame, as a stranger sends it."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iibi", 0, epoch, 1, 1) + name + struct.pack(">i", partition)
    request = struct.pack(">hhih", 5, 0, 1, -1) + body
    return struct.pack(">i", len(request)) + request


def test_a_client_that_forges_a_stop_replica_deletes_nothing(cluster: krust.Cluster) -> None:
    cluster.create_topic("t", 3)
    write(cluster, "t", 3, b"kept")
    for number, broker in cluster.brokers.items():
        host, _, port = broker.bootstrap.rpartition(":")
        for partition in range(3):
            for epoch in (0, 1, 1000):
                with socket.create_connection((host, int(port)), WAIT_S) as stranger:
                    stranger.sendall(stop_replica("t", partition, epoch))
                    assert stranger.recv(1) == b"", "the broker hangs up on it"
        assert broker.leader("t", number) is not None
    for partition in range(3):
        assert read(cluster, "t", partition, 1) == [b"kept"]


def test_no_client_gets_the_internal_listeners_of_brokers(cluster: krust.Cluster) -> None:
    addresses = {broker.bootstrap for broker in cluster.brokers.values()}
    for broker in cluster.brokers.values():
        seen = AdminClient(broker.client_config()).list_topics(timeout=WAIT_S).brokers
        assert {f"{each.host}:{each.port}" for each in seen.values()} == addresses


def test_given_listeners_are_used_unchanged() -> None:
    both = {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", "inter.broker.listener.name": "B"}
    mapped = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    with krust.Cluster(2, config=both | mapped) as cluster:
        cluster.create_topic("t", 2)
        assert {cluster.leader("t", partition) for partition in range(2)} == {0, 1}
