"""Three thousand partitions change leaders in slices; groups have their turn between slices."""

from __future__ import annotations

from typing import Any

import pytest

from krust.controller import full_requests
from krust.controller.changes import Changes
from krust.controller.control_messages import metadata_partition
from krust.controller.control_request_handlers import FULL
from krust.controller.control_requests import LEAST_OF_ALL, ControlRequests
from krust.controller.control_requests import PARTITIONS_PER_SLICE as SENT
from krust.controller.controller import ControllerOutcome
from krust.controller.full_requests import FullRequests
from krust.controller.offline_replicas import OfflineReplicas
from krust.controller.pace import BATCHED, SLICE
from krust.controller.state import ControllerState
from krust.messages import Message
from krust.metadata import znodes
from krust.metadata.contents import TopicAssignment
from krust.metadata.store import Create, Read, SetData
from tests.unit.controller.nodes import Member, Nodes, writes

MANY = 1000


def led_by_broker_2(partitions: int = MANY) -> Nodes:
    """Three brokers and a topic whose partitions broker 2 leads."""
    nodes = Nodes(1, 2, 3)
    nodes.write(Create(znodes.topic("t"), TopicAssignment(((2, 3, 1),) * partitions).encode()))
    assert {each.leader for each in nodes.leader.state.topics["t"].partitions} == {2}
    nodes.forget()
    nodes.leader.submitted.clear()
    return nodes


def largest_write(member: Member) -> int:
    return max(len(writes(each)) for each in member.submitted)


def test_leaders_are_elected_and_sent_in_slices() -> None:
    nodes = led_by_broker_2()
    nodes.members[2].die()
    assert {each.leader for each in nodes.leader.state.topics["t"].partitions} == {3}
    assert largest_write(nodes.leader) <= 50
    for api in ("LeaderAndIsr", "UpdateMetadata"):
        sent: list[int] = []
        for message in nodes.requests_to(3, api):
            states = [one for each in message["topic_states"] for one in each["partition_states"]]
            assert len(states) <= SENT
            sent += [each["partition_index"] for each in states]
        assert sorted(sent) == list(range(MANY))


def test_a_broker_that_stops_hands_its_leaderships_over_in_slices() -> None:
    nodes = led_by_broker_2()
    message = {"broker_id": 2, "broker_epoch": nodes.members[2].state.broker_epoch}
    answer = nodes.leader.ask("ControlledShutdown", message)
    assert (answer["error_code"], answer["remaining_partitions"]) == (0, [])
    assert {each.leader for each in nodes.leader.state.topics["t"].partitions} == {3}
    assert largest_write(nodes.leader) <= 50


def alter(nodes: Nodes, *partitions: tuple[int, list[int], int]) -> list[Message]:
    """AlterPartition by broker 2: index, ISR and known partition epoch of each."""
    asked = [
        {
            "partition_index": index,
            "leader_epoch": 0,
            "new_isr": isr,
            "leader_recovery_state": 0,
            "partition_epoch": epoch,
        }
        for index, isr, epoch in partitions
    ]
    topic = {"topic_name": "t", "partitions": asked}
    epoch = nodes.members[2].state.broker_epoch
    message = {"broker_id": 2, "broker_epoch": epoch, "topics": [topic]}
    answer = nodes.leader.ask("AlterPartition", message, version=1)
    results: list[Message] = answer["topics"][0]["partitions"]
    return results


def test_new_isrs_are_written_in_batches() -> None:
    nodes = led_by_broker_2()
    results = alter(nodes, *((index, [2, 3], 0) for index in range(MANY)))
    assert {each["error_code"] for each in results} == {0}
    assert [each["partition_index"] for each in results] == list(range(MANY))
    assert {each.isr for each in nodes.leader.state.topics["t"].partitions} == {(2, 3)}
    batches = -(-MANY * BATCHED // SLICE)
    assert batches <= len([each for each in nodes.leader.submitted if writes(each)]) <= batches + 5


def test_a_refused_isr_of_a_batch_refuses_no_other() -> None:
    nodes = led_by_broker_2(3)
    results = alter(nodes, (0, [2, 3], 0), (1, [3], 0), (2, [2], 0), (9, [2], 0))
    assert [each["error_code"] for each in results] == [0, 42, 0, 3]
    isrs = [each.isr for each in nodes.leader.state.topics["t"].partitions]
    assert isrs == [(2, 3), (2, 3, 1), (2,)]


def test_a_partition_that_is_altered_twice_is_written_twice() -> None:
    nodes = led_by_broker_2(1)
    results = alter(nodes, (0, [2, 3], 0), (0, [2], 1))
    assert [each["partition_epoch"] for each in results] == [1, 2]
    assert nodes.leader.state.topics["t"].partitions[0].isr == (2,)


def test_a_state_that_others_changed_refuses_no_other_isr_of_a_batch() -> None:
    nodes = led_by_broker_2(2)
    path = znodes.state("t", 0)
    data: Any = nodes.node(path)
    nodes.tool.submit([SetData(path, data.encode())], "tool")
    results = alter(nodes, (0, [2, 3], 0), (1, [2, 3], 0))
    assert [each["error_code"] for each in results] == [95, 0]
    assert nodes.leader.state.topics["t"].partitions[0].version == 1


def test_offline_replicas_are_kept_by_broker_and_by_partition() -> None:
    offline = OfflineReplicas()
    offline.replace(1, [("t", 0), ("t", 1)])
    offline.add(2, ("t", 1))
    assert set(offline.brokers_of(("t", 1))) == {1, 2}
    offline.replace(1, [("u", 0)])
    assert set(offline.brokers_of(("t", 1))) == {2}
    assert not offline.brokers_of(("t", 0))
    offline.retain([1])
    assert not offline.brokers_of(("t", 1))
    assert set(offline.brokers_of(("u", 0))) == {1}


def test_a_paused_sweep_goes_on_so_that_its_broker_can_return_to_the_cluster() -> None:
    nodes = led_by_broker_2()
    leader = nodes.leader
    nodes.members.pop(2).store.close()
    while not leader.controller.is_job_paused:
        for event in leader.store.events():
            leader.take_event(event)
    leader.perform(leader.controller.run(99, leader.controller.recover(leader.registration)))
    while 99 not in leader.answers:
        leader.perform(leader.controller.resume(job_only=True))
        for event in leader.store.events():
            leader.take_event(event)
    assert leader.answers[99] is None


def test_a_new_controller_reads_the_states_of_partitions_in_slices() -> None:
    nodes = led_by_broker_2()
    nodes.leader.die()
    states = [
        sum(each.path.endswith("/state") for each in operations if isinstance(each, Read))
        for operations in nodes.leader.submitted
    ]
    assert sum(states) >= MANY
    assert max(states) <= SLICE // 2


def test_a_new_controller_sends_everything_to_one_broker_in_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2, 3, 4)
    nodes.leader.create("t", 4)
    slices: list[list[int]] = []
    perform = Member.perform

    def recorded(member: Member, outcome: ControllerOutcome) -> None:
        full = [each for each in outcome.requests if each.message.get("type") == FULL]
        slices.append(sorted({each.broker for each in full}))
        perform(member, outcome)

    monkeypatch.setattr(Member, "perform", recorded)
    nodes.leader.die()
    assert [each for each in slices if each] == [[3], [4]]


def test_a_slice_of_changes_leaves_room_for_a_new_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = led_by_broker_2()
    state = nodes.leader.state
    rooms: list[int] = []
    monkeypatch.setattr(FullRequests, "build", lambda _full, _state, most: rooms.append(most))
    for informed in (False, True):
        control = ControlRequests()
        if informed:
            control._full_epochs[2] = state.brokers[2].epoch
        changes = Changes()
        changes.topics["t"] = state.topics["t"]
        control.for_changes(state, changes)
    assert rooms == [SENT, LEAST_OF_ALL], "all of it, if nobody is told of the changes"


def partitions_of(message: Message) -> list[Message]:
    return [one for each in message["topic_states"] for one in each["partition_states"]]


def test_everything_for_a_new_broker_is_built_in_slices_and_sent_in_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[int] = []
    build = FullRequests.build

    def counted(full: FullRequests, state: ControllerState, most: int) -> bool:
        calls = len(metadata_partitions)
        is_complete = build(full, state, most)
        built.append(len(metadata_partitions) - calls)
        return is_complete

    metadata_partitions: list[int] = []
    real = metadata_partition

    def recorded(*args: Any) -> Any:
        metadata_partitions.append(args[1])
        return real(*args)

    nodes = led_by_broker_2()
    monkeypatch.setattr(FullRequests, "build", counted)
    monkeypatch.setattr(full_requests, "metadata_partition", recorded)
    nodes.leader.die()
    (other,) = nodes.leader.state.brokers.keys() - {nodes.leader.state.node_id}
    assert max(built) <= SENT
    assert sum(built) >= MANY
    for api in ("LeaderAndIsr", "UpdateMetadata"):
        full = [each for each in nodes.requests_to(other, api) if each["type"] == FULL]
        assert [len(partitions_of(each)) for each in full] == [MANY]


def test_a_partition_that_changes_while_everything_is_built_is_sent_as_it_is_at_the_end() -> None:
    nodes = led_by_broker_2(300)
    state = nodes.leader.state
    full = FullRequests(3, state.brokers[3].epoch)
    assert not full.build(state, 200)
    results = alter(nodes, (0, [2, 3], 0))
    assert results[0]["error_code"] == 0
    assert not full.build(state, 100)
    assert full.build(state, 200)
    for message in (each.message for each in full.requests(state)):
        states = partitions_of(message)
        assert [each["partition_index"] for each in states] == list(range(300))
        assert states[0]["isr"] == [2, 3]


def test_topics_that_are_deleted_while_everything_is_built_are_not_sent() -> None:
    nodes = led_by_broker_2(2)
    nodes.leader.create("gone", 1, 3)
    state = nodes.leader.state
    full = FullRequests(3, state.brokers[3].epoch)
    assert full.build(state, 200)
    nodes.leader.ask("DeleteTopics", {"topics": [{"name": "gone"}], "timeout_ms": 1000})
    assert full.build(state, 200)
    for message in (each.message for each in full.requests(state)):
        assert [each["topic_name"] for each in message["topic_states"]] == ["t"]


def test_a_broker_is_asked_about_its_replicas_in_slices() -> None:
    nodes = led_by_broker_2()
    requests = list(ControlRequests().inquiry(nodes.leader.state, 2))
    sizes = [len(partitions_of(each.message)) for each in requests]
    assert sizes == [min(SENT, MANY - first) for first in range(0, MANY, SENT)]
