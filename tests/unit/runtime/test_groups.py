"""The topic data that an assignor on a broker gets."""

from __future__ import annotations

import krust
from krust._krust import Client, Producer
from krust.coordinator.assignors.assignor import GroupAssignment, GroupSpec, TopicDescriber
from krust.coordinator.consumer_protocol import Subscription, write_subscription
from tests.coordinated import ready
from tests.waiting import until


class Looks:
    """It remembers what it saw."""

    name = "looks"

    def __init__(self) -> None:
        self.saw: list[tuple[int, int | None, frozenset[str]]] = []

    def assign(self, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        self.saw += [
            (topics.partitions(name), topics.lag(name, 0), topics.racks(name, 0))
            for name in ("t", "u", "none")
        ]
        return {}


def test_an_assignor_gets_partitions_racks_and_lag() -> None:
    looks = Looks()
    config = {"broker.rack": "r1"}
    with krust.Broker(config=config, assignors={"g": looks}) as broker:
        broker.create_topic("t", 2)
        broker.create_topic("u", 1)
        producer = Producer(broker.bootstrap)
        producer.send("t", [(None, b"x", [], 0, None)] * 10)
        producer.flush()
        client = Client(broker.bootstrap)
        place = {"partition_index": 0, "committed_offset": 4}
        commit = {"group_id": "g", "topics": [{"name": "t", "partitions": [place]}]}
        ready(client, "g")
        answer = client.request("OffsetCommit", commit, 8)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0
        said = write_subscription(Subscription(("t", "u", "none")))
        body = {
            "group_id": "g",
            "session_timeout_ms": 300_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": said}],
        }
        assert client.request("JoinGroup", body, 2)["error_code"] == 0
        until(lambda: len(looks.saw) == 3)
        here = frozenset({"r1"})
        assert looks.saw == [(2, 6, here), (1, None, here), (0, None, frozenset())]


def test_a_new_group_with_delay_0_waits_briefly_for_a_second_member() -> None:
    for delay_ms, waits_ms in ((0, 3), (1000, 1000)):
        with krust.Broker(config={"group.initial.rebalance.delay.ms": delay_ms}) as broker:
            client = Client(broker.bootstrap)
            ready(client, "g")
            client.request("ListGroups", {})
            groups = broker._running()._groups
            assert groups is not None
            assert groups.coordinator.settings.initial_rebalance_delay_ms == waits_ms


def test_a_broker_loads_its_coordinator_for_the_first_request_of_a_group() -> None:
    with krust.Broker() as broker:
        broker.create_topic("t")
        assert broker._running()._groups is None
        Client(broker.bootstrap).request("ListGroups", {})
        assert broker._running()._groups is not None
