"""Restarts: a group comes back from its last record, and nobody has to join again."""

from __future__ import annotations

from krust.coordinator.consumer_protocol import Subscription, write_subscription
from krust.errors import Code
from tests.unit.coordinator.bench import Bench


def test_a_stable_group_is_stable_after_a_replay() -> None:
    bench = Bench()
    members = bench.stable(3)
    snapshot = bench.snapshot
    bench.restart()
    assert bench.snapshot == {
        **snapshot,
        "members": {key: {**row, "connection": None} for key, row in snapshot["members"].items()},
    }
    assert all(row["timed"] for row in bench.snapshot["members"].values())
    assert bench.outcomes[-1].wake_at_ms is None
    for each in members:
        assert bench.synced(each, bench.generation)["assignment"] == each.encode()


def test_a_follower_that_joins_again_after_a_restart_is_answered() -> None:
    bench = Bench()
    subscriptions = [("range", b"m"), ("sticky", b"s")]
    a, b = bench.stable(2, protocols=subscriptions)
    bench.restart()
    answer = bench.joined(b, protocols=subscriptions)
    assert (answer["error_code"], answer["leader"]) == (Code.NONE, a)
    assert bench.state == "Stable"
    other = bench.join(b, protocols=[("range", b"other")])
    assert other not in bench.answers


def test_a_follower_with_new_metadata_after_a_restart_triggers_a_rebalance() -> None:
    bench = Bench()
    _, b = bench.stable(2)
    bench.restart()
    assert bench.join(b, protocols=[("range", b"other")]) not in bench.answers
    assert bench.state == "PreparingRebalance"


def test_a_generation_is_never_used_twice() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    seen = {bench.generation}
    for _ in range(3):
        for _ in range(3):
            joins = [bench.join(each, protocols=[("range", b"%d" % len(seen))]) for each in (a, b)]
            given = {bench.answers[each]["generation_id"] for each in joins}
            assert len(given) == 1
            assert given.isdisjoint(seen)
            assert min(given) > max(seen)
            seen |= given
        bench.restart()


def test_an_empty_group_is_empty_after_a_replay_and_its_generation_rises() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    bench.leave(a)
    generation = bench.generation
    bench.restart()
    assert (bench.state, bench.generation) == ("Empty", generation)
    assert bench.joined()["generation_id"] > generation


def test_a_tombstone_restores_no_group() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    bench.leave(a)
    bench.send("DeleteGroups", groups_names=["g"])
    bench.restart()
    assert bench.snapshots["g"] is None


def test_static_members_come_back_with_their_instance_ids() -> None:
    bench = Bench()
    a = bench.joined("", 5, group_instance_id="i")["member_id"]
    bench.share([a])
    bench.restart()
    assert bench.snapshot["members"][a]["instance_id"] == "i"
    answer = bench.joined("", 9, group_instance_id="i")
    assert answer["skip_assignment"] is True
    assert bench.synced(answer["member_id"], bench.generation)["assignment"] == a.encode()


def test_a_change_that_was_not_appended_is_lost_after_a_replay() -> None:
    bench = Bench()
    a = bench.joined()["member_id"]
    bench.restart()
    assert bench.synced(a, 1)["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_a_loaded_group_is_not_replaced_by_an_older_record() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    value = bench.log[-1][1]
    bench.notify("GroupsLoaded", partition=0, groups=[{"group_id": "g", "value": value}])
    bench.join(b)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_records_of_old_versions_are_read() -> None:
    bench = Bench()
    member = {
        "member_id": "m",
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": -1,
        "session_timeout": 7000,
        "subscription": b"s",
        "assignment": b"a",
    }
    value = {
        "protocol_type": "consumer",
        "generation": 9,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": -1,
        "members": [member],
    }
    bench.notify("GroupsLoaded", partition=0, groups=[{"group_id": "g", "value": value}])
    assert bench.snapshot["since_ms"] == bench.now_ms
    waiting = bench.join()
    bench.wait(60_000)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_group_larger_than_it_may_be_now_rebalances() -> None:
    bench = Bench()
    members = bench.stable(3)
    object.__setattr__(bench.settings, "max_size", 2)
    bench.restart()
    assert bench.state == "PreparingRebalance"
    joins = [bench.join(each) for each in members]
    codes = [bench.answers[each]["error_code"] for each in joins]
    assert sorted(codes) == [Code.NONE, Code.NONE, Code.GROUP_MAX_SIZE_REACHED]


def test_one_unreadable_record_affects_only_its_group() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    value = bench.log[-1][1]
    groups = [{"group_id": "bad", "value": {}}, {"group_id": "h", "value": value}]
    outcome = bench.notify("GroupsLoaded", partition=0, groups=groups)
    assert "KeyError" in outcome.lines[0]
    assert set((bench.snapshots["h"] or {})["members"]) == {a}
    assert bench.joined(group_id="bad")["error_code"] == Code.NONE


def test_the_core_receives_the_subscribed_topics_of_a_group() -> None:
    bench = Bench()
    data = [write_subscription(Subscription((topic, "all"))) for topic in ("t", "u")]
    members = bench.stable(2, protocols=[("range", data[0])])
    for each, metadata in zip(members, data, strict=True):
        bench.join(each, protocols=[("range", metadata)])
    bench.share(members)
    assert bench.snapshot["subscribed"] == ["all", "t", "u"]
    bench.restart()
    assert bench.snapshot["subscribed"] == ["all", "t", "u"]
    bench.leave(*members)
    assert bench.snapshot["subscribed"] == []


def test_a_group_that_moved_away_answers_waiting_members_and_is_not_requested_again() -> None:
    bench = Bench()
    members = bench.stable(2)
    waiting = bench.join(members[0], protocols=[("range", b"other")])
    bench.notify("GroupsUnloaded", groups=[bench.group_id, "never heard of"])
    assert bench.answers[waiting]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.snapshots[bench.group_id] is None
    assert bench.outcomes[-1].wake_at_ms is None


def test_a_lost_group_that_moved_away_is_not_replayed() -> None:
    bench = Bench()
    bench.stable(2)
    bench.take(bench.coordinator.on_append_failed([bench.group_id], bench.now_ms))
    assert bench.outcomes[-1].wake_at_ms is not None
    bench.notify("GroupsUnloaded", groups=[bench.group_id])
    assert bench.outcomes[-1].wake_at_ms is None
