"""Group decisions at the native boundary: what it accepts, and the error for what it refuses."""

from typing import Any

import pytest

from krust._krust import Server

ROW: dict[str, Any] = {
    "state": "Stable",
    "generation": 1,
    "protocol_type": "consumer",
    "since_ms": 0,
    "subscribed": ["orders"],
    "members": {
        "m": {"instance_id": None, "session_timeout_ms": 60, "timed": True, "connection": None}
    },
}

CONSUMERS = {
    "type": "consumer",
    "state": "Reconciling",
    "epoch": 3,
    "since_ms": 0,
    "subscribed": ["orders"],
    "heartbeat_interval_ms": 5000,
    "members": {
        "m": {**ROW["members"]["m"], "epoch": 3, "has_current_assignment": True},
        "c": {**ROW["members"]["m"], "epoch": 2, "classic": True, "rejoin": False},
    },
}
MEMBER = ROW["members"]["m"]


def test_a_silent_member_ends_the_wait_for_events(server: Server) -> None:
    assert server.apply_group_outcome([], [("g", ROW)], []) == []
    events = server.events(60_000)
    assert events is not None
    [(ticket, api, _, notification, _)] = events
    assert (ticket, api, notification) == (0, "SessionExpired", {"group_id": "g", "members": ["m"]})


def test_a_group_that_is_gone_has_no_sessions(server: Server) -> None:
    server.apply_group_outcome([], [("g", ROW), ("g", None)], [])
    assert server.events(100) == []


def test_a_group_of_another_coordinator_cannot_be_written(server: Server) -> None:
    assert server.apply_group_outcome([("g", None)], [("g", ROW)], []) == ["g"]
    assert server.events(100) == []


@pytest.mark.parametrize(
    ("records", "snapshots", "replies", "error", "message"),
    [
        (None, [], [], TypeError, "records: "),
        ([("g", "drop")], [], [], ValueError, "records.0: "),
        ([("g", None), ("g", 1)], [], [], TypeError, "records.1: "),
        ([], [("g", {**ROW, "state": "Fine"})], [], ValueError, "snapshots.0.state: "),
        ([], [("g", {**ROW, "generation": None})], [], TypeError, "generation is missing"),
        ([], [("g", {**ROW, "since_ms": "now"})], [], TypeError, "snapshots.0.since_ms: "),
        ([], [("g", {**ROW, "members": {"m": {}}})], [], TypeError, "snapshots.0.members.m: "),
        (
            [],
            [("g", {**ROW, "members": {"m": {"session_timeout_ms": "1"}}})],
            [],
            TypeError,
            "snapshots.0.members.m.session_timeout_ms: ",
        ),
        ([("g", [(3, {})])], [], [], ValueError, "records.0.0: "),
        ([("g", [(3, {}, None), ("3", {}, None)])], [], [], TypeError, "records.0.1: "),
        ([("g", [(3, None, {})])], [], [], TypeError, "records.0.0: "),
        ([("g", [(70_000, {}, None)])], [], [], Exception, "records.0.0: "),
        ([], [("g", {**ROW, "type": "share"})], [], ValueError, "snapshots.0.type: "),
        ([], [("g", {**ROW, "type": "consumer"})], [], TypeError, "is missing"),
        ([], [("g", {**CONSUMERS, "epoch": None})], [], TypeError, "epoch is missing"),
        ([], [("g", {**CONSUMERS, "members": {"m": MEMBER}})], [], TypeError, "members.m: epoch"),
        ([], [], [(1, {"a": object()}, ["g"])], TypeError, "replies.0: "),
        ([], [], [("1", {}, ["g"])], TypeError, "replies.0: "),
        ([], [], [(1, {}, "g")], TypeError, "replies.0: "),
    ],
)
def test_an_invalid_value_is_refused_with_its_path(
    server: Server, records: Any, snapshots: Any, replies: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace(".", r"\.")):
        server.apply_group_outcome(records, snapshots, replies)
    assert server.events(0) == []


def test_members_of_consumer_groups_expire_like_classic_ones(server: Server) -> None:
    assert server.apply_group_outcome([], [("g", CONSUMERS)], []) == []
    events = server.events(60_000)
    assert events is not None
    [(_, api, _, notification, _)] = events
    assert (api, sorted(notification["members"])) == ("SessionExpired", ["c", "m"])


def test_topics_are_matched_by_their_whole_name(server: Server) -> None:
    partition = {"partition": 0, "leader": 0, "leader_epoch": 0, "isr": [0], "replicas": [0]}
    partition["partition_epoch"] = 0
    names = ["orders", "orders-eu", "Orders", "__consumer_offsets", "z"]
    topics = {
        name: {
            "id": f"AAAAAAAAAAAAAAAAAAAA{n}w",
            "internal": name.startswith("__"),
            "config": {},
            "partitions": [partition],
        }
        for n, name in enumerate(names)
    }
    brokers: list[Any] = [{"id": 0, "rack": None, "endpoints": []}]
    server.apply({"version": 1, "brokers": brokers, "controller_id": 0, "topics": topics})
    assert server.match_topics("orders.*") == ["orders", "orders-eu"]
    assert server.match_topics("(?i)orders") == ["Orders", "orders"]
    assert server.match_topics(".*") == sorted(names)  # internal ones too, as in Kafka 4.3
    assert server.match_topics("") == []
    assert server.match_topics(r"\Qorders-eu\E|z") == ["orders-eu", "z"]
    for wrong in ["(", "a)|(b", r"(a)\1", "(((a{100}){100}){100}){100}", "a" * 40_000]:
        with pytest.raises(ValueError, match=r".+"):
            server.match_topics(wrong)
