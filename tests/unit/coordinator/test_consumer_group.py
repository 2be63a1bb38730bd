"""The consumer protocol (KIP-848): joining, reconciliation, epochs, leaving, topics that change."""

from __future__ import annotations

import pytest

from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.consuming import ConsumerBench, shown, topic_id


def test_the_first_heartbeat_brings_epoch_and_assignment() -> None:
    bench = ConsumerBench()
    answer = bench.heartbeat("a", 0)
    assert (answer["error_code"], answer["member_id"], answer["member_epoch"]) == (0, "a", 1)
    assert answer["heartbeat_interval_ms"] == 5000
    assert shown(answer) == "t0 t1 t2"
    assert bench.state == "Stable"
    assert bench.row("a")["has_current_assignment"] is True
    assert bench.snapshot["subscribed"] == ["t"]


def test_a_consumer_group_writes_kafkas_records() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0, rack_id="r")
    found = {kind: (key, value or {}) for kind, key, value in bench.written()}
    assert list(found) == [5, 3, 7, 6, 8]
    partitions = [{"topic_id": topic_id("t"), "partitions": [0, 1, 2]}]
    assert found[3][1]["epoch"] == found[6][1]["assignment_epoch"] == 1
    assert found[7] == ({"member_id": "a"}, {"topic_partitions": partitions})
    assert found[5] == (
        {"member_id": "a"},
        {
            "instance_id": None,
            "rack_id": "r",
            "client_id": "c",
            "client_host": "/10.0.0.1",
            "subscribed_topic_names": ["t"],
            "subscribed_topic_regex": "",
            "rebalance_timeout_ms": 60_000,
            "server_assignor": None,
            "classic_member_metadata": None,
        },
    )
    assert found[8] == (
        {"member_id": "a"},
        {
            "member_epoch": 1,
            "previous_member_epoch": 0,
            "state": 0,
            "assigned_partitions": partitions,
            "partitions_pending_revocation": [],
        },
    )


def test_a_partition_moves_after_its_owner_revoked_it() -> None:
    bench = ConsumerBench(topics={"t": 4})
    bench.heartbeat("a", 0)
    joined = bench.heartbeat("b", 0)
    assert (joined["member_epoch"], shown(joined)) == (2, "")
    assert bench.state == "Reconciling"
    assert (bench.row("a")["has_current_assignment"], bench.row("b")["has_current_assignment"]) == (
        False,
        True,
    )
    response = bench.heartbeat("a", 1)
    assert (response["member_epoch"], shown(response)) == (1, "t0 t1")
    assert shown(bench.heartbeat("b", 2)) == "-"
    assert shown(bench.heartbeat("a", 1, topic_partitions="t0 t1 t2")) == "-"
    assert shown(bench.heartbeat("b", 2)) == "-"
    let_go = bench.heartbeat("a", 1, topic_partitions="t0 t1")
    assert (let_go["member_epoch"], shown(let_go)) == (2, "-")
    assert bench.row("b")["has_current_assignment"] is False
    got = bench.heartbeat("b", 2)
    assert (got["member_epoch"], shown(got)) == (2, "t2 t3")
    assert bench.state == "Stable"


def test_an_assignment_is_sent_when_it_changed_or_after_a_full_heartbeat() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    assert shown(bench.heartbeat("a", 1)) == "-"
    full: Message = {"rebalance_timeout_ms": 60_000, "topic_partitions": "t0 t1 t2"}
    assert shown(bench.heartbeat("a", 1, subscribed_topic_names=["t"], **full)) == "t0 t1 t2"
    assert bench.epoch == 1
    assert shown(bench.heartbeat("a", 0)) == "t0 t1 t2"


@pytest.mark.parametrize(
    ("epoch", "version", "more"),
    [
        (0, 1, {"member_id": ""}),
        (1, 0, {"member_id": ""}),
        (-1, 0, {"member_id": ""}),
        (0, 1, {"group_id": ""}),
        (0, 1, {"instance_id": ""}),
        (0, 1, {"rack_id": ""}),
        (0, 1, {"rebalance_timeout_ms": -1}),
        (0, 1, {"topic_partitions": None}),
        (0, 1, {"topic_partitions": "t0"}),
        (0, 1, {"subscribed_topic_names": None}),
        (-2, 1, {}),
        (-3, 1, {"instance_id": "i"}),
    ],
)
def test_an_invalid_heartbeat_is_refused(epoch: int, version: int, more: Message) -> None:
    bench = ConsumerBench()
    event = bench.heartbeat_event(epoch=epoch, version=version, **{"member_id": "a", **more})
    bench.batch(event)
    answer = bench.answers[event.ticket]
    assert answer["error_code"] == Code.INVALID_REQUEST
    assert not bench.log


def test_in_version_0_the_broker_makes_the_member_id() -> None:
    assert ConsumerBench().heartbeat("", 0, version=0)["member_id"] == "id1"


def test_an_unknown_assignor_is_refused_by_name() -> None:
    answer = ConsumerBench().heartbeat("a", 0, server_assignor="magic")
    assert answer["error_code"] == Code.UNSUPPORTED_ASSIGNOR
    assert "magic is not supported. Supported assignors: uniform, range." in answer["error_message"]


def test_unknown_groups_and_members_are_refused() -> None:
    bench = ConsumerBench()
    assert bench.code("a", 1) == Code.GROUP_ID_NOT_FOUND
    assert bench.code("a", -1) == Code.GROUP_ID_NOT_FOUND
    bench.heartbeat("a", 0)
    assert bench.code("b", 1) == Code.UNKNOWN_MEMBER_ID
    assert bench.code("b", -1) == Code.UNKNOWN_MEMBER_ID
    assert bench.code("b", 1, instance_id="i") == Code.UNKNOWN_MEMBER_ID


def test_only_the_previous_epoch_is_accepted_again() -> None:
    bench = ConsumerBench(topics={"t": 4})
    bench.heartbeat("a", 0)
    assert bench.code("a", 2) == Code.FENCED_MEMBER_EPOCH
    bench.heartbeat("b", 0)
    bench.heartbeat("a", 1)
    bench.heartbeat("a", 1, topic_partitions="t0 t1")
    assert bench.row("a")["epoch"] == 2
    assert bench.code("a", 1) == Code.FENCED_MEMBER_EPOCH
    assert bench.code("a", 1, topic_partitions="t0 t1 t2") == Code.FENCED_MEMBER_EPOCH
    again = bench.heartbeat("a", 1, topic_partitions="t0 t1")
    assert (again["error_code"], again["member_epoch"]) == (0, 2)
    bench.heartbeat("b", -1)
    bench.heartbeat("a", 2, topic_partitions="t0 t1")
    assert bench.code("a", 1, topic_partitions="t0 t1") == Code.FENCED_MEMBER_EPOCH


def test_a_leaving_member_frees_its_partitions() -> None:
    bench = ConsumerBench(topics={"t": 4})
    bench.heartbeat("a", 0)
    bench.heartbeat("b", 0)
    bench.settle("a", "b")
    left = bench.heartbeat("a", -1)
    assert (left["error_code"], left["member_id"], left["member_epoch"]) == (0, "a", -1)
    assert set(bench.snapshot["members"]) == {"b"}
    assert bench.settle("b") == {"b": "t0 t1 t2 t3"}
    bench.heartbeat("b", -1)
    assert (bench.state, bench.snapshot["subscribed"]) == ("Empty", [])
    gone = {(kind, key.get("member_id")) for kind, key, value in bench.written() if not value}
    assert gone == {(kind, member) for kind in (5, 7, 8) for member in "ab"}


def test_a_silent_member_is_removed_and_fenced() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    bench.notify("SessionExpired", members=["a", "nobody"])
    assert bench.state == "Empty"
    assert bench.code("a", 1) == Code.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("a", 0)["member_epoch"] == 3


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    bench = ConsumerBench(topics={"t": 4})
    bench.heartbeat("a", 0, rebalance_timeout_ms=30_000)
    bench.heartbeat("b", 0)
    bench.heartbeat("a", 1)
    bench.wait(29_999)
    assert shown(bench.heartbeat("b", 2)) == "-"
    bench.wait(1)
    assert set(bench.snapshot["members"]) == {"b"}
    assert shown(bench.heartbeat("b", 2)) == "t0 t1 t2 t3"
    assert bench.outcomes[-1].wake_at_ms is None


def test_a_changed_subscription_makes_a_new_target_assignment() -> None:
    bench = ConsumerBench(topics={"t": 2, "u": 2})
    bench.heartbeat("a", 0)
    answer = bench.heartbeat("a", 1, subscribed_topic_names=["u"])
    assert (answer["member_epoch"], shown(answer)) == (1, "")
    answer = bench.heartbeat("a", 1, topic_partitions="")
    assert (answer["member_epoch"], shown(answer)) == (2, "u0 u1")
    assert bench.snapshot["subscribed"] == ["u"]


def test_new_partitions_and_deleted_topics_change_the_target_without_a_request() -> None:
    bench = ConsumerBench(topics={"t": 1})
    bench.heartbeat("a", 0, subscribed_topic_names=["t", "u"])
    bench.change(x=3)
    assert bench.epoch == 1
    bench.change(t=2)
    assert (bench.epoch, bench.row("a")["has_current_assignment"]) == (2, False)
    assert shown(bench.heartbeat("a", 1)) == "t0 t1"
    bench.change(u=1)
    assert shown(bench.heartbeat("a", 2)) == "t0 t1 u0"
    bench.change(t=None)
    assert shown(bench.heartbeat("a", 3)) == "u0"
    assert shown(bench.heartbeat("a", 3, topic_partitions="u0")) == "-"
    assert bench.state == "Stable"


def test_a_recreated_topic_is_another_topic() -> None:
    bench = ConsumerBench(topics={"t": 1})
    bench.heartbeat("a", 0)
    bench.cluster.made["t"] = 1
    bench.change(t=1)
    bench.heartbeat("a", 1)
    answer = bench.heartbeat("a", 1, topic_partitions="")
    assert answer["assignment"]["topic_partitions"][0]["topic_id"] == topic_id("t", 1)


def test_a_full_group_refuses_new_members() -> None:
    bench = ConsumerBench(consumer_max_size=1)
    bench.heartbeat("a", 0)
    assert bench.code("b", 0) == Code.GROUP_MAX_SIZE_REACHED
    assert bench.code("a", 0) == Code.NONE


def test_members_that_join_in_one_batch_share_one_target_assignment() -> None:
    bench = ConsumerBench(topics={"t": 8})
    events = [bench.heartbeat_event(f"m{n}", 0) for n in range(8)]
    bench.batch(*events)
    found = [shown(bench.answers[each.ticket]) for each in events]
    assert sorted(found) == [f"t{n}" for n in range(8)]
    assert {bench.answers[each.ticket]["member_epoch"] for each in events} == {1}


def test_two_heartbeats_of_one_member_in_a_batch_are_handled_in_order() -> None:
    bench = ConsumerBench()
    events = [
        bench.heartbeat_event("a", 0),
        bench.heartbeat_event("a", 1),
        bench.heartbeat_event("a", -1),
    ]
    bench.batch(*events)
    epochs = [bench.answers[each.ticket]["member_epoch"] for each in events]
    assert epochs == [1, 1, -1]


def test_consumer_heartbeats_are_refused_while_the_protocol_is_disabled() -> None:
    bench = ConsumerBench(serves_consumer_protocol=False)
    assert bench.code("a", 0) == Code.UNSUPPORTED_VERSION
    (group,) = bench.described()
    assert group["error_code"] == Code.UNSUPPORTED_VERSION


def test_each_member_continues_with_its_state_after_a_restart() -> None:
    bench = ConsumerBench(topics={"t": 4})
    bench.heartbeat("a", 0, rebalance_timeout_ms=30_000)
    bench.heartbeat("b", 0)
    bench.heartbeat("a", 1)
    before = bench.described()
    epoch = bench.epoch
    bench.restart()
    assert bench.described() == before
    assert (bench.epoch, bench.state) == (epoch, "Reconciling")
    assert shown(bench.heartbeat("b", 2)) == "-"
    assert shown(bench.heartbeat("a", 1, topic_partitions="t0 t1")) == "-"
    assert shown(bench.heartbeat("b", 2)) == "t2 t3"
    bench.restart()
    assert bench.state == "Stable"
    bench.wait(60_000)
    assert bench.state == "Stable"


def test_a_member_that_had_to_revoke_before_a_restart_still_has_to() -> None:
    bench = ConsumerBench(topics={"t": 4})
    bench.heartbeat("a", 0, rebalance_timeout_ms=30_000)
    bench.heartbeat("b", 0)
    bench.heartbeat("a", 1)
    bench.restart()
    bench.wait(30_000)
    assert set(bench.snapshot["members"]) == {"b"}


def test_topics_that_changed_before_a_start_are_noticed_at_the_start() -> None:
    bench = ConsumerBench(topics={"t": 1})
    bench.heartbeat("a", 0)
    bench.cluster.counts["t"] = 2
    bench.restart()
    assert bench.epoch == 2
    assert shown(bench.heartbeat("a", 1)) == "t0 t1"
