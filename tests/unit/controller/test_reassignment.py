"""Reassignments, those that another controller left under way and new ones, to their end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krust.controller import brokers, reassignment
from krust.controller.entities import Partition
from krust.controller.state import ControllerState
from krust.messages import Message
from krust.metadata.admin_contents import Reassignment
from krust.metadata.contents import PartitionState
from krust.metadata.store import Create, Delete, SetData
from tests.unit.controller.nodes import Member, Nodes, writes

TOPIC = "/brokers/topics/t"
ZNODE = "/admin/reassign_partitions"


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
    states = [state(1, 1, 2), state(1, 1, 2)]
    nodes.write(
        Create(TOPIC, json.dumps(assignment).encode()),
        Create(f"{TOPIC}/partitions"),
        *(Create(f"{TOPIC}/partitions/{index}") for index in (0, 1)),
        *(Create(f"{TOPIC}/partitions/{n}/state", each) for n, each in enumerate(states)),
    )
    return nodes


def state(leader: int, *isr: int) -> bytes:
    return PartitionState(1, leader, 4, isr).encode()


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


def test_brokers_are_sent_the_replicas_that_are_added_and_removed() -> None:
    nodes = moving()
    leads = [each["topic_states"] for each in nodes.requests_to(2, "LeaderAndIsr")]
    topics = [topic for states in leads for topic in states]
    states = {each["partition_index"]: each for one in topics for each in one["partition_states"]}
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


# From the request to the end.


def copied(factor: int = 2, brokers: int = 4, partitions: int = 1, **config: str) -> Nodes:
    """A topic on brokers 1 and 2, or more, of several."""
    nodes = Nodes(*range(1, brokers + 1))
    given = [
        {"partition_index": n, "broker_ids": list(range(1, factor + 1))} for n in range(partitions)
    ]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given}
    configs = [{"name": key.replace("_", "."), "value": text} for key, text in config.items()]
    topic = {"name": "t", **fields, "configs": configs}
    (result,) = nodes.leader.ask("CreateTopics", {"topics": [topic]})["topics"]
    assert result["error_code"] == 0
    nodes.forget()
    return nodes


def first(nodes: Nodes, index: int = 0) -> Partition:
    return nodes.leader.state.topics["t"].partitions[index]


def catch_up(nodes: Nodes, *isr: int, index: int = 0) -> int:
    """The leader says that these replicas are in sync."""
    now = first(nodes, index)
    epochs = {each: nodes.members[each].state.broker_epoch for each in isr}
    row = {
        "partition_index": index,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.version,
        "leader_recovery_state": 0,
        "new_isr_with_epochs": [
            {"broker_id": each, "broker_epoch": epoch} for each, epoch in epochs.items()
        ],
    }
    topic = {"topic_id": nodes.leader.state.topics["t"].id, "partitions": [row]}
    epoch = nodes.members[now.leader].state.broker_epoch
    message = {"broker_id": now.leader, "broker_epoch": epoch, "topics": [topic]}
    (result,) = nodes.leader.ask("AlterPartition", message, 3)["topics"][0]["partitions"]
    nodes.rest()
    return int(result["error_code"])


def ongoing(nodes: Nodes) -> list[Any]:
    return list(nodes.leader.ask("ListPartitionReassignments", {"topics": None})["topics"])


def stopped(nodes: Nodes, broker: int) -> list[tuple[int, int, bool]]:
    """The partitions that a broker was asked to stop: number, leader epoch, whether it deletes."""
    return [
        (each["partition_index"], each["leader_epoch"], each["delete_partition"])
        for message in nodes.requests_to(broker, "StopReplica")
        for topic in message["topic_states"]
        for each in topic["partition_states"]
    ]


def partition_states_for(nodes: Nodes, broker: int) -> dict[str, Any]:
    """What the last request to a broker says of partition 0."""
    found = [
        each
        for message in nodes.requests_to(broker, "LeaderAndIsr")
        for topic in message["topic_states"]
        for each in topic["partition_states"]
        if each["partition_index"] == 0
    ]
    return dict(found[-1])


def test_new_replicas_are_notified_although_their_leader_changed_the_isr_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2, 3)
    given = [{"partition_index": 0, "broker_ids": [1, 2]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given}
    nodes.leader.ask("CreateTopics", {"topics": [{"name": "t", **fields, "configs": []}]})
    real, isrs = brokers.write_states, [(1,)]

    def raced(state: ControllerState, wanted: Any) -> Any:
        if isrs:
            smaller = PartitionState(1, 1, 0, isrs.pop()).encode()
            nodes.tool.submit([SetData(f"{TOPIC}/partitions/0/state", smaller)], "tool")
        return (yield from real(state, wanted))

    monkeypatch.setattr(brokers, "write_states", raced)
    assert altered(nodes, (0, [1, 2, 3])) == [0]
    partition = nodes.leader.state.topics["t"].partitions[0]
    assert (partition.leader_epoch, partition.isr) == (1, (1,))
    (message,) = nodes.requests_to(3, "LeaderAndIsr")[-1]["topic_states"]
    assert message["partition_states"][0]["leader_epoch"] == 1


def test_new_replicas_are_notified_in_a_new_epoch_and_nothing_is_removed_yet() -> None:
    nodes = copied()
    assert altered(nodes, (0, [3, 4])) == [0]
    assert written(nodes)["partitions"]["0"] == [3, 4, 1, 2]
    assert written(nodes)["adding_replicas"] == {"0": [3, 4]}
    assert written(nodes)["removing_replicas"] == {"0": [1, 2]}
    assert (first(nodes).leader, first(nodes).isr, first(nodes).leader_epoch) == (1, (1, 2), 1)
    for broker in (3, 4):
        assert partition_states_for(nodes, broker)["replicas"] == [3, 4, 1, 2]
        assert partition_states_for(nodes, broker)["is_new"]
    assert not partition_states_for(nodes, 2)["is_new"]
    assert not stopped(nodes, 2)


def test_a_reassignment_ends_when_all_new_replicas_are_in_sync() -> None:
    nodes = copied()
    altered(nodes, (0, [3, 4]))
    assert catch_up(nodes, 1, 2, 3) == 0
    assert ongoing(nodes)
    nodes.forget()
    assert catch_up(nodes, 1, 2, 3, 4) == 0
    assert not ongoing(nodes)
    assert written(nodes)["partitions"]["0"] == [3, 4]
    assert (written(nodes)["adding_replicas"], written(nodes)["removing_replicas"]) == ({}, {})
    assert (first(nodes).leader, first(nodes).isr, first(nodes).leader_epoch) == (3, (3, 4), 2)
    assert partition_states_for(nodes, 4)["replicas"] == [3, 4]
    assert stopped(nodes, 2) == [(0, 2, True)]
    assert not stopped(nodes, 3)


def test_the_leader_stays_if_it_is_a_replica_that_stays() -> None:
    nodes = copied()
    altered(nodes, (0, [1, 3]))
    catch_up(nodes, 1, 2, 3)
    assert (first(nodes).leader, first(nodes).isr, first(nodes).replicas) == (1, (1, 3), (1, 3))


def test_the_end_of_a_reassignment_is_one_transaction_and_the_topic_is_its_last_write() -> None:
    nodes = copied()
    altered(nodes, (0, [3, 4]))
    nodes.leader.submitted.clear()
    catch_up(nodes, 1, 2, 3, 4)
    (end,) = [
        [each.path for each in writes(operations)]
        for operations in nodes.leader.submitted
        if any(each.path == TOPIC for each in writes(operations))
    ]
    assert end == [f"{TOPIC}/partitions/0/state", TOPIC]


def test_a_replica_that_goes_cannot_join_the_isr_again_at_the_end() -> None:
    nodes = copied(factor=3)
    altered(nodes, (0, [1, 2]))
    assert (first(nodes).replicas, first(nodes).isr) == ((1, 2), (1, 2))
    assert catch_up(nodes, 1, 2, 3) == 42


@pytest.mark.parametrize("factor", [1, 3])
def test_the_replication_factor_changes(factor: int) -> None:
    nodes = copied()
    wanted = list(range(1, factor + 1))
    assert altered(nodes, (0, wanted)) == [0]
    if factor > 2:
        catch_up(nodes, *wanted)
    assert written(nodes)["partitions"]["0"] == wanted
    assert first(nodes).isr == tuple(wanted)


def test_v1_may_forbid_another_replication_factor() -> None:
    nodes = copied()
    row = {"partition_index": 0, "replicas": [1, 2, 3]}
    message = {
        "topics": [{"name": "t", "partitions": [row]}],
        "allow_replication_factor_change": False,
    }
    answer = nodes.leader.ask("AlterPartitionReassignments", message)
    assert answer["responses"][0]["partitions"][0]["error_code"] == 38


def test_a_cancelled_reassignment_leaves_the_replicas_of_before_and_deletes_the_new() -> None:
    nodes = copied()
    altered(nodes, (0, [3, 4]))
    catch_up(nodes, 1, 2, 3)
    nodes.forget()
    assert altered(nodes, (0, None)) == [0]
    assert written(nodes)["partitions"]["0"] == [1, 2]
    assert not ongoing(nodes)
    assert (first(nodes).isr, first(nodes).leader_epoch) == ((1, 2), 2)
    assert stopped(nodes, 3) == [(0, 2, True)]
    assert stopped(nodes, 4) == [(0, 2, True)]


def test_another_target_replaces_a_reassignment() -> None:
    nodes = copied()
    altered(nodes, (0, [1, 3]))
    catch_up(nodes, 1, 2, 3)
    assert first(nodes).replicas == (1, 3)
    altered(nodes, (0, [4, 3]))
    assert altered(nodes, (0, [2, 3])) == [0]
    assert written(nodes)["partitions"]["0"] == [2, 3, 1]
    assert (written(nodes)["adding_replicas"], first(nodes).removing) == ({"0": [2]}, (1,))
    assert stopped(nodes, 4) == [(0, 4, True)]


def test_a_cancel_that_would_leave_too_few_in_sync_is_refused() -> None:
    nodes = copied(min_insync_replicas="2")
    altered(nodes, (0, [3, 4]))
    catch_up(nodes, 1, 3)
    assert altered(nodes, (0, None)) == [39]
    catch_up(nodes, 1, 2, 3)
    assert altered(nodes, (0, None)) == [0]


@pytest.mark.parametrize(
    ("replicas", "code"),
    [([], 39), ([1, 1], 39), ([-1], 39), ([1, 9], 39), (None, 85)],
)
def test_a_reassignment_that_cannot_be_is_refused(replicas: list[int] | None, code: int) -> None:
    nodes = copied()
    assert altered(nodes, (0, replicas), (7, [1])) == [code, 3]


def test_a_new_controller_continues_a_reassignment() -> None:
    nodes = copied()
    altered(nodes, (0, [3, 4]))
    nodes.write(Delete("/controller"))
    nodes.members[1].die()
    assert nodes.leader.id != 1
    assert ongoing(nodes)
    assert first(nodes).leader == 2
    assert catch_up(nodes, 2, 3, 4) == 0
    assert first(nodes).replicas == (3, 4)
    assert not ongoing(nodes)


def test_several_hundred_partitions_are_reassigned_in_slices() -> None:
    nodes = copied(partitions=300)
    nodes.leader.submitted.clear()
    assert set(altered(nodes, *((n, [1, 3]) for n in range(300)))) == {0}
    for index in range(300):
        catch_up(nodes, 1, 2, 3, index=index)
    assert not ongoing(nodes)
    assert {each.replicas for each in nodes.leader.state.topics["t"].partitions} == {(1, 3)}
    assert {each.isr for each in nodes.leader.state.topics["t"].partitions} == {(1, 3)}
    assert max(len(writes(each)) for each in nodes.leader.submitted) <= 50


def test_a_reassignment_waits_for_a_dead_broker_and_goes_on_when_it_is_back() -> None:
    nodes = copied()
    altered(nodes, (0, [3, 4]))
    nodes.members[4].die()
    catch_up(nodes, 1, 2, 3)
    assert ongoing(nodes)
    Member(nodes, 4)
    nodes.rest()
    catch_up(nodes, 1, 2, 3, 4)
    assert first(nodes).replicas == (3, 4)


def test_a_reassignment_that_no_leader_knows_ends_once_a_replica_is_alive() -> None:
    nodes = Nodes(1, 2)
    assignment = {"partitions": {"0": [3, 4]}, "topic_id": "PctXnh4jScWzv_Ab2ih1zQ", "version": 3}
    nodes.write(Create(TOPIC, json.dumps(assignment).encode()))
    assert altered(nodes, (0, [3])) == [0]
    assert ongoing(nodes)
    Member(nodes, 3)
    nodes.rest()
    assert not ongoing(nodes)
    assert (first(nodes).leader, first(nodes).replicas) == (3, (3,))


def test_a_state_that_was_decided_before_a_reassignment_does_not_erase_it() -> None:
    nodes = copied()
    before = nodes.leader.state.topics["t"]
    altered(nodes, (0, [3, 4]))
    decided = before.partitions[0]._replace(isr=(1,), version=first(nodes).version + 1)
    nodes.leader.state.update_partitions(before, {0: decided})
    assert (first(nodes).isr, first(nodes).replicas) == ((1,), (3, 4, 1, 2))
    assert first(nodes).adding == (3, 4)


# Through the znode of old tools.


def test_an_old_tools_znode_stays_until_its_reassignments_have_ended() -> None:
    nodes = copied(partitions=2)
    wanted = Reassignment((("t", 0, (1, 3)), ("t", 1, (3, 4)), ("t", 9, (1,)), ("no", 0, (1,))))
    nodes.write(Create(ZNODE, wanted.encode()))
    assert Reassignment.decode((nodes.node(ZNODE) or "").encode()).partitions == (
        ("t", 0, (1, 3)),
        ("t", 1, (3, 4)),
    )
    catch_up(nodes, 1, 2, 3)
    assert Reassignment.decode((nodes.node(ZNODE) or "").encode()).partitions == (("t", 1, (3, 4)),)
    catch_up(nodes, 1, 2, 3, 4, index=1)
    assert nodes.node(ZNODE) is None
    assert first(nodes, 1).replicas == (3, 4)


def test_a_request_replaces_a_reassignment_of_the_znode() -> None:
    nodes = copied()
    nodes.write(Create(ZNODE, Reassignment((("t", 0, (3, 4)),)).encode()))
    assert altered(nodes, (0, None)) == [0]
    nodes.rest()
    assert nodes.node(ZNODE) is None
    assert first(nodes).replicas == (1, 2)


def test_the_end_of_a_reassignment_is_not_written_over_a_newer_isr() -> None:
    nodes = copied(factor=3)
    state = nodes.leader.state
    before = state.topics["t"]
    end = before.partitions[0]._replace(replicas=(1, 2), isr=(1, 2), leader_epoch=1, version=1)
    assert catch_up(nodes, 1, 3) == 0
    nodes.leader.run(reassignment._write(state, before, {0: end}))
    nodes.rest()
    assert written(nodes)["partitions"]["0"] == [1, 2, 3]
    assert (first(nodes).isr, first(nodes).replicas) == ((1, 3), (1, 2, 3))


def test_replicas_of_a_state_that_was_read_again_meanwhile_are_written_without_it() -> None:
    nodes = copied(factor=3)
    topic = nodes.leader.state.topics["t"]
    asked = topic.partitions[0]._replace(replicas=(3, 1, 2))
    again = topic._replace(partitions=(topic.partitions[0]._replace(leader=-1),))
    now = reassignment._with(again, {0: asked})
    assert (now.partitions[0].leader, now.partitions[0].replicas) == (-1, (3, 1, 2))
