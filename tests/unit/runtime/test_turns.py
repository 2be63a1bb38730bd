"""How much one turn of the policy thread decides, and what is cached between turns."""

from __future__ import annotations

from collections import deque

import krust
from krust._krust import Client, Server
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.events import Event
from krust.messages import Message
from krust.runtime.groups import _TopicCache, batch
from tests.coordinated import ready
from tests.unit.coordinator.consuming import ConsumerBench


def event(api: str, group_id: str) -> Event[Message]:
    return Event(1, api, 0, {"group_id": group_id}, {})


def test_a_batch_has_one_consumer_groups_heartbeats_and_no_more_than_64_events() -> None:
    heartbeats = [event("ConsumerGroupHeartbeat", f"g{n // 2}") for n in range(6)]
    waiting = deque([*heartbeats[:2], event("JoinGroup", "j"), *heartbeats[2:]])
    assert [len(batch(waiting)) for _ in range(4)] == [3, 2, 2, 0]
    waiting = deque(event("JoinGroup", f"g{n}") for n in range(100))
    assert [len(batch(waiting)) for _ in range(3)] == [64, 36, 0]


def test_two_groups_in_a_batch_check_changed_topics() -> None:
    bench = ConsumerBench(topics={"a": 1})
    for n in range(5):
        heartbeat = bench.heartbeat_event(
            f"m{n}", 0, group_id=f"g{n}", subscribed_topic_regex="a.*"
        )
        bench.batch(heartbeat)
    bench.cluster.counts["ab"] = bench.cluster.made["ab"] = 0
    bench.cluster.counts["ab"] = 1

    def who_knows() -> int:
        groups = bench.coordinator._groups.values()
        return sum("ab" in each.subscribed() for each in groups if isinstance(each, ConsumerGroup))

    outcome = bench.notify("TopicsChanged", group_id="", names=["ab"])
    assert (who_knows(), outcome.wake_at_ms) == (2, bench.now_ms)
    bench.wait(1)
    assert who_knows() == 5
    assert bench.outcomes[-1].wake_at_ms != bench.now_ms


def test_a_regular_expression_is_matched_once_until_topics_change() -> None:
    with krust.Broker() as broker:
        broker.create_topic("orders")
        client = Client(broker.bootstrap)
        groups = [f"g{n}" for n in range(20)]
        ready(client, *groups)
        client.request("ListGroups", {})
        core = broker._core
        assert core is not None
        assert core._groups is not None
        patterns = core._groups._patterns
        counted = Counting(patterns._server)
        patterns._server = counted  # type: ignore[assignment]

        def join(names: list[str]) -> None:
            for name in names:
                heartbeat = {"group_id": name, "member_id": name, "member_epoch": 0}
                heartbeat |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": "orders.*"}
                heartbeat |= {"topic_partitions": []}
                assert client.request("ConsumerGroupHeartbeat", heartbeat, 1)["error_code"] == 0

        join(groups[:10])
        assert counted.matches == 1
        broker.create_topic("orders-eu")
        join(groups[10:])
        assert counted.matches == 2


def test_the_description_of_a_topic_is_cached_until_it_changes() -> None:
    with krust.Broker() as broker:
        broker.create_topic("orders")
        core = broker._core
        assert core is not None
        shapes = _TopicCache(core.state)
        first = shapes.of("orders")
        assert first is not None
        assert shapes.of("orders") is first
        topic = core.state.topics["orders"]
        grown = topic._replace(partitions=(*topic.partitions, *topic.partitions))
        core.state.topics["orders"] = grown
        changed = shapes.of("orders")
        core.state.topics["orders"] = topic
        assert changed is not None
        assert changed.partitions == 2 * first.partitions
        assert shapes.of("gone") is None


class Counting:
    """A server that counts what is asked of it."""

    def __init__(self, server: Server) -> None:
        self.server, self.matches = server, 0

    def match_topics(self, pattern: str) -> list[str]:
        self.matches += 1
        return self.server.match_topics(pattern)
