"""A broker that stops asks the controller until nothing depends on it."""

from __future__ import annotations

from krust.controller.controlled_shutdown import ControlledShutdown
from krust.messages.controlled_shutdown import ControlledShutdownResponse
from tests.unit.controller.nodes import Nodes

DONE: ControlledShutdownResponse = {"error_code": 0, "remaining_partitions": []}


def left(name: str) -> ControlledShutdownResponse:
    return {
        "error_code": 0,
        "remaining_partitions": [{"topic_name": name, "partition_index": 0}],
    }


def leaving(retries: int = 3) -> tuple[Nodes, ControlledShutdown]:
    """Three brokers, a topic of two replicas and one of one; broker 1 leaves."""
    nodes = Nodes(1, 2, 3, **{"controlled.shutdown.max.retries": retries})
    nodes.leader.create("one", 1)
    given = [{"partition_index": 0, "broker_ids": [1, 2]}]
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": given, "configs": []}
    nodes.leader.ask("CreateTopics", {"topics": [{"name": "two", **fields}]})
    return nodes, ControlledShutdown(nodes.leader.state)


def test_a_broker_stops_when_it_no_longer_leads_a_partition() -> None:
    assert leaving()[1].is_over(DONE)


def test_it_asks_again_as_often_as_the_setting_says() -> None:
    refused: ControlledShutdownResponse = {**DONE, "error_code": 41}
    for answer in (None, left("two"), refused):
        _, attempts = leaving(retries=2)
        assert [attempts.is_over(answer) for _ in range(3)] == [False, False, True]


def test_it_does_not_wait_for_partitions_that_nobody_else_can_lead() -> None:
    nodes, attempts = leaving()
    assert attempts.is_over(left("one"))
    nodes.members[2].die()
    assert attempts.is_over(left("two"))


def test_it_asks_again_at_once_when_another_replica_is_in_sync() -> None:
    nodes, attempts = leaving()
    state = nodes.leader.state
    topic = state.topics["two"]
    behind = topic._replace(partitions=(topic.partitions[0]._replace(isr=(1,)),))
    state.put(behind)
    assert not attempts.is_over(left("two"))
    assert not attempts.can_go_on
    state.put(topic)
    assert attempts.can_go_on
