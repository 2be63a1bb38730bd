"""In-sync sets that this broker's own leaders propose."""

from __future__ import annotations

from typing import Any

from krust.controller.state import Request
from krust.runtime import alter_partition
from tests.unit.controller.nodes import Nodes


def test_a_replica_that_cannot_join_is_refused_with_a_code_that_ends_the_proposal() -> None:
    nodes = Nodes(1, 2)
    nodes.leader.create("t", 1, factor=2)
    state = nodes.leader.state
    nodes.members[2].die()
    topic = state.topics["t"]
    now = topic.partitions[0]
    row = {
        "partition_index": 0,
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.version,
        "new_isr": [1, 2],
        "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": -1} for each in (1, 2)],
        "leader_recovery_state": 0,
    }
    proposed: Any = {"topics": [{"topic_name": "t", "topic_id": topic.id, "partitions": [row]}]}
    request = alter_partition.with_sender(state, Request("AlterPartition", 0, proposed, {}, 0))
    answer = nodes.leader.ask(request.api, request.message, request.version)
    assert answer["error_code"] == 0
    assert answer["topics"][0]["partitions"][0]["error_code"] == 107
