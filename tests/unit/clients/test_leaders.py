"""Waiting until every partition of a new topic has a leader."""

from __future__ import annotations

from typing import Any

from krust.clients.leaders import leaders, wait_for_leaders


class Broker:
    """Answers Metadata with these leaders in turn; the last ones for good."""

    def __init__(self, *turns: dict[int, int]) -> None:
        self.turns = list(turns)
        self.asked: list[dict[str, Any]] = []

    def request(self, _api: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        now = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        partitions = [{"partition_index": at, "leader_id": node} for at, node in now.items()]
        return {"topics": [{"name": "t", "partitions": partitions}]}


def test_a_call_waits_until_each_partition_has_a_leader() -> None:
    broker = Broker({}, {0: 1}, {0: 1, 1: -1}, {0: 1, 1: 2})
    assert wait_for_leaders(broker, "t", 2, 60)  # type: ignore[arg-type]
    assert len(broker.asked) == 4


def test_a_metadata_request_creates_no_topic() -> None:
    broker = Broker({0: 7})
    assert leaders(broker, "t") == {0: 7}  # type: ignore[arg-type]
    assert broker.asked == [{"topics": [{"name": "t"}], "allow_auto_topic_creation": False}]


def test_a_wait_for_leaders_times_out() -> None:
    assert not wait_for_leaders(Broker({0: -1}), "t", 1, 0)  # type: ignore[arg-type]
    assert not wait_for_leaders(Broker({}), "t", 1, 0)  # type: ignore[arg-type]
