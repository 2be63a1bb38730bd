"""A broker that is not the controller applies control requests to its state."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from krust.config import load
from krust.controller import ids
from krust.controller.changes import Changes
from krust.controller.controller import Controller
from krust.controller.entities import LiveBroker
from krust.controller.state import NO_TOPIC_ID, ControllerState, Request
from krust.controller.topic_plans import MAX_PARTITIONS
from krust.errors import Code
from krust.messages import Message, RequestContext
from krust.metadata import znodes
from krust.metadata.contents import Endpoint
from krust.metadata.local import Tree
from krust.metadata.store import Create, MultiResult, Node, Read, Refusal
from tests.faults.malformed import FACTS

ME, BOSS = 1, 7
ORDERS, BILLS = ids.from_random(b"o" * 16), ids.from_random(b"b" * 16)


class Follower:
    """Broker 1, registered with epoch 100, that controller 7 of epoch 5 speaks to."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.store = self.tree.session()
        self.state = ControllerState(load(), lambda: ORDERS, ME)
        self.state.broker_epoch = 100
        self.controller = Controller(self.state)
        self.controller.share()
        self.changes = Changes()
        self.connected = True
        self.connection = 1
        """by which the controller speaks"""

    def request(self, api: str, **message: Any) -> Message:
        """The answer to a request of the controller's."""
        body = {"controller_id": BOSS, "controller_epoch": 5, "broker_epoch": 100, **message}
        client: RequestContext = {"connection": self.connection}
        outcome = self.controller.request(1, Request(api, 9, body, client, 0))
        while not outcome.replies:
            for token, operations in outcome.submits:
                self.store.submit(operations, token)
            (done,) = (each for each in self.store.events() if isinstance(each, MultiResult))
            if not self.connected:
                done = done._replace(results=(Refusal.NOT_APPLIED,) * len(done.results))
            outcome = self.controller.on_transaction_done(done)
        self.changes = outcome.changes
        ((_, answer),) = outcome.replies
        assert isinstance(answer, dict), answer
        return answer

    def lead(self, *partitions: Message, name: str = "orders", **message: Any) -> Message:
        message.setdefault("topic_id", ORDERS)
        topic = {"topic_name": name, "topic_id": message.pop("topic_id")}
        states = [{**topic, "partition_states": list(partitions)}] if partitions else []
        return self.request("LeaderAndIsr", topic_states=states, live_leaders=[], **message)

    def update(self, *partitions: Message, name: str = "orders", **message: Any) -> Message:
        topic = {"topic_name": name, "topic_id": message.pop("topic_id", ORDERS)}
        parts = [{**each, "zk_version": each["partition_epoch"]} for each in partitions]
        states = [{**topic, "partition_states": parts}] if partitions else []
        message.setdefault("live_brokers", [])
        return self.request("UpdateMetadata", topic_states=states, **message)

    def stop(self, number: int, epoch: int = -2, *, deletes: bool, **message: Any) -> Message:
        one = {"partition_index": number, "leader_epoch": epoch, "delete_partition": deletes}
        topic = {"topic_name": "orders", "partition_states": [one]}
        return self.request("StopReplica", topic_states=[topic], **message)

    def set_config(self, name: str, **config: str) -> None:
        data = json.dumps({"version": 1, "config": config}).encode()
        made = [Create("/config"), Create("/config/topics")]
        self.store.submit([*made, Create(znodes.topic_config(name), data)], "config")
        self.store.events()

    def shape(self, name: str = "orders") -> list[tuple[int, int, tuple[int, ...]]]:
        """leader, leader epoch and replicas of each partition"""
        topic = self.state.topics[name]
        return [(each.leader, each.leader_epoch, each.replicas) for each in topic.partitions]


def part(number: int, leader: int, epoch: int, *replicas: int, version: int = 0) -> Message:
    return {
        "partition_index": number,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": list(replicas),
        "replicas": list(replicas),
        "partition_epoch": version,
    }


def codes(answer: Message) -> list[int]:
    return [each["error_code"] for each in answer["partition_errors"]]


def test_a_broker_leads_partitions_of_a_leader_and_isr_request_with_topic_settings() -> None:
    follower = Follower()
    follower.set_config("orders", **{"retention.ms": "5000"})
    answer = follower.lead(part(2, ME, 3, ME), part(0, ME, 1, ME))
    assert codes(answer) == [0, 0]
    (topic,) = answer["topics"]
    assert (topic["topic_id"], len(topic["partition_errors"])) == (ORDERS, 2)
    nobody = (-1, -1, ())
    assert follower.shape() == [(ME, 1, (ME,)), nobody, (ME, 3, (ME,))]
    topic_here = follower.state.topics["orders"]
    assert (topic_here.id, topic_here.config) == (ORDERS, {"retention.ms": "5000"})
    assert follower.changes.topics == {"orders": topic_here}
    assert (follower.state.controller_id, follower.changes.controller) == (BOSS, True)
    follower.update(*[part(n, leader, 3, leader) for n, leader in enumerate((ME, 2, ME))])
    assert follower.shape() == [(ME, 3, (ME,)), (2, 3, (2,)), (ME, 3, (ME,))]


def test_partitions_on_a_failed_disk_are_answered_with_kafka_storage_error() -> None:
    follower = Follower()
    follower.store.submit([Create(znodes.LOG_DIR_EVENTS)], "parent")
    follower.store.events()
    assert codes(follower.lead(part(0, ME, 1, ME), part(1, ME, 1, ME))) == [0, 0]
    follower.request("LogDirFailed", replicas=[{"topic": "orders", "partition": 1}])
    follower.store.submit([Read(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_0000000000")], "event")
    ((node,),) = [each.results for each in follower.store.events() if isinstance(each, MultiResult)]
    assert isinstance(node, Node)
    assert json.loads(node.data) == {"version": 1, "broker": ME, "event": 1}
    answer = follower.lead(part(0, ME, 1, ME), part(1, ME, 1, ME))
    assert codes(answer) == [0, Code.KAFKA_STORAGE_ERROR]
    follower.request("LogDirFailed", replicas=[])
    assert codes(follower.lead(part(1, ME, 1, ME))) == [0]


@pytest.mark.parametrize("api", ["LeaderAndIsr", "UpdateMetadata", "StopReplica"])
def test_a_request_with_an_old_controller_or_broker_epoch_is_refused(api: str) -> None:
    follower = Follower()
    nothing: Message = {"topic_states": [], "live_brokers": [], "live_leaders": []}
    assert follower.request(api, **nothing)["error_code"] == 0
    old = follower.request(api, **nothing, controller_epoch=4)
    assert old["error_code"] == Code.STALE_CONTROLLER_EPOCH
    bounced = follower.request(api, **nothing, broker_epoch=99)
    assert bounced["error_code"] == Code.STALE_BROKER_EPOCH
    for fine in (-1, 100, 101):
        assert follower.request(api, **nothing, broker_epoch=fine)["error_code"] == 0
    assert follower.request(api, **nothing, controller_epoch=6)["error_code"] == 0
    assert follower.request(api, **nothing)["error_code"] == Code.STALE_CONTROLLER_EPOCH


def test_a_controller_obeys_only_a_newer_epoch_and_resigns() -> None:
    follower = Follower()
    follower.state.is_controller, follower.state.controller_epoch = True, 5
    assert follower.lead()["error_code"] == Code.STALE_CONTROLLER_EPOCH
    assert follower.state.is_controller
    assert follower.lead(controller_epoch=6)["error_code"] == Code.NONE
    assert not follower.state.is_controller
    assert (follower.state.controller_id, follower.state.controller_epoch) == (BOSS, 6)


def test_a_request_on_a_superseded_connection_is_ignored() -> None:
    follower = Follower()
    follower.connection = 3
    assert follower.lead(part(0, ME, 0, ME))["error_code"] == Code.NONE
    follower.connection = 2
    assert follower.lead(type=2)["error_code"] == Code.REQUEST_TIMED_OUT
    assert follower.state.topics["orders"].partitions[0].leader == ME
    newer = follower.lead(part(0, ME, 1, ME), controller_epoch=6)
    assert newer["error_code"] == Code.NONE, "each controller has connections of its own"


def test_without_zookeeper_a_new_topic_must_be_announced_again() -> None:
    follower = Follower()
    follower.connected = False
    assert follower.lead(part(0, ME, 0, ME))["error_code"] == Code.REQUEST_TIMED_OUT
    assert not follower.state.topics
    assert follower.state.controller_epoch == 0
    follower.connected = True
    follower.lead(part(0, ME, 0, ME))
    follower.connected = False
    assert follower.lead(part(0, ME, 1, ME))["error_code"] == 0, "nothing has to be read"


def test_leaders_come_in_the_order_of_their_epochs() -> None:
    follower = Follower()
    follower.lead(part(0, ME, 4, ME, version=9))
    assert codes(follower.lead(part(0, 2, 3, ME, 2, version=11))) == [Code.STALE_CONTROLLER_EPOCH]
    assert codes(follower.lead(part(0, ME, 4, ME, version=9))) == [0], "the same once more"
    assert not follower.changes.topics
    assert codes(follower.lead(part(0, ME, 4, ME, 2, version=8))) == [0]
    assert follower.shape() == [(ME, 4, (ME,))], "an older state of the same leader"
    follower.update(part(0, 2, 3, ME, 2, version=11))
    assert follower.shape() == [(ME, 4, (ME,))]
    follower.update(part(0, 2, 5, ME, 2, version=11))
    assert follower.shape() == [(2, 5, (ME, 2))]


def test_partitions_are_refused_one_by_one() -> None:
    follower = Follower()
    wrong = [part(0, 2, 0, 2), part(-1, ME, 0, ME), part(2**31 - 1, ME, 0, ME)]
    answer = follower.lead(*wrong, part(1, ME, 0, ME))
    unknown, invalid = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_REQUEST
    assert codes(answer) == [unknown, invalid, invalid, 0]
    other = follower.lead(part(1, ME, 1, ME), topic_id=BILLS)
    assert codes(other) == [Code.INCONSISTENT_TOPIC_ID]
    assert codes(follower.lead(part(1, ME, 1, ME), topic_id=NO_TOPIC_ID)) == [0], "before ids"
    bad = follower.lead(part(0, ME, 0, ME), name="../etc")
    assert codes(bad) == [Code.INVALID_TOPIC_EXCEPTION]
    assert list(follower.state.topics) == ["orders"]


def test_old_versions_of_control_requests_have_the_same_effect() -> None:
    follower = Follower()
    loose = {**part(0, ME, 2, ME), "topic_name": "orders"}
    answer = follower.request("LeaderAndIsr", ungrouped_partition_states=[loose], live_leaders=[])
    assert [each["topic_name"] for each in answer["partition_errors"]] == ["orders"]
    loose = {**loose, "leader_epoch": 3, "zk_version": 1, "leader": -1}
    del loose["partition_epoch"]
    brokers = [{"id": 3, "v0_host": "there", "v0_port": 9092}]
    follower.request("UpdateMetadata", ungrouped_partition_states=[loose], live_brokers=brokers)
    assert follower.shape() == [(-1, 3, (ME,))]
    there = Endpoint("PLAINTEXT", "PLAINTEXT", "there", 9092)
    assert follower.state.brokers == {3: LiveBroker(-1, None, (there,))}
    follower.request("StopReplica", topics=[{"name": "orders", "partition_indexes": [0]}])
    one = {"topic_name": "orders", "partition_index": 0}
    follower.request("StopReplica", ungrouped_partitions=[one], delete_partitions=True)
    assert follower.shape() == [(-1, 3, ())]


def test_update_metadata_replaces_the_list_of_brokers() -> None:
    follower = Follower()

    def broker(number: int, *ports: int, kind: int = 0) -> Message:
        at = {"host": "h", "listener": "L", "security_protocol": kind}
        return {"id": number, "rack": "r", "endpoints": [{**at, "port": each} for each in ports]}

    follower.update(live_brokers=[broker(2, 92), broker(3, 93, 0, 70_000), broker(-4, 9)])
    live = {n: LiveBroker(-1, "r", (Endpoint("L", "PLAINTEXT", "h", 90 + n),)) for n in (2, 3)}
    assert (follower.state.brokers, follower.changes.live) == (live, True)
    follower.update(live_brokers=[broker(2, 92), broker(4, 94, kind=9)])
    assert follower.state.brokers == {2: live[2], 4: LiveBroker(-1, "r", ())}
    assert follower.changes.live
    follower.update(live_brokers=[broker(2, 92), broker(4, 94, kind=9)])
    assert not follower.changes.live


def test_a_topic_is_deleted_on_request_and_kept_when_it_is_only_missing() -> None:
    follower = Follower()
    for name, topic_id in (("orders", ORDERS), ("bills", BILLS)):
        follower.lead(part(0, ME, 0, ME), part(1, ME, 0, ME), name=name, topic_id=topic_id)
    assert codes(follower.stop(0, deletes=True)) == [0]
    assert follower.shape() == [(-1, 0, ()), (ME, 0, (ME,))]
    gone = [part(0, -2, -2, ME), part(1, -2, -2, ME)]
    follower.update(*gone, topic_id=BILLS)
    assert "orders" in follower.state.topics, "another topic of that name went"
    follower.update(*gone)
    assert (follower.changes.topics, follower.changes.strays) == ({"orders": None}, set())
    assert codes(follower.stop(1, deletes=True)) == [0], "it is gone already"
    follower.update(type=2)
    assert follower.changes.topics == {"bills": None}
    assert follower.changes.strays == {("bills", 0), ("bills", 1)}


def test_a_recreated_topic_replaces_the_old_one_whose_files_are_kept() -> None:
    follower = Follower()
    follower.lead(part(0, ME, 7, ME))
    follower.lead(part(0, ME, 0, ME), topic_id=BILLS, type=2)
    assert follower.state.topics["orders"].id == BILLS
    assert follower.shape() == [(ME, 0, (ME,))]
    assert follower.changes.strays == {("orders", 0)}
    follower.update(part(0, 2, 0, 2), topic_id=ORDERS)
    assert follower.shape() == [(2, 0, (2,))]
    assert follower.changes.strays == {("orders", 0)}


def test_a_log_missing_from_a_full_request_is_stray() -> None:
    follower = Follower()
    follower.state.logs_on_disk = {("orders", 0), ("orders", 1), ("old", 3)}
    follower.lead(part(0, ME, 0, ME), type=1)
    assert follower.changes.strays == set()
    follower.lead(part(2, ME, 0, ME), type=2)
    assert follower.changes.strays == {("orders", 0), ("orders", 1), ("old", 3)}
    assert follower.shape() == [(-1, 0, ()), (-1, -1, ()), (ME, 0, (ME,))]
    follower.update(part(2, 2, 1, 2))
    assert follower.changes.strays == {("orders", 2)}


def test_a_stopped_replica_no_longer_leads_unless_the_request_is_stale() -> None:
    follower = Follower()
    follower.lead(part(0, ME, 4, ME, 2))
    assert codes(follower.stop(0, 3, deletes=False)) == [Code.FENCED_LEADER_EPOCH]
    assert follower.shape() == [(ME, 4, (ME, 2))]
    assert codes(follower.stop(0, 4, deletes=False)) == [0]
    assert follower.shape() == [(-1, 4, (ME, 2))]
    assert codes(follower.stop(9, 4, deletes=True)) == [0]


def test_a_partition_number_beyond_the_maximum_is_refused() -> None:
    follower = Follower()
    last = part(MAX_PARTITIONS - 1, ME, 0, ME)
    beyond = part(MAX_PARTITIONS, ME, 0, ME)
    assert codes(follower.lead(last, beyond)) == [0, Code.INVALID_REQUEST]
    follower.update(last, beyond)
    assert [path for path, _ in follower.changes.faults] == [f"orders-{MAX_PARTITIONS}"]
    assert len(follower.state.topics["orders"].partitions) == MAX_PARTITIONS


def test_any_control_request_gets_an_answer() -> None:
    apis = {each["name"]: each for each in json.loads(FACTS.read_text())}
    chance = random.Random(6)
    follower = Follower()
    for _ in range(1500):
        api = chance.choice(["LeaderAndIsr", "StopReplica", "UpdateMetadata"])
        version, layout = chance.choice(list(apis[api]["request"].items()))
        message = {key: noise(chance, key, kind) for key, kind in layout if key[0] != "_"}
        message["controller_epoch"] = chance.choice([4, 5, 6])
        message["broker_epoch"] = chance.choice([-1, 100])
        assert "error_code" in follower.request(api, **message), (api, version)
        for topic in follower.state.topics.values():
            assert len(topic.partitions) <= MAX_PARTITIONS
            follower.state.topic_values(topic)


def noise(chance: random.Random, name: str, kind: Any) -> Any:
    """A value that the core could have read for a field of this name and type."""
    if isinstance(kind, dict):
        (inner,) = kind.values()
        count = chance.choice([0, 1, 1, 2, 5])
        return [noise(chance, name, inner) for _ in range(count)]
    if isinstance(kind, list):
        return {key: noise(chance, key, each) for key, each in kind if key[0] != "_"}
    if "string" in kind:
        return chance.choice(["orders", "bills", "", "..", "a/b", "x" * 300])
    if kind == "uuid":
        return chance.choice([ORDERS, BILLS, NO_TOPIC_ID])
    if kind == "boolean":
        return chance.random() < 0.5
    small = [-2, -1, 0, 1, 2, 3]
    return chance.choice([*small, 2, 127] if kind == "int8" else [*small, *small, 2**31 - 1])
