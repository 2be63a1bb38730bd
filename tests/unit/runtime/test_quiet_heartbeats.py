"""Unchanged heartbeats of consumer groups do not reach the policy."""

from __future__ import annotations

from typing import Any

import pytest

import krust
from krust._krust import Client
from krust.coordinator.consumer.group import ConsumerGroup
from krust.errors import Code
from tests.coordinated import ready


def test_a_quiet_heartbeat_does_not_reach_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    real = ConsumerGroup.heartbeat

    def counted(self: ConsumerGroup, turn: Any, beat: Any) -> None:
        heard.append(beat.epoch)
        real(self, turn, beat)

    monkeypatch.setattr(ConsumerGroup, "heartbeat", counted)
    me: dict[str, Any] = {"group_id": "g", "member_id": "m"}
    with krust.Broker() as broker:
        broker.create_topic("t", 2)
        client = Client(broker.bootstrap)
        ready(client, "g")
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
        hello = {**me, **joining, "member_epoch": 0, "topic_partitions": []}
        joined = client.request("ConsumerGroupHeartbeat", hello)
        epoch, owned = joined["member_epoch"], joined["assignment"]["topic_partitions"]
        quiet = {**me, "member_epoch": epoch}
        client.request("ConsumerGroupHeartbeat", {**quiet, "topic_partitions": owned})
        heard.clear()
        for _ in range(20):
            answer = client.request("ConsumerGroupHeartbeat", quiet)
            assert (answer["error_code"], answer["member_epoch"]) == (Code.NONE, epoch)
            assert answer["heartbeat_interval_ms"] > 0
            assert answer["assignment"] is None
        assert heard == []
        client.request("ConsumerGroupHeartbeat", {**me, "member_epoch": epoch + 1})
        assert heard == [epoch + 1]
