"""Which brokers get the replicas of a new topic, and how many replicas it has."""

from __future__ import annotations

from collections import Counter

import pytest

from krust.controller import placement, topic_plans
from tests.unit.controller.nodes import Member, Nodes
from tests.unit.controller.runtime import Runtime

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
IN_ZOOKEEPER = {"zookeeper.connect": "localhost:2181"}


def replicas(nodes: Nodes, topic: str) -> list[tuple[int, ...]]:
    return [each.replicas for each in nodes.leader.state.topics[topic].partitions]


def test_each_partition_has_as_many_replicas_as_were_asked_for() -> None:
    nodes = Nodes(1, 2, 3)
    result = nodes.leader.create("t", 6, factor=2)
    assert (result["error_code"], result["replication_factor"]) == (0, 2)
    placed = replicas(nodes, "t")
    assert [each[0] for each in placed] == [1, 2, 3, 1, 2, 3]
    assert [len(set(each)) for each in placed] == [2] * 6
    for each in nodes.leader.state.topics["t"].partitions:
        assert (each.leader, each.isr, each.leader_epoch) == (each.replicas[0], each.replicas, 0)


def test_a_broker_with_replicas_of_a_new_topic_learns_the_leader() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.forget()
    nodes.leader.create("t", 1, factor=3)
    for broker in (2, 3):
        (message,) = nodes.requests_to(broker, "LeaderAndIsr")
        (state,) = message["topic_states"][0]["partition_states"]
        assert (state["leader"], state["replicas"], state["isr"]) == (1, [1, 2, 3], [1, 2, 3])


def test_the_followers_of_a_leader_are_spread_over_all_other_brokers() -> None:
    nodes = Nodes(*range(1, 6))
    nodes.leader.create("t", 20, factor=2)
    followers = Counter(each[1] for each in replicas(nodes, "t") if each[0] == 3)
    assert followers == {1: 1, 2: 1, 4: 1, 5: 1}


@pytest.mark.parametrize(("factor", "racks_each"), [(2, 2), (3, 3), (4, 3), (5, 3)])
def test_replicas_are_in_as_many_racks_as_there_are(factor: int, racks_each: int) -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    nodes = Nodes()
    for broker, rack in racks.items():
        Member(nodes, broker, **{"broker.rack": rack})
    nodes.rest()
    nodes.leader.create("t", 40, factor=factor)
    for each in replicas(nodes, "t"):
        assert len(set(each)) == factor
        assert len({racks[broker] for broker in each}) == racks_each


def test_leaders_are_counted_evenly_with_racks() -> None:
    nodes = Nodes()
    for broker, rack in {1: "a", 2: "a", 3: "b", 4: "b"}.items():
        Member(nodes, broker, **{"broker.rack": rack})
    nodes.rest()
    nodes.leader.create("t", 24, factor=2)
    assert set(Counter(each[0] for each in replicas(nodes, "t")).values()) == {6}


def test_more_replicas_than_brokers_are_refused_as_by_kafka() -> None:
    nodes = Nodes(1, 2)
    result = nodes.leader.create("t", factor=3)
    assert result["error_code"] == 38
    assert "3 larger than available brokers: 2" in result["error_message"]


def test_a_topic_of_given_assignments_has_those_replicas() -> None:
    nodes = Nodes(1, 2, 3)
    given = [
        {"partition_index": index, "broker_ids": ids} for index, ids in enumerate(([3, 1], [2, 3]))
    ]
    fields = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    topic = {"name": "t", **fields, "assignments": given}
    (result,) = nodes.leader.ask("CreateTopics", {"topics": [topic]})["topics"]
    assert result["error_code"] == 0
    assert replicas(nodes, "t") == [(3, 1), (2, 3)]


@pytest.mark.parametrize(("assignment", "code"), [([2, 3], 0), ([2], 39), ([2, 2], 39)])
def test_new_partitions_have_as_many_replicas_as_the_first(
    assignment: list[int], code: int
) -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("t", 1, factor=2)
    wanted = {"name": "t", "count": 2, "assignments": [{"broker_ids": assignment}]}
    (result,) = nodes.leader.ask("CreatePartitions", {"topics": [wanted]})["results"]
    assert result["error_code"] == code


def test_partitions_that_are_added_get_as_many_replicas_as_the_topic_has() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("t", 1, factor=2)
    nodes.leader.ask("CreatePartitions", {"topics": [{"name": "t", "count": 4}]})
    assert [len(set(each)) for each in replicas(nodes, "t")] == [2] * 4


def test_internal_topics_have_kafkas_factor_in_a_zookeeper_cluster() -> None:
    nodes = Nodes(1, 2, 3, **IN_ZOOKEEPER)
    nodes.leader.ask("AutoCreate", {"topics": [OFFSETS, TRANSACTIONS]})
    for topic in (OFFSETS, TRANSACTIONS):
        assert {len(each) for each in replicas(nodes, topic)} == {3}
    assert nodes.leader.state.topics[TRANSACTIONS].config["min.insync.replicas"] == "2"


def test_internal_topics_wait_for_enough_brokers_in_a_zookeeper_cluster() -> None:
    nodes = Nodes(1, 2, **IN_ZOOKEEPER)
    (result,) = nodes.leader.ask("AutoCreate", {"topics": [OFFSETS]})["topics"]
    assert result["error_code"] == 38
    Member(nodes, 3, **IN_ZOOKEEPER)
    (result,) = nodes.leader.ask("AutoCreate", {"topics": [OFFSETS]})["topics"]
    assert result["error_code"] == 0


def test_internal_topics_have_at_most_as_many_replicas_as_brokers_in_one_process() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.ask("AutoCreate", {"topics": [OFFSETS, TRANSACTIONS]})
    assert {len(each) for each in replicas(nodes, OFFSETS)} == {2}
    notice = f"{OFFSETS}: offsets.topic.replication.factor is 2, not 3: 2 brokers"
    assert notice in nodes.leader.lines


def test_internal_topics_of_a_single_broker_have_one_replica() -> None:
    runtime = Runtime()
    runtime.ask("AutoCreate", {"topics": [OFFSETS, TRANSACTIONS]})
    for topic in (OFFSETS, TRANSACTIONS):
        assert {each.replicas for each in runtime.state.topics[topic].partitions} == {(0,)}
    assert runtime.state.topics[TRANSACTIONS].config["min.insync.replicas"] == "1"


def test_a_broker_asks_a_controller_that_may_be_kafkas_with_numbers_of_its_own() -> None:
    nodes = Nodes(1, 2, 3, **IN_ZOOKEEPER, **{"default.replication.factor": 2})
    state = nodes.members[2].state
    wanted = topic_plans.with_own_numbers(state, OFFSETS)
    assert (wanted["num_partitions"], wanted["replication_factor"]) == (50, 3)
    assert {"name": "cleanup.policy", "value": "compact"} in wanted["configs"]
    wanted = topic_plans.with_own_numbers(state, "t")
    assert (wanted["num_partitions"], wanted["replication_factor"]) == (1, 2)
    assert not wanted["configs"]


def test_brokers_that_are_leaving_get_no_replica_while_there_are_others() -> None:
    nodes = Nodes(1, 2, 3)
    state = nodes.leader.state
    state.leaving.add(2)
    assert {each for one in placement.place_replicas(state, 4, 2) for each in one} == {1, 3}
    assert {each for one in placement.place_replicas(state, 4, 3) for each in one} == {1, 2, 3}
