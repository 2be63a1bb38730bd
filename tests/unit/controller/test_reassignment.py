"""Reassignments that another controller left under way are kept, shown and not overwritten."""

from __future__ import annotations

import json

from krust.messages import Message
from krust.metadata.store import Create, SetData
from tests.unit.controller.nodes import Nodes, writes

TOPIC = "/brokers/topics/t"


def moving() -> Nodes:
    """Three brokers and a topic whose partition 0 moves from broker 1 to broker 3."""
    nodes = Nodes(1, 2, 3)
    assignment = {
        "partitions": {"0": [3, 2, 1], "1": [1, 2]},
        "topic_id": "PctXnh4jScWzv_Ab2ih1zQ",
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
        "version": 3,
    }
    nodes.write(Create(TOPIC, json.dumps(assignment).encode()))
    return nodes


def written(nodes: Nodes) -> Message:
    found: Message = json.loads(nodes.node(TOPIC) or "{}")
    return found


def altered(nodes: Nodes, *partitions: tuple[int, list[int] | None]) -> list[int]:
    asked = [{"partition_index": index, "replicas": replicas} for index, replicas in partitions]
    message = {"topics": [{"name": "t", "partitions": asked}]}
    (topic,) = nodes.leader.ask("AlterPartitionReassignments", message)["responses"]
    return [each["error_code"] for each in topic["partitions"]]


def test_new_partitions_do_not_erase_a_reassignment() -> None:
    nodes = moving()
    grown = {"name": "t", "count": 3, "assignments": [{"broker_ids": [2, 3]}]}
    answer = nodes.leader.ask("CreatePartitions", {"topics": [grown], "validate_only": False})
    assert answer["results"][0]["error_code"] == 0
    assert written(nodes)["partitions"].keys() == {"0", "1", "2"}
    assert written(nodes)["adding_replicas"] == {"0": [3]}
    assert written(nodes)["removing_replicas"] == {"0": [1]}


def test_another_order_of_replicas_does_not_erase_a_reassignment() -> None:
    nodes = moving()
    assert altered(nodes, (1, [2, 1])) == [0]
    assert written(nodes)["partitions"]["1"] == [2, 1]
    assert written(nodes)["adding_replicas"] == {"0": [3]}
    assert written(nodes)["removing_replicas"] == {"0": [1]}


def test_a_reassignment_under_way_is_listed() -> None:
    nodes = moving()
    for asked in (None, [{"name": "t", "partition_indexes": [0, 1]}]):
        answer = nodes.leader.ask("ListPartitionReassignments", {"topics": asked})
        (topic,) = answer["topics"]
        assert topic["partitions"] == [
            {
                "partition_index": 0,
                "replicas": [3, 2, 1],
                "adding_replicas": [3],
                "removing_replicas": [1],
            }
        ]
    other = {"topics": [{"name": "t", "partition_indexes": [1]}]}
    assert nodes.leader.ask("ListPartitionReassignments", other)["topics"] == []


def test_a_reassignment_under_way_is_neither_changed_nor_cancelled() -> None:
    nodes = moving()
    assert altered(nodes, (0, [1, 2, 3]), (1, None), (0, None)) == [39, 85]
    assert altered(nodes, (0, None)) == [39]
    assert written(nodes)["partitions"]["0"] == [3, 2, 1]


def test_brokers_are_sent_the_replicas_that_are_added_and_removed() -> None:
    nodes = moving()
    (lead,) = nodes.told(2, "LeaderAndIsr")[-1]["topic_states"]
    states = {each["partition_index"]: each for each in lead["partition_states"]}
    assert (states[0]["adding_replicas"], states[0]["removing_replicas"]) == ([3], [1])
    assert (states[1]["adding_replicas"], states[1]["removing_replicas"]) == ([], [])


def test_a_reassignment_that_ends_in_the_tree_ends_here() -> None:
    nodes = moving()
    done = {**written(nodes), "partitions": {"0": [3, 2], "1": [1, 2]}}
    done |= {"adding_replicas": {}, "removing_replicas": {}}
    nodes.write(SetData(TOPIC, json.dumps(done).encode()))
    first = nodes.leader.state.topics["t"].partitions[0]
    assert (first.replicas, first.adding, first.removing) == ((3, 2), (), ())


def test_all_orders_of_replicas_of_a_topic_are_one_write() -> None:
    nodes = moving()
    nodes.write(Create("/brokers/topics/u", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}'))
    nodes.leader.submitted.clear()
    asked = [{"partition_index": index, "replicas": [2 - index, 1 + index]} for index in (0, 1)]
    message = {"topics": [{"name": "u", "partitions": asked}]}
    nodes.leader.ask("AlterPartitionReassignments", message)
    data = json.loads(nodes.node("/brokers/topics/u") or "{}")
    assert data["partitions"] == {"0": [2, 1], "1": [1, 2]}
    assert sum(len(writes(each)) for each in nodes.leader.submitted) == 1
