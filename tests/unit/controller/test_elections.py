"""Elections by the controller: clean and unclean stops, unclean elections, AlterPartition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krust.controller import brokers, jobs
from krust.controller.controller_election import RetryLaterError
from krust.controller.entities import LiveBroker, Partition
from krust.controller.leaders import Risk
from krust.controller.pace import Pace
from krust.controller.state import ControllerState
from krust.metadata import znodes
from krust.metadata.contents import ConfigChange, EntityConfig
from krust.metadata.store import Create, Delete, SetData, WatchFired
from tests.unit.controller.nodes import Member, Nodes

STATE = "/brokers/topics/t/partitions/0/state"


def topic(nodes: Nodes, factor: int = 3, partitions: int = 1, **config: str) -> None:
    assert nodes.leader.create("t", partitions, factor, **config)["error_code"] == 0


def partition(nodes: Nodes) -> Partition:
    return nodes.leader.state.topics["t"].partitions[0]


def written(nodes: Nodes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(nodes.node(STATE) or "")
    return found


def configure(nodes: Nodes, name: str, value: str, kind: int = 2, entity: str = "t") -> None:
    pair = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": kind, "resource_name": entity, "configs": [pair]}
    answer = nodes.leader.ask("IncrementalAlterConfigs", {"resources": [resource]})
    assert answer["responses"][0]["error_code"] == 0
    nodes.rest()


def alter(nodes: Nodes, broker: int, isr: dict[int, int], **other: int) -> dict[str, Any]:
    """AlterPartition 3 by a broker: the members of the ISR with their epochs."""
    now = partition(nodes)
    members = [{"broker_id": each, "broker_epoch": epoch} for each, epoch in isr.items()]
    asked = {
        "partition_index": 0,
        "leader_epoch": now.leader_epoch,
        "new_isr_with_epochs": members,
        "leader_recovery_state": 0,
        "partition_epoch": now.version,
    }
    named = {"topic_id": nodes.leader.state.topics["t"].id, "partitions": [asked | other]}
    message = {
        "broker_id": broker,
        "broker_epoch": nodes.members[broker].state.broker_epoch,
        "topics": [named],
    }
    (result,) = nodes.leader.ask("AlterPartition", message, 3)["topics"][0]["partitions"]
    assert isinstance(result, dict)
    return result


def epochs(nodes: Nodes, *brokers: int) -> dict[int, int]:
    return {each: nodes.members[each].state.broker_epoch for each in brokers}


# Brokers that come and go.


def test_a_dead_follower_leaves_the_isr_at_once_and_the_leader_is_notified() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    nodes.forget()
    nodes.members[3].die()
    assert (partition(nodes).leader, partition(nodes).isr) == (1, (1, 2))
    assert written(nodes)["isr"] == [1, 2]
    (message,) = nodes.requests_to(2, "LeaderAndIsr")
    (state,) = message["topic_states"][0]["partition_states"]
    assert (state["leader"], state["isr"], state["leader_epoch"]) == (1, [1, 2], 1)


def test_a_broker_returns_restarted_although_its_death_was_seen_before() -> None:
    """The elections for its death may have been refused: it must not lead in its old epoch."""
    nodes = Nodes(1, 2, 3)
    state = nodes.leader.state
    state.registrations[2] -= 1
    state.remove_broker(2)
    found = []

    def read() -> Any:
        found.append((yield from brokers.read_live_brokers(state)))

    nodes.leader.run(read())
    assert found[0].restarted == {2}


def returned_with_losses(nodes: Nodes, broker: int) -> None:
    """The controller reads that a broker restarted and may have lost records; elects nobody yet."""
    state = nodes.leader.state
    state.registrations[broker] -= 1
    nodes.leader.run(brokers.read_live_brokers(state))


def test_a_request_elects_no_broker_that_may_have_lost_records_before_the_states_say_so() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    first, second = partition(nodes).replicas[:2]
    shut_down(nodes, first)
    nodes.leader.state.leaving.clear()
    assert alter(nodes, second, epochs(nodes, 1, 2, 3))["error_code"] == 0
    returned_with_losses(nodes, first)
    asked = {"topic_partitions": [{"topic": "t", "partitions": [0]}], "election_type": 0}
    (result,) = nodes.leader.ask("ElectLeaders", asked)["replica_election_results"]
    assert result["partition_result"][0]["error_code"] == 80
    assert alter(nodes, second, epochs(nodes, 1, 2, 3))["error_code"] == 107


def test_a_state_is_written_only_when_all_registrations_before_it_are_read() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    first, second = partition(nodes).replicas[:2]
    shut_down(nodes, first)
    nodes.leader.state.leaving.clear()
    assert alter(nodes, second, epochs(nodes, 1, 2, 3))["error_code"] == 0
    before = written(nodes)
    nodes.tool.submit([Create("/brokers/ids/9", ephemeral=True), SetData("/brokers/ids", b"")], 0)
    nodes.tool.events()
    asked = {"topic_partitions": [{"topic": "t", "partitions": [0]}], "election_type": 0}
    codes = []
    for _ in range(2):
        (result,) = nodes.leader.ask("ElectLeaders", asked)["replica_election_results"]
        codes.append(result["partition_result"][0]["error_code"])
        codes.append(written(nodes) != before)
    assert codes == [41, False, 0, True]


def test_a_broker_that_registers_writes_the_parent_of_registrations_too() -> None:
    nodes = Nodes(1, 2)
    version = nodes.leader.state.brokers_version
    Member(nodes, 3)
    nodes.rest()
    assert nodes.leader.state.brokers_version == version + 1


def test_a_controller_forgets_who_returned_in_an_earlier_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    one, real = nodes.leader, brokers.elect_missing_leaders
    former = epochs(nodes, 3)

    def interrupted(state: ControllerState, *others: Any) -> Any:
        if former and state is one.state and state.registrations[3] > former[3]:
            former.clear()
            nodes.tool.submit([Delete("/controller")], "depose")
            raise RetryLaterError("the controller resigned")
        return (yield from real(state, *others))

    monkeypatch.setattr(brokers, "elect_missing_leaders", interrupted)
    nodes.members[3].store.close()
    Member(nodes, 3)
    nodes.pass_time(jobs.RETRY_MS)
    nodes.tool.events()
    assert nodes.leader is not one
    assert alter(nodes, partition(nodes).leader, epochs(nodes, 1, 2, 3))["error_code"] == 0
    nodes.write(Delete("/controller"))
    assert nodes.leader is one
    assert set(partition(nodes).isr) == {1, 2, 3}


def test_a_broker_that_returns_is_in_sync_when_its_leader_says_so_with_its_epoch() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    former = epochs(nodes, 3)[3]
    nodes.members[3].die()
    Member(nodes, 3)
    nodes.rest()
    assert partition(nodes).isr == (1, 2)
    assert alter(nodes, 1, {**epochs(nodes, 1, 2), 3: former})["error_code"] == 107
    assert alter(nodes, 1, epochs(nodes, 1, 2, 3))["error_code"] == 0
    assert written(nodes)["isr"] == [1, 2, 3]


def test_a_state_of_kafkas_has_no_field_of_krusts() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    assert "krust" not in written(nodes)


def test_the_elr_is_kept_by_a_leader_that_becomes_the_controller_before_it_is_registered() -> None:
    nodes = Nodes(1, 2)
    given = [{"partition_index": 0, "broker_ids": [2, 1]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given}
    configs = [{"name": "min.insync.replicas", "value": "2"}]
    nodes.leader.ask("CreateTopics", {"topics": [{"name": "t", **fields, "configs": configs}]})
    nodes.members.pop(1).store.close()
    two = nodes.members[2]
    two.state.add_broker(2, LiveBroker())  # as UpdateMetadata names it
    two.expire()
    assert (written(nodes)["leader"], written(nodes)["isr"]) == (2, [2])
    assert written(nodes)["krust"]["elr"] == [1]


def test_the_elr_is_kept_beside_the_isr_and_leads_after_it() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, min_insync_replicas="2")
    nodes.members[3].die()
    nodes.members[2].die()
    assert written(nodes)["krust"] == {"elr": [2], "lossy": []}
    back = Member(nodes, 2, kept=nodes.leader.state.registrations[2])
    nodes.rest()
    nodes.members[1].die()
    assert back.state.is_controller
    assert (partition(nodes).leader, partition(nodes).isr) == (2, (2,))
    assert not back.state.risks


def test_a_broker_that_stopped_uncleanly_leaves_every_elr() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, min_insync_replicas="2")
    nodes.members[3].die()
    nodes.members[2].die()
    Member(nodes, 2)
    nodes.rest()
    assert "krust" not in written(nodes)
    nodes.members[1].die()
    assert partition(nodes).leader == -1


def test_a_lower_min_isr_clears_the_elr_for_good() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, min_insync_replicas="2")
    nodes.members[3].die()
    nodes.members[2].die()
    assert partition(nodes).elr == (2,)
    configure(nodes, "min.insync.replicas", "1")
    assert partition(nodes).elr == ()
    configure(nodes, "min.insync.replicas", "2")
    assert partition(nodes).elr == ()


def test_a_lower_min_isr_clears_the_elr_before_a_leader_is_elected_from_it() -> None:
    nodes = Nodes(1, 2, 3)
    given = [{"partition_index": 0, "broker_ids": [3, 1, 2]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given}
    configs = [{"name": "min.insync.replicas", "value": "2"}]
    nodes.leader.ask("CreateTopics", {"topics": [{"name": "t", **fields, "configs": configs}]})
    assert alter(nodes, 3, epochs(nodes, 3))["error_code"] == 0
    assert (partition(nodes).isr, partition(nodes).elr) == ((3,), (1, 2))
    lowered = EntityConfig({"min.insync.replicas": "1"}).encode()
    notice = Create(znodes.CHANGES, ConfigChange("topics/t").encode(), sequential=True)
    nodes.tool.submit([SetData(znodes.topic_config("t"), lowered), notice], "tool")
    nodes.members.pop(3).store.close()
    heard = [each for each in nodes.leader.store.events() if isinstance(each, WatchFired)]
    assert {each.path for each in heard} >= {znodes.CONFIG_CHANGES, znodes.BROKERS}
    for event in sorted(heard, key=lambda each: each.path == znodes.CONFIG_CHANGES):
        nodes.leader.take_event(event)
    nodes.rest()
    assert (partition(nodes).leader, partition(nodes).elr) == (-1, ())


@pytest.mark.parametrize("new_controller", [False, True])
def test_the_last_member_leads_again_if_it_lost_nothing(new_controller: bool) -> None:
    nodes = Nodes(1, 2, 3)
    last = led_by_three_alone(nodes)
    if new_controller:
        nodes.members[1].die()
    Member(nodes, 3, kept=last)
    nodes.rest()
    assert (partition(nodes).leader, partition(nodes).isr) == (3, (3,))
    assert not nodes.leader.state.risks


def led_by_three_alone(nodes: Nodes) -> int:
    """Broker 3 is the only member of the ISR, and dead. Returns its epoch."""
    given = [{"partition_index": 0, "broker_ids": [3, 1, 2]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given, "configs": []}
    nodes.leader.ask("CreateTopics", {"topics": [{"name": "t", **fields}]})
    assert alter(nodes, 3, epochs(nodes, 3))["error_code"] == 0
    last = epochs(nodes, 3)[3]
    nodes.members[3].die()
    assert (partition(nodes).leader, partition(nodes).isr) == (-1, (3,))
    return last


@pytest.mark.parametrize("new_controller", [False, True])
def test_a_lone_survivor_that_may_have_lost_records_leads_and_that_is_logged(
    new_controller: bool,
) -> None:
    nodes = Nodes(1, 2, 3)
    led_by_three_alone(nodes)
    if new_controller:
        nodes.members[1].die()
    Member(nodes, 3)
    nodes.rest()
    assert (partition(nodes).leader, partition(nodes).isr) == (3, (3,))
    assert nodes.leader.state.risks == {Risk.LOSSY: 1}
    assert any("after an unclean stop" in line and "t-0" in line for line in nodes.leader.lines)


def test_a_new_controller_asks_a_dead_member_for_all_since_it_was_in_the_isr() -> None:
    nodes = Nodes(1, 2, 3)
    led_by_three_alone(nodes)
    state = nodes.leader.state
    state.registrations.clear()
    found = state.topics["t"]
    steps = brokers.without_stale_leaders(
        state, found, {("t", 0): 77}, 1, Pace(), was_controller=False
    )
    assert not list(steps), "it reads nothing"
    assert state.registrations == {3: 77}
    assert not LiveBroker(epoch=90, kept_epoch=80).has_all_records_since(77)
    assert LiveBroker(epoch=90, kept_epoch=70).has_all_records_since(77)
    assert LiveBroker(epoch=60, kept_epoch=-1).has_all_records_since(77), (
        "it was this one that was in the ISR"
    )


def test_a_partition_waits_for_its_other_members_before_a_lossy_one_leads() -> None:
    nodes = Nodes(1, 2, 3)
    given = [{"partition_index": 0, "broker_ids": [3, 2]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given}
    configs = [{"name": "min.insync.replicas", "value": "2"}]
    nodes.leader.ask("CreateTopics", {"topics": [{"name": "t", **fields, "configs": configs}]})
    kept = epochs(nodes, 2)[2]
    for broker in (2, 3):
        nodes.members[broker].die()
    Member(nodes, 3)
    nodes.rest()
    assert partition(nodes).leader == -1
    assert written(nodes)["krust"] == {"elr": [2], "lossy": [3]}
    Member(nodes, 2, kept=kept)
    nodes.rest()
    assert (partition(nodes).leader, partition(nodes).isr) == (2, (2,))
    assert not nodes.leader.state.risks


# Unclean elections.


def test_an_unclean_election_is_counted_and_logged_if_the_topic_allows_it() -> None:
    nodes = Nodes(1, 2, 3)
    led_by_three_alone(nodes)
    configure(nodes, "unclean.leader.election.enable", "true")
    assert (partition(nodes).leader, partition(nodes).isr) == (1, (1,))
    assert nodes.leader.state.risks == {Risk.UNCLEAN: 1}
    assert any("unclean leader elections" in line for line in nodes.leader.lines)


def test_an_unclean_election_happens_at_once_if_all_brokers_allow_it() -> None:
    nodes = Nodes(1, 2, 3)
    led_by_three_alone(nodes)
    configure(nodes, "unclean.leader.election.enable", "true", kind=4, entity="")
    assert partition(nodes).leader == 1


def test_elect_leaders_elects_uncleanly_only_if_it_says_so() -> None:
    nodes = Nodes(1, 2, 3)
    led_by_three_alone(nodes)
    asked: dict[str, Any] = {
        "topic_partitions": [{"topic": "t", "partitions": [0]}],
        "election_type": 0,
    }
    codes = []
    for kind in (0, 1, 1):
        answer = nodes.leader.ask("ElectLeaders", asked | {"election_type": kind})
        codes.append(answer["replica_election_results"][0]["partition_result"][0]["error_code"])
    assert codes == [80, 0, 84]
    assert (partition(nodes).leader, partition(nodes).isr) == (1, (1,))
    assert nodes.leader.state.risks == {Risk.UNCLEAN: 1}


# Controlled shutdown.


def shut_down(nodes: Nodes, broker: int) -> dict[str, Any]:
    message = {"broker_id": broker, "broker_epoch": nodes.members[broker].state.broker_epoch}
    return dict(nodes.leader.ask("ControlledShutdown", message))


def test_a_leaving_broker_gives_its_leaders_away_and_leaves_every_isr() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 3, 6)
    assert shut_down(nodes, 2) == {"error_code": 0, "remaining_partitions": []}
    for each in nodes.leader.state.topics["t"].partitions:
        assert each.leader != 2
        assert 2 not in each.isr


def test_leaders_move_before_a_leaving_broker_leaves_the_isr_of_others() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes, 3, 6)
    nodes.leader.submitted.clear()
    shut_down(nodes, 2)
    led = [each.leader for each in nodes.leader.state.topics["t"].partitions]
    states = [
        json.loads(write.data)
        for operations in nodes.leader.submitted
        for write in operations
        if isinstance(write, SetData) and write.path.endswith("/state")
    ]
    assert len(states) == len(led)
    moved = nodes.leader.state.topics["t"].partitions
    first = [each for each in states[:2] if each["leader_epoch"] == 1]
    assert len(first) == 2
    assert {each.leader_epoch for each in moved} == {1}


def test_a_partition_whose_only_member_leaves_is_reported_until_another_has_caught_up() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    alter(nodes, 1, epochs(nodes, 1))
    remaining = [{"topic_name": "t", "partition_index": 0}]
    assert shut_down(nodes, 1)["remaining_partitions"] == remaining
    assert alter(nodes, 1, epochs(nodes, 1, 2))["error_code"] == 0
    assert shut_down(nodes, 1)["remaining_partitions"] == []
    assert (partition(nodes).leader, partition(nodes).isr) == (2, (2,))


def test_a_leaving_broker_cannot_join_an_isr() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    shut_down(nodes, 3)
    assert partition(nodes).isr == (1, 2)
    assert alter(nodes, 1, epochs(nodes, 1, 2, 3))["error_code"] == 107


# AlterPartition.


def test_a_repeated_alter_partition_is_answered_with_the_isr_that_it_made() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    first = alter(nodes, 1, epochs(nodes, 1, 2))
    again = alter(nodes, 1, epochs(nodes, 2, 1), partition_epoch=0)
    assert first == again
    assert (again["partition_epoch"], sorted(again["isr"])) == (1, [1, 2])


def test_the_present_isr_is_written_again_so_that_no_copy_of_a_refused_one_can_be() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    assert alter(nodes, 1, epochs(nodes, 1, 2))["error_code"] == 0
    nodes.members[1].state.leaving.add(3)
    joins = epochs(nodes, 1, 2, 3)
    assert alter(nodes, 1, joins)["error_code"] == 107
    readded = alter(nodes, 1, epochs(nodes, 2, 1))
    assert (readded["error_code"], readded["partition_epoch"], sorted(readded["isr"])) == (
        0,
        2,
        [1, 2],
    )
    nodes.rest()
    state = nodes.requests_to(2, "LeaderAndIsr")[-1]["topic_states"][0]["partition_states"][0]
    assert (state["partition_epoch"], state["leader_epoch"]) == (2, 0)
    nodes.members[1].state.leaving.clear()
    assert alter(nodes, 1, joins, partition_epoch=1)["error_code"] == 95
    assert alter(nodes, 1, joins)["error_code"] == 0


def test_a_member_whose_registration_is_not_known_yet_is_refused_for_now() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    assert alter(nodes, 1, epochs(nodes, 1, 2))["error_code"] == 0
    newer = epochs(nodes, 3)[3] + 1
    assert alter(nodes, 1, {**epochs(nodes, 1, 2), 3: newer})["error_code"] == 41


def test_alter_partition_has_kafkas_codes() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    both = epochs(nodes, 1, 2)
    assert alter(nodes, 1, both, leader_epoch=9)["error_code"] == 41
    assert alter(nodes, 1, both, partition_epoch=9)["error_code"] == 41
    assert alter(nodes, 1, both, leader_epoch=-1)["error_code"] == 74
    assert alter(nodes, 1, both, leader_recovery_state=1)["error_code"] == 42
    assert alter(nodes, 1, {1: -1, 4: -1})["error_code"] == 42
    assert alter(nodes, 2, both)["error_code"] == 42
    assert alter(nodes, 1, both)["error_code"] == 0
    assert alter(nodes, 1, epochs(nodes, 1), partition_epoch=0)["error_code"] == 95
    nodes.members[3].die()
    assert alter(nodes, 1, {**both, 3: -1})["error_code"] == 107


def test_alter_partition_of_unknown_brokers_topics_and_partitions_is_refused() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    assert alter(nodes, 1, {1: -1}, partition_index=9)["error_code"] == 3
    row = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, "new_isr": [1]}
    message: dict[str, Any] = {
        "broker_id": 1,
        "broker_epoch": nodes.leader.state.broker_epoch,
        "topics": [{"topic_id": "x" * 22, "partitions": [row]}],
    }
    answer = nodes.leader.ask("AlterPartition", message, 2)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 100
    for other in ({"broker_id": 9}, {"broker_epoch": 1}):
        assert nodes.leader.ask("AlterPartition", message | other, 2)["error_code"] == 77


def test_an_old_leader_gets_the_answer_that_its_change_was_not_attempted() -> None:
    nodes = Nodes(1, 2, 3)
    topic(nodes)
    nodes.members[3].die()
    now = partition(nodes)
    row = {
        "partition_index": 0,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.version,
        "new_isr": [1, 2, 3],
    }
    named = {"topic_name": "t", "partitions": [row]}
    message = {
        "broker_id": 1,
        "broker_epoch": nodes.leader.state.broker_epoch,
        "topics": [named],
    }
    answer = nodes.leader.ask("AlterPartition", message, 1)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 55
