"""Several brokers: elections, registrations, and the control requests that each broker gets."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from krust.controller import brokers, features, jobs
from krust.controller.controller import ControllerOutcome
from krust.controller.controller_election import RetryLaterError
from krust.controller.returned_brokers import ReturnedBrokers
from krust.controller.state import ControllerState, Steps
from krust.messages import Message
from krust.metadata import znodes
from krust.metadata.admin_contents import Partitions, Reassignment
from krust.metadata.contents import ConfigChange, EntityConfig
from krust.metadata.store import Check, Create, Delete, MultiResult, Operation, Refusal, SetData
from tests.unit.controller.nodes import Member, Nodes, writes

OF_NOBODY = {
    *znodes.PERSISTENT,
    znodes.CLUSTER_ID,
    znodes.FEATURE,
    znodes.CONTROLLER,
    znodes.CONTROLLER_EPOCH,
}
"""The persistent nodes, and those of the election: each may be created by any broker."""


def leaders(nodes: Nodes, name: str) -> list[int]:
    return [each.leader for each in nodes.leader.state.topics[name].partitions]


def state(nodes: Nodes, name: str, partition: int = 0) -> dict[str, object]:
    node = nodes.node(f"/brokers/topics/{name}/partitions/{partition}/state")
    found: dict[str, object] = json.loads(node or "{}")
    return found


def test_the_first_broker_is_the_controller_and_the_others_know_it() -> None:
    nodes = Nodes(1, 2, 3)
    assert nodes.leader.id == 1
    assert [each.state.controller_id for each in nodes.members.values()] == [1, 1, 1]
    assert sorted(nodes.leader.state.brokers) == [1, 2, 3]
    assert nodes.leader.state.brokers[3].endpoints[0].host == "host3"


def test_a_new_broker_gets_the_whole_state_and_the_others_its_registration() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    nodes.forget()
    Member(nodes, 3)
    nodes.rest()
    (whole,), (lead,) = nodes.requests_to(3, "UpdateMetadata"), nodes.requests_to(3, "LeaderAndIsr")
    assert (whole["type"], lead["type"]) == (2, 2)
    assert [each["id"] for each in whole["live_brokers"]] == [1, 2, 3]
    assert [each["topic_name"] for each in whole["topic_states"]] == ["t"]
    assert whole["broker_epoch"] == nodes.members[3].state.broker_epoch
    (update,) = nodes.requests_to(2, "UpdateMetadata")
    assert [each["id"] for each in update["live_brokers"]] == [1, 2, 3]
    assert nodes.requests_to(2, "LeaderAndIsr") == []


def test_partitions_are_spread_round_robin() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("a", 3)
    nodes.leader.create("b")
    nodes.leader.create("c")
    assert leaders(nodes, "a") == [1, 2, 3]
    assert leaders(nodes, "b") + leaders(nodes, "c") == [1, 2]


def test_a_new_topic_is_sent_to_its_replicas_and_known_to_all_brokers() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.forget()
    nodes.leader.create("a", 2)
    (lead,) = nodes.requests_to(2, "LeaderAndIsr")
    (topic,) = lead["topic_states"]
    assert (topic["topic_name"], lead["type"]) == ("a", 1)
    assert [each["partition_index"] for each in topic["partition_states"]] == [1]
    assert nodes.requests_to(3, "LeaderAndIsr") == []
    (update,) = nodes.requests_to(3, "UpdateMetadata")
    assert [each["leader"] for each in update["topic_states"][0]["partition_states"]] == [1, 2]


def test_partitions_of_a_dead_broker_have_no_leader_until_it_returns() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    nodes.members[2].die()
    assert leaders(nodes, "t") == [1, -1]
    assert state(nodes, "t", 1) | {"version": 1} == {
        "controller_epoch": 1,
        "leader": -1,
        "version": 1,
        "leader_epoch": 1,
        "isr": [2],
    }
    Member(nodes, 2)
    nodes.rest()
    assert leaders(nodes, "t") == [1, 2]
    assert state(nodes, "t", 1)["leader_epoch"] == 2
    assert state(nodes, "t", 0)["leader_epoch"] == 0


def test_another_replica_of_the_isr_leads_when_the_leader_dies() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    nodes.members[2].die()
    assert leaders(nodes, "t") == [3]
    assert state(nodes, "t")["isr"] == [3, 1]


def replicated(nodes: Nodes) -> None:
    """A topic with replicas on 2, 3 and 1, which another controller made."""
    topic = {"partitions": {"0": [2, 3, 1]}, "topic_id": "PctXnh4jScWzv_Ab2ih1zQ", "version": 3}
    nodes.write(
        Create("/config/topics/t", EntityConfig({}).encode()),
        Create("/brokers/topics/t", json.dumps(topic).encode()),
    )


def test_a_topic_written_by_a_tool_gets_leaders_and_is_announced() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.forget()
    replicated(nodes)
    assert state(nodes, "t") | {"isr": []} == {
        "controller_epoch": 1,
        "leader": 2,
        "version": 1,
        "leader_epoch": 0,
        "isr": [],
    }
    assert nodes.requests_to(2, "LeaderAndIsr")
    assert nodes.requests_to(3, "LeaderAndIsr")


def test_partitions_added_by_a_tool_get_leaders() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    grown = json.loads(nodes.node("/brokers/topics/t") or "")
    grown["partitions"]["1"] = [3]
    nodes.write(SetData("/brokers/topics/t", json.dumps(grown).encode()))
    assert leaders(nodes, "t") == [2, 3]


def test_a_disk_failure_is_reported_when_the_store_is_reachable_again() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    lonely = nodes.members[2]
    lonely.store.close()
    lonely.send("LogDirFailed", {"replicas": [{"topic": "t", "partition": 1}]})
    lonely.submitted.clear()
    lonely.expire()
    nodes.rest()
    event = [{"version": 1, "broker": 2, "event": 1}]
    assert told_events(lonely) == event
    lonely.expire()
    nodes.rest()
    assert told_events(lonely) == event


def told_events(member: Member) -> list[dict[str, object]]:
    """What a member asked the store to write into `/log_dir_event_notification`."""
    writes = [each for operations in member.submitted for each in operations]
    return [
        json.loads(each.data)
        for each in writes
        if isinstance(each, Create) and each.path.startswith(znodes.LOG_DIR_EVENTS + "/")
    ]


def test_a_broker_that_registered_again_leads_in_a_new_epoch() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    before = nodes.members[2].state.broker_epoch
    nodes.members[2].expire()
    nodes.rest()
    assert nodes.members[2].state.broker_epoch > before
    assert leaders(nodes, "t") == [1, 2]
    assert int(str(state(nodes, "t", 1)["leader_epoch"])) >= 1


def test_a_broker_that_registered_again_gets_no_request_before_its_new_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    with monkeypatch.context() as cut:
        bounced(nodes, cut, Refusal.NOT_APPLIED)
        assert nodes.requests_to(2, "UpdateMetadata") + nodes.requests_to(2, "LeaderAndIsr") == []
    nodes.pass_time(jobs.RETRY_MS)
    (lead,) = nodes.requests_to(2, "LeaderAndIsr")
    assert [each["leader_epoch"] for each in lead["topic_states"][0]["partition_states"]] == [1]


def test_a_refused_state_write_does_not_stop_other_announcements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    bounced(nodes, monkeypatch, Refusal.NOT_ALLOWED)
    assert [each["type"] for each in nodes.requests_to(2, "LeaderAndIsr")] == [2]


def bounced(nodes: Nodes, patch: pytest.MonkeyPatch, reason: Refusal) -> None:
    """Broker 2 registers again. From then on the leader's earlier writes are refused."""
    one, two = nodes.leader, nodes.members[2]
    nodes.forget()

    def submit(operations: list[Operation], token: Any) -> None:
        if any(isinstance(each, SetData) for each in operations):
            one.store._events.append(MultiResult(token, (reason,) * len(operations)))
        else:
            taken(operations, token)

    taken = one.store.submit
    patch.setattr(one.store, "submit", submit)
    two.store.close()
    two.store = nodes.tree.session()
    two.store.submit(
        [Create("/brokers/ids/2", two.registration.content(-1), ephemeral=True)], "again"
    )
    two.store.events()
    nodes.rest()


def test_a_new_controller_is_elected_after_a_crash_and_announces_the_whole_state() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("t", 3)
    nodes.forget()
    nodes.members[1].die()
    assert nodes.leader.id in (2, 3)
    assert nodes.leader.state.controller_epoch == 2
    assert leaders(nodes, "t") == [-1, 2, 3]
    other = 5 - nodes.leader.id
    (whole,) = nodes.requests_to(other, "UpdateMetadata")
    assert (whole["type"], whole["controller_epoch"]) == (2, 2)


def test_a_new_controller_knows_no_leaders_before_it_has_read_the_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    two = nodes.members[2]
    steps: list[tuple[bool, bool]] = []
    tells_the_core = False

    def perform(outcome: ControllerOutcome) -> None:
        nonlocal tells_the_core
        Member.perform(two, outcome)
        steps.append((two.state.knows_leaders, "t" in two.state.topics))
        tells_the_core |= two.state.knows_leaders and outcome.changes.controller

    monkeypatch.setattr(two, "perform", perform)
    nodes.members[1].die()
    assert two.state.is_controller
    assert set(steps) == {(False, False), (False, True), (True, True)}
    assert tells_the_core


def test_a_broker_that_restarted_without_a_controller_leads_in_a_new_epoch() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    two = nodes.members[2]
    del nodes.members[1]
    two.store.close()
    two.begin()
    nodes.rest()
    assert not two.state.is_controller
    nodes.tree.end(next(each for each in nodes.tree._sessions if each.session == 2))
    Member(nodes, 3)
    nodes.rest()
    assert state(nodes, "t", 1)["leader"] == 2
    assert int(str(state(nodes, "t", 1)["leader_epoch"])) >= 1


def test_a_broker_that_is_not_the_controller_answers_not_controller() -> None:
    nodes = Nodes(1, 2)
    two = nodes.members[2]
    assert two.create("t")["error_code"] == 41
    assert two.ask("DeleteTopics", {"topic_names": ["t"]})["responses"][0]["error_code"] == 41
    wanted = {"topics": [{"name": "t", "count": 2}]}
    assert two.ask("CreatePartitions", wanted)["results"][0]["error_code"] == 41
    for api in (
        "AlterPartition",
        "AlterPartitionReassignments",
        "ControlledShutdown",
        "ElectLeaders",
    ):
        assert two.ask(api, {"broker_id": 1, "topics": []})["error_code"] == 41
    assert two.ask("AllocateProducerIds", {"broker_id": 1})["error_code"] == 41


def test_a_topic_requested_at_any_broker_is_created_by_the_controller() -> None:
    nodes = Nodes(1, 2)
    answer = nodes.members[2].ask("AutoCreate", {"topics": ["wished"]})
    assert answer == {"topics": [{"name": "wished", "error_code": 0}]}
    assert "wished" in nodes.leader.state.topics
    again = nodes.members[2].ask("AutoCreate", {"topics": ["wished"]})
    assert again == answer


def test_producer_ids_are_allocated_once_by_the_controller() -> None:
    nodes = Nodes(1, 2)
    two = nodes.members[2]
    firsts = [each.ask("AllocateProducerIds", {})["producer_id_start"] for each in (two, two)]
    firsts.append(nodes.leader.ask("AllocateProducerIds", {})["producer_id_start"])
    assert firsts == [0, 1000, 2000]
    stale = {"broker_id": 2, "broker_epoch": two.state.broker_epoch - 1}
    assert nodes.leader.ask("AllocateProducerIds", stale)["error_code"] == 77
    assert nodes.leader.ask("AllocateProducerIds", {"broker_id": 9})["error_code"] == 102


def test_settings_changed_at_any_broker_apply_everywhere() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t")
    two = nodes.members[2]
    pair = {"name": "segment.bytes", "config_operation": 0, "value": "1048576"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [pair]}
    pair["name"] = "log.segment.bytes"
    two.ask("IncrementalAlterConfigs", {"resources": [resource], "validate_only": False})
    assert nodes.leader.state.topic_text(None, "segment.bytes") == "1048576"
    nodes.write(
        SetData("/config/topics/t", EntityConfig({"retention.ms": "7"}).encode()),
        Create(
            "/config/changes/config_change_", ConfigChange("topics/t").encode(), sequential=True
        ),
    )
    assert nodes.leader.state.topics["t"].config == {"retention.ms": "7"}


def test_a_setting_changed_before_a_short_controllership_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t")
    one, real = nodes.leader, brokers.read_live_brokers

    def look(state: ControllerState) -> Generator[Any, Any, ReturnedBrokers]:
        if state is one.state and state.controller_epoch == 2:
            nodes.tool.submit([Delete("/controller")], "depose")
            raise RetryLaterError("the controller resigned")
        return (yield from real(state))

    monkeypatch.setattr(brokers, "read_live_brokers", look)
    change = ConfigChange("topics/t").encode()
    nodes.write(
        Delete("/controller"),
        SetData("/config/topics/t", EntityConfig({"retention.ms": "7"}).encode()),
        Create("/config/changes/config_change_", change, sequential=True),
    )
    nodes.pass_time(jobs.RETRY_MS)
    assert nodes.leader is not one
    assert one.state.topics["t"].config == {"retention.ms": "7"}


def test_a_change_notification_is_deleted_after_all_brokers_could_read_it() -> None:
    nodes = Nodes(1, 2)
    notice = Create("/config/changes/config_change_", b"rubbish", sequential=True)
    nodes.write(notice)
    nodes.pass_time(14 * 60_000)
    assert len(nodes.children("/config/changes")) == 1
    nodes.pass_time(60_000)
    assert nodes.children("/config/changes") == []


def test_a_topic_is_deleted_when_all_brokers_have_deleted_their_replicas() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("t", 3)
    nodes.forget()
    answer = nodes.leader.ask("DeleteTopics", {"topic_names": ["t"], "timeout_ms": 30_000})
    assert answer["responses"][0]["error_code"] == 0
    (stop,) = nodes.requests_to(2, "StopReplica")
    (topic,) = stop["topic_states"]
    assert topic["partition_states"] == [
        {"partition_index": 1, "leader_epoch": -2, "delete_partition": True}
    ]
    (update,) = nodes.requests_to(2, "UpdateMetadata")
    assert {each["leader"] for each in update["topic_states"][0]["partition_states"]} == {-2}
    for path in ("/brokers/topics", "/admin/delete_topics", "/config/topics"):
        assert nodes.children(path) == []


def test_a_deletion_waits_for_a_dead_broker_and_its_name_stays_taken() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    nodes.members[2].die()
    answer = nodes.leader.ask("DeleteTopics", {"topic_names": ["t"], "timeout_ms": 30_000})
    assert answer["responses"][0]["error_code"] == 0
    assert nodes.children("/admin/delete_topics") == ["t"]
    assert nodes.leader.create("t")["error_code"] == 36
    assert "t" not in nodes.leader.state.topics
    nodes.forget()
    Member(nodes, 2)
    nodes.rest()
    assert next(each.api for each in nodes.sent if each.broker == 2) == "StopReplica"
    assert nodes.children("/admin/delete_topics") == []
    assert nodes.leader.create("t")["error_code"] == 0


def test_a_new_controller_continues_a_deletion() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("t", 3)
    nodes.members[3].die()
    nodes.leader.ask("DeleteTopics", {"topic_names": ["t"], "timeout_ms": 30_000})
    nodes.leader.die()
    assert nodes.leader.id == 2
    assert list(nodes.leader.state.deletions) == ["t"]
    Member(nodes, 3)
    Member(nodes, 1)
    nodes.rest()
    assert nodes.children("/brokers/topics") == []
    assert nodes.children("/admin/delete_topics") == []


def test_a_deletion_mark_of_a_tool_deletes_its_topic_and_a_stray_mark_is_removed() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    nodes.write(Create("/admin/delete_topics/t"), Create("/admin/delete_topics/nothing"))
    nodes.pass_time(1000)
    assert nodes.children("/brokers/topics") == []
    assert nodes.children("/admin/delete_topics") == []


def test_with_deletion_disabled_a_deletion_mark_is_removed_and_the_topic_stays() -> None:
    nodes = Nodes(1, 2, **{"delete.topic.enable": "false"})
    nodes.leader.create("t", 2)
    nodes.write(Create("/admin/delete_topics/t"))
    assert nodes.children("/admin/delete_topics") == []
    assert nodes.children("/brokers/topics") == ["t"]


def test_a_preferred_election_of_a_tool_makes_the_preferred_replica_leader() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    nodes.leader.state.update_partitions(
        nodes.leader.state.topics["t"],
        {0: nodes.leader.state.topics["t"].partitions[0]._replace(leader=3, version=7)},
    )
    nodes.leader.state.put(
        nodes.leader.state.topics["t"]._replace(
            partitions=(nodes.leader.state.topics["t"].partitions[0]._replace(version=0),)
        )
    )
    election = Partitions((("t", 0), ("nowhere", 1))).encode()
    nodes.write(Create("/admin/preferred_replica_election", election))
    assert leaders(nodes, "t") == [2]
    assert nodes.node("/admin/preferred_replica_election") is None


def test_a_reassignment_that_cannot_be_is_refused_and_blocks_no_other() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t")
    move = Reassignment((("t", 0, (9,)),)).encode()
    nodes.write(Create("/admin/reassign_partitions", move))
    assert nodes.node("/admin/reassign_partitions") is None
    assert leaders(nodes, "t") == [1]
    assert "refused" in nodes.leader.faults["/admin/reassign_partitions"]


def test_replicas_in_another_order_are_written() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    move = Reassignment((("t", 0, (3, 1, 2)),)).encode()
    nodes.write(Create("/admin/reassign_partitions", move))
    assert nodes.leader.state.topics["t"].partitions[0].replicas == (3, 1, 2)
    assert json.loads(nodes.node("/brokers/topics/t") or "")["partitions"]["0"] == [3, 1, 2]


def test_a_client_gives_replicas_another_order() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    one = {"partition_index": 0, "replicas": [3, 1, 2]}
    message = {"topics": [{"name": "t", "partitions": [one]}]}
    [answer] = nodes.leader.ask("AlterPartitionReassignments", message)["responses"]
    assert answer["partitions"][0]["error_code"] == 0
    assert json.loads(nodes.node("/brokers/topics/t") or "")["partitions"]["0"] == [3, 1, 2]


def test_brokers_of_which_some_have_a_rack_are_refused_by_name() -> None:
    nodes = Nodes(1)
    Member(nodes, 2, **{"broker.rack": "b"})
    result = nodes.leader.create("t", 2)
    assert result["error_code"] == 42
    assert "[1] have no rack" in result["error_message"]


def test_a_controlled_shutdown_keeps_what_nobody_else_can_lead() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    nodes.leader.create("alone", 3)
    epoch = nodes.members[2].state.broker_epoch
    answer = nodes.leader.ask("ControlledShutdown", {"broker_id": 2, "broker_epoch": epoch})
    assert answer == {"error_code": 0, "remaining_partitions": []}
    assert leaders(nodes, "t") == [3]
    assert sorted(leaders(nodes, "alone")) == [1, 2, 3]
    nodes.leader.create("later", 4)
    assert 2 not in leaders(nodes, "later")


def test_an_isr_is_altered_by_its_leader_in_its_epoch_alone() -> None:
    nodes = Nodes(1, 2, 3)
    replicated(nodes)
    asked = {"partition_index": 0, "leader_epoch": 0, "new_isr": [2, 3], "partition_epoch": 0}
    topic = {"topic_name": "t", "partitions": [asked]}
    epoch = nodes.members[2].state.broker_epoch
    message = {"broker_id": 2, "broker_epoch": epoch, "topics": [topic]}

    def code(**other: object) -> int:
        topic["partitions"] = [asked | other]
        answer = nodes.leader.ask("AlterPartition", message, 1)
        (result,) = answer["topics"][0]["partitions"]
        return int(result["error_code"])

    assert code(leader_epoch=-1) == 74
    assert code(leader_epoch=1) == 41
    assert code(partition_epoch=5) == 41
    assert code(new_isr=[3]) == 42
    assert code() == 0
    assert state(nodes, "t")["isr"] == [2, 3]
    assert code(new_isr=[2]) == 95
    message["broker_epoch"] = 1
    assert nodes.leader.ask("AlterPartition", message, 1)["error_code"] == 77


def test_a_registration_that_somebody_deleted_is_written_again() -> None:
    nodes = Nodes(1, 2)
    nodes.write(Delete("/brokers/ids/2"))
    assert nodes.children("/brokers/ids") == ["1", "2"]
    assert nodes.leader.state.brokers[2].epoch == nodes.members[2].state.broker_epoch


def test_deleting_the_controller_node_triggers_an_election() -> None:
    nodes = Nodes(1, 2)
    nodes.write(Delete("/controller"))
    assert nodes.leader.state.controller_epoch == 2


def test_a_controller_elected_again_sends_everything_though_its_first_reads_are_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 2)
    real, interruptions = features.cap, iter([brokers.BrokersChangedError()])

    def cap(state: ControllerState) -> Steps:
        for each in interruptions:
            raise each
        return (yield from real(state))

    monkeypatch.setattr(features, "cap", cap)
    nodes.forget()
    nodes.write(Delete("/controller"))
    sent = nodes.requests_to(2, "UpdateMetadata") + nodes.requests_to(2, "LeaderAndIsr")
    assert [each["controller_epoch"] for each in sent if each["type"] == 2] == [2, 2]


def test_every_controller_write_checks_the_epoch() -> None:
    nodes = Nodes(1, 2, 3)
    nodes.leader.create("t", 3)
    nodes.leader.ask("CreatePartitions", {"topics": [{"name": "t", "count": 5}]})
    nodes.leader.ask("AllocateProducerIds", {})
    nodes.write(Create("/admin/preferred_replica_election", Partitions((("t", 0),)).encode()))
    nodes.write(Create("/admin/reassign_partitions", b"rubbish"))
    nodes.members[2].die()
    Member(nodes, 2)
    nodes.rest()
    nodes.leader.ask("DeleteTopics", {"topic_names": ["t"], "timeout_ms": 30_000})
    bare = []
    for member in nodes.members.values():
        for operations in member.submitted:
            first = operations[0]
            fenced = isinstance(first, Check) and first.path == "/controller_epoch"
            bare += [each.path for each in writes(operations) if not fenced]
    founding = [path for path in bare if not path.startswith("/brokers/ids/")]
    assert set(founding) <= OF_NOBODY


def test_work_of_a_former_controllership_is_dropped() -> None:
    nodes = Nodes(1, 2)
    one = nodes.members[1]
    ticket = one.send("CreateTopics", _asked("late"))
    one.state.set_controller(2, 2)
    before = one.state.topics.copy()
    answer = one.answer(ticket)
    assert answer["topics"][0]["error_code"] == 41
    assert one.state.topics == before


def test_a_controller_guard_matches_nothing_after_resignation() -> None:
    nodes = Nodes(1, 2)
    two = nodes.members[2].state
    assert two.fence().version not in (-1, nodes.leader.state.fence().version)


def _asked(name: str) -> Message:
    settings = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [{"name": name, **settings}], "validate_only": False}
