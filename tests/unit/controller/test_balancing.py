"""What the controller does about replicas without a request: balance, failed disks, old leaders."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krust.controller.control_requests import ControlRequests
from krust.controller.entities import Partition
from krust.metadata import znodes
from krust.metadata.admin_contents import LogDirEvent, Partitions
from krust.metadata.contents import PartitionState
from krust.metadata.store import Create, SetData
from tests.unit.controller.nodes import Member, Nodes, writes

FIRST_MS = 5_000
INTERVAL_MS = 300_000


def topic(nodes: Nodes, *replicas: int, partitions: int = 1, **config: str) -> None:
    given = [{"partition_index": n, "broker_ids": list(replicas)} for n in range(partitions)]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given}
    configs = [{"name": key.replace("_", "."), "value": text} for key, text in config.items()]
    asked = {"topics": [{"name": "t", **fields, "configs": configs}]}
    (result,) = nodes.leader.ask("CreateTopics", asked)["topics"]
    assert result["error_code"] == 0


def partitions(nodes: Nodes) -> tuple[Partition, ...]:
    return nodes.leader.state.topics["t"].partitions


def catch_up(nodes: Nodes, index: int, *isr: int) -> int:
    now = partitions(nodes)[index]
    members = [
        {"broker_id": each, "broker_epoch": nodes.members[each].state.broker_epoch} for each in isr
    ]
    row = {
        "partition_index": index,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.version,
        "new_isr_with_epochs": members,
    }
    named = {"topic_id": nodes.leader.state.topics["t"].id, "partitions": [row]}
    epoch = nodes.members[now.leader].state.broker_epoch
    message = {"broker_id": now.leader, "broker_epoch": epoch, "topics": [named]}
    (result,) = nodes.leader.ask("AlterPartition", message, 3)["topics"][0]["partitions"]
    return int(result["error_code"])


def returned(nodes: Nodes, count: int) -> None:
    """Broker 2 dies and is back in sync, so that broker 3 leads its partitions."""
    nodes.members[2].die()
    Member(nodes, 2)
    nodes.rest()
    for index in range(count):
        assert catch_up(nodes, index, 3, 2) == 0


def led_by(nodes: Nodes, broker: int) -> int:
    return sum(each.leader == broker for each in partitions(nodes))


# Balance.


def test_leadership_goes_back_to_preferred_replicas_by_itself() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3, partitions=4)
    nodes.pass_time(FIRST_MS)
    returned(nodes, 4)
    assert led_by(nodes, 3) == 4
    nodes.pass_time(INTERVAL_MS)
    assert led_by(nodes, 2) == 4


def test_a_new_controller_balances_after_some_seconds() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3, partitions=4)
    returned(nodes, 4)
    nodes.pass_time(FIRST_MS)
    assert led_by(nodes, 2) == 4


@pytest.mark.parametrize(("percent", "moved"), [(24, 1), (25, 0)])
def test_a_broker_is_out_of_balance_above_the_percentage(percent: int, moved: int) -> None:
    nodes = Nodes(1, 2, 3, **{"leader.imbalance.per.broker.percentage": percent})
    topic(nodes, 2, 3, partitions=4)
    returned(nodes, 4)
    asked = {"topic_partitions": [{"topic": "t", "partitions": [0, 1, 2]}], "election_type": 0}
    nodes.leader.ask("ElectLeaders", asked)
    assert led_by(nodes, 3) == 1
    nodes.pass_time(FIRST_MS)
    assert led_by(nodes, 2) == 3 + moved


def test_a_replica_that_is_not_in_sync_is_not_preferred() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3, partitions=2)
    nodes.members[2].die()
    Member(nodes, 2)
    nodes.rest()
    assert catch_up(nodes, 1, 3, 2) == 0
    nodes.pass_time(FIRST_MS)
    assert [each.leader for each in partitions(nodes)] == [3, 2]


def test_leadership_stays_where_it_is_if_the_setting_says_so() -> None:
    nodes = Nodes(1, 2, 3, **{"auto.leader.rebalance.enable": "false"})
    topic(nodes, 2, 3)
    returned(nodes, 1)
    nodes.pass_time(INTERVAL_MS)
    assert led_by(nodes, 3) == 1


def test_many_partitions_are_balanced_in_slices() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3, partitions=300)
    returned(nodes, 300)
    nodes.leader.submitted.clear()
    nodes.pass_time(FIRST_MS)
    assert led_by(nodes, 2) == 300
    assert max(len(writes(each)) for each in nodes.leader.submitted) <= 50


# Failed disks.


def fail(nodes: Nodes, broker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's disk with partition 0 fails; it says so when it is asked."""
    real = Nodes.reached

    def reached(self: Nodes, asked: Any) -> Any:
        answer = real(self, asked)
        if (asked.broker, asked.api) == (broker, "LeaderAndIsr") and answer is not None:
            errors = [{"partition_index": 0, "error_code": 56}]
            ids = [each["topic_id"] for each in asked.message["topic_states"]]
            topics = [{"topic_id": each, "partition_errors": errors} for each in ids]
            return {**answer, "topics": topics}
        return answer

    monkeypatch.setattr(Nodes, "reached", reached)
    path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
    nodes.write(Create(path, LogDirEvent(broker).encode(), sequential=True))


def test_a_leader_on_a_failed_disk_is_replaced_and_leaves_the_isr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3, 1)
    fail(nodes, 2, monkeypatch)
    now = partitions(nodes)[0]
    assert (now.leader, now.isr) == (3, (3, 1))
    assert catch_up(nodes, 0, 3, 1, 2) == 107


def test_a_follower_on_a_failed_disk_leaves_the_isr_and_is_in_no_elr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 3, 2, min_insync_replicas="2")
    fail(nodes, 2, monkeypatch)
    now = partitions(nodes)[0]
    assert (now.leader, now.isr, now.elr) == (3, (3,), ())


def test_the_only_member_of_an_isr_leads_no_more_when_its_disk_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3)
    catch_up(nodes, 0, 2)
    fail(nodes, 2, monkeypatch)
    now = partitions(nodes)[0]
    assert (now.leader, now.isr, now.lossy) == (-1, (2,), (2,))


# Leaders of before AlterPartition.


def test_an_isr_that_an_old_leader_wrote_is_read_and_sent_to_the_brokers() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3, 1)
    nodes.forget()
    state = PartitionState(1, 2, 0, (2, 3)).encode()
    path = f"{znodes.ISR_CHANGES}/isr_change_"
    nodes.write(
        SetData(znodes.state("t", 0), state),
        Create(path, Partitions((("t", 0),)).encode(), sequential=True),
    )
    assert partitions(nodes)[0].isr == (2, 3)
    assert nodes.children(znodes.ISR_CHANGES) == []
    (message,) = nodes.requests_to(3, "UpdateMetadata")
    (state,) = message["topic_states"][0]["partition_states"]
    assert state["isr"] == [2, 3]


def test_a_notification_that_cannot_be_read_is_deleted() -> None:
    nodes = Nodes(1, 2)
    nodes.write(Create(f"{znodes.ISR_CHANGES}/isr_change_", b"rubbish", sequential=True))
    assert nodes.children(znodes.ISR_CHANGES) == []
    assert any(path.startswith(znodes.ISR_CHANGES) for path in nodes.leader.faults)


def test_a_new_controller_reads_what_old_leaders_left() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2, 3)
    one = Partitions((("t", 0),)).encode()
    nodes.tool.submit([Create(f"{znodes.ISR_CHANGES}/isr_change_0000000001", one)], "left")
    nodes.tool.events()
    nodes.members[1].die()
    assert nodes.children(znodes.ISR_CHANGES) == []


# Deletion.


def test_a_replicated_topic_is_deleted_when_its_dead_broker_is_back() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 1, 2, 3)
    nodes.members[3].die()
    answer = nodes.leader.ask("DeleteTopics", {"topic_names": ["t"], "timeout_ms": 1000})
    assert answer["responses"][0]["error_code"] == 0
    assert nodes.node("/brokers/topics/t") is not None
    nodes.forget()
    Member(nodes, 3)
    nodes.rest()
    (stop,) = nodes.requests_to(3, "StopReplica")
    assert stop["topic_states"][0]["partition_states"][0]["delete_partition"]
    assert nodes.node("/brokers/topics/t") is None


def test_a_topic_that_is_being_reassigned_is_deleted_from_all_its_brokers() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 2)
    row = {"partition_index": 0, "replicas": [3]}
    asked = {"topics": [{"name": "t", "partitions": [row]}]}
    nodes.leader.ask("AlterPartitionReassignments", asked)
    nodes.forget()
    nodes.leader.ask("DeleteTopics", {"topic_names": ["t"], "timeout_ms": 1000})
    for broker in (2, 3):
        (stop,) = nodes.requests_to(broker, "StopReplica")
        assert stop["topic_states"][0]["partition_states"][0]["partition_index"] == 0
    assert nodes.node("/brokers/topics/t") is None


def test_a_broker_gets_one_request_to_stop_a_replica_that_moved_away() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 1, 2)
    row = {"partition_index": 0, "replicas": [1]}
    asked = {"topics": [{"name": "t", "partitions": [row]}]}
    nodes.leader.ask("AlterPartitionReassignments", asked)
    nodes.leader.create("other", 3)
    assert len(nodes.requests_to(2, "StopReplica")) == 1
    assert json.loads(nodes.node("/brokers/topics/t") or "")["partitions"] == {"0": [1]}
    assert ControlRequests().split(nodes.leader.state.changes)[0].topics == {}
