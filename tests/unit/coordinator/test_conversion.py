"""Groups in which both protocols are spoken: conversion there and back, classic members between."""

from __future__ import annotations

from typing import Any

import pytest

from krust.coordinator.consumer import mixed_group
from krust.coordinator.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    read_assignment,
    write_assignment,
    write_subscription,
)
from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.consuming import ConsumerBench, shown


def metadata(*owned: str, topics: tuple[str, ...] = ("t",)) -> bytes:
    return write_subscription(Subscription(topics, owned=places(owned)))


def places(owned: tuple[str, ...]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one[0], int(one[1:])) for one in owned)


def given(*owned: str) -> bytes:
    return write_assignment(Assignment(places(owned)))


def held(answer: Message) -> str:
    assert answer["error_code"] == Code.NONE, answer
    return " ".join(f"{one[0]}{one[1]}" for one in read_assignment(answer["assignment"]).partitions)


class MixedGroup(ConsumerBench):
    """Classic members that know their protocol's bytes."""

    def come(self, member_id: str = "", *owned: str, version: int = 3, **more: Any) -> Message:
        protocols = [("range", metadata(*owned))]
        return self.joined(member_id, version, protocols=protocols, **more)

    def classic(self, size: int = 2) -> list[str]:
        """A Stable classic group over t, which has two partitions a member."""
        self.cluster.counts["t"] = 2 * size
        protocols = [("range", metadata())]
        members = self.stable(size, protocols=protocols)
        for each in members:
            self.join(each, protocols=protocols)
        shares = {each: given(f"t{2 * n}", f"t{2 * n + 1}") for n, each in enumerate(members)}
        for each in members:
            self.sync(each, self.generation, shares if each == members[0] else None)
        assert self.state == "Stable"
        return members


def test_a_classic_group_becomes_a_consumer_group_and_its_members_keep_what_they_have() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    generation = bench.generation
    records = len(bench.log)
    answer = bench.heartbeat("c", 0)
    assert (answer["member_epoch"], shown(answer)) == (generation + 1, "")
    assert bench.log[records] == ("g", None), "the classic record goes in the same batch"
    assert bench.snapshot["type"] == "consumer"
    for each in (a, b):
        row = bench.row(each)
        assert (row["classic"], row["epoch"], row["rejoin"]) == (True, generation, True)
        assert row["session_timeout_ms"] == 10_000
    (group,) = bench.described()
    assert [each["member_type"] for each in group["members"]] == [0, 0, 1]


def test_classic_members_get_their_target_assignment_by_joining_again() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    epoch = bench.heartbeat("c", 0)["member_epoch"]
    joined = bench.come(a)
    assert (joined["error_code"], joined["generation_id"], joined["leader"]) == (0, epoch, "")
    assert (joined["members"], joined["protocol_name"]) == ([], "range")
    assert held(bench.synced(a, epoch)) == "t0"
    bench.come(b)
    bench.sync(b, epoch)
    assert {bench.row(each)["rejoin"] for each in (a, b)} == {False}
    assert shown(bench.heartbeat("c", epoch)) == "t1"
    assert bench.state == "Stable"


def test_unused_member_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_group, "MAX_PENDING", 3)
    bench = MixedGroup()
    bench.classic()
    bench.heartbeat("c", 0)
    pending = [bench.come(version=4)["member_id"] for _ in range(4)]
    assert bench.come(pending[0], version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.come(pending[1], version=4)["error_code"] == Code.NONE


def test_a_cooperative_member_revokes_between_two_joins() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    generation = bench.generation
    epoch = bench.heartbeat("c", 0)["member_epoch"]
    joined = bench.come(a, "t0", "t1")
    assert joined["generation_id"] == generation
    assert held(bench.synced(a, generation)) == "t0"
    assert bench.row(a)["rejoin"] is True
    assert shown(bench.heartbeat("c", epoch)) == "-"
    joined = bench.come(a, "t0")
    assert joined["generation_id"] == epoch
    assert held(bench.synced(a, epoch)) == "t0"
    assert shown(bench.heartbeat("c", epoch)) == "t1"
    bench.come(b, "t2", "t3")
    assert bench.state == "Stable"


def test_a_classic_member_rebalances_when_its_partitions_become_free() -> None:
    bench = MixedGroup()
    a, _ = bench.classic()
    epoch = bench.heartbeat("c", 0, topic_partitions=[])["member_epoch"]
    bench.come(a)
    bench.sync(a, epoch)
    new = bench.come("", version=3)["member_id"]
    bench.sync(new, bench.row(new)["epoch"])
    assert bench.row(new)["rejoin"] is False
    bench.wait(60_000)
    assert bench.row(new)["rejoin"] is True, "the other classic member did not come"


def test_partitions_that_a_cooperative_member_must_still_revoke_stay_its_own() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    joins = [
        bench.join(each, protocols=[("range", metadata(*owned))])
        for each, owned in ((a, ("t0", "t1")), (b, ("t2", "t3")))
    ]
    generation = bench.answers[joins[0]]["generation_id"]
    bench.sync(a, generation, {a: given("t0", "t1"), b: given("t2")})
    answer = bench.heartbeat("c", 0)
    assert "t3" not in shown(answer), "it was not synced, so b reads t3"
    for owned in (("t2", "t3"), ("t2",)):
        bench.come(b, *owned)
    found = shown(bench.heartbeat("c", answer["member_epoch"]))
    assert "t3" in found


def test_a_member_that_waits_during_a_conversion_must_join_again() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    waiting = bench.join(a, protocols=[("range", metadata())])
    assert waiting not in bench.answers
    bench.wait(9000)
    before = len(bench.outcomes)
    bench.heartbeat("c", 0)
    assert bench.answers[waiting]["error_code"] == Code.REBALANCE_IN_PROGRESS
    rows = [row for _, row in bench.outcomes[before].snapshots if row is not None]
    timed = [row["members"][a]["timed"] for row in rows]
    assert timed == [False, True], "its session starts again"
    assert rows[-1]["members"][b]["timed"] is True


def test_a_member_that_does_not_join_or_sync_in_time_is_removed() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    epoch = bench.heartbeat("c", 0)["member_epoch"]
    bench.wait(30_000)
    bench.come(a)
    bench.wait(30_000)
    assert set(bench.snapshot["members"]) == {a, "c"}
    bench.sync(a, epoch)
    assert bench.answers[bench.sync(b, epoch)]["error_code"] == Code.UNKNOWN_MEMBER_ID
    bench.wait(29_999)
    bench.come(a)
    bench.wait(60_000)
    assert set(bench.snapshot["members"]) == {"c"}


def test_syncs_and_leaves_of_classic_members_are_fenced() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    generation = bench.generation
    bench.heartbeat("c", 0)
    codes = [
        bench.synced(a, generation)["error_code"],
        bench.synced(a, generation + 1)["error_code"],
        bench.synced("c", generation + 1)["error_code"],
        bench.synced(a, generation, group_instance_id="i")["error_code"],
        bench.synced(a, generation, protocol_type="x", version=5)["error_code"],
    ]
    assert codes == [27, 22, 25, 25, 23]
    left = bench.leave("x", b)
    assert [each["error_code"] for each in left["members"]] == [25, 0]
    assert set(bench.snapshot["members"]) == {a, "c"}


def test_an_admin_removes_members_of_either_protocol() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    bench.heartbeat("c", 0)
    left = bench.leave("c", b)
    assert [each["error_code"] for each in left["members"]] == [0, 0]
    assert set(bench.snapshot["members"]) == {a}
    assert bench.state == "PreparingRebalance"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("sticky", metadata())]}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("range", b"x")]}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 1}, Code.INVALID_SESSION_TIMEOUT),
        ({"member_id": "never given out"}, Code.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "group_instance_id": "i"}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_classic_members_that_do_not_fit_are_refused(more: Message, code: Code) -> None:
    bench = MixedGroup()
    bench.classic()
    bench.heartbeat("c", 0)
    more = {"protocols": [("range", metadata())], **more}
    assert bench.joined(more.pop("member_id", ""), 5, **more)["error_code"] == code


def test_a_new_classic_member_gets_an_id_first() -> None:
    bench = MixedGroup()
    bench.classic()
    bench.heartbeat("c", 0)
    pending = bench.come(version=4)
    assert pending["error_code"] == Code.MEMBER_ID_REQUIRED
    joined = bench.come(pending["member_id"], version=4)
    assert (joined["error_code"], joined["generation_id"]) == (0, bench.epoch)


def test_a_group_becomes_classic_when_its_last_consumer_member_leaves() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    epoch = bench.heartbeat("c", 0)["member_epoch"]
    for each in (a, b):
        bench.come(each)
        bench.sync(each, epoch)
    assert bench.heartbeat("c", -1)["member_epoch"] == -1
    assert "type" not in bench.snapshot
    assert (bench.state, bench.generation) == ("PreparingRebalance", epoch)
    joins = [bench.join(each, protocols=[("range", metadata())]) for each in (a, b)]
    assert {bench.answers[each]["generation_id"] for each in joins} == {epoch + 1}
    bench.restart()
    assert bench.snapshot.get("type") is None
    assert bench.generation == epoch
    assert bench.state == "PreparingRebalance", "who was not called before is called now"


def test_a_given_member_id_stays_valid_when_the_group_becomes_classic() -> None:
    bench = MixedGroup()
    a, _ = bench.classic()
    bench.heartbeat("c", 0)
    asks: Any = {"version": 5, "protocols": [("range", metadata())]}
    given = bench.answers[bench.join(**asks)]
    assert given["error_code"] == Code.MEMBER_ID_REQUIRED
    bench.heartbeat("c", -1)
    assert "type" not in bench.snapshot
    back = bench.join(given["member_id"], **asks)
    bench.join(a, protocols=[("range", metadata())])
    bench.wait(60_000)
    assert bench.answers[back]["error_code"] == Code.NONE


def test_the_log_holds_one_group_of_one_type_after_a_conversion() -> None:
    bench = MixedGroup()
    a, b = bench.classic()
    for each in ("c", "d"):
        bench.heartbeat(each, 0)
        bench.restart()
        assert set(bench.snapshot["members"]) == {a, b, each}
        bench.notify("SessionExpired", members=[each])
        left = {(kind, repr(key)): value for kind, key, value in bench.written()}
        assert not [each for each in left.values() if each is not None]
        bench.restart()
        assert set(bench.snapshot["members"]) == {a, b}


def test_a_migration_policy_forbids_upgrade_or_downgrade() -> None:
    bench = MixedGroup(upgrades=False)
    bench.classic()
    answer = bench.heartbeat("c", 0)
    assert answer["error_code"] == Code.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in answer["error_message"]
    bench = MixedGroup(downgrades=False)
    a, b = bench.classic()
    bench.heartbeat("c", 0)
    bench.heartbeat("c", -1)
    assert bench.snapshot["type"] == "consumer"
    assert set(bench.snapshot["members"]) == {a, b}


def test_a_group_of_another_protocol_type_or_too_large_is_not_converted() -> None:
    bench = MixedGroup()
    bench.stable(1, protocol_type="connect")
    assert bench.code("c", 0) == Code.GROUP_ID_NOT_FOUND
    bench = MixedGroup(consumer_max_size=1)
    bench.classic()
    assert bench.code("c", 0) == Code.GROUP_ID_NOT_FOUND
    bench = MixedGroup()
    bench.stable(1)
    assert bench.code("c", 0) == Code.GROUP_ID_NOT_FOUND, "its metadata are nothing"
    assert bench.state == "Stable"


@pytest.mark.parametrize(("protocol", "code"), [("range", Code.NONE), ("mine", 69)])
def test_user_data_of_a_custom_assignor_keeps_a_group_classic(protocol: str, code: int) -> None:
    bench = MixedGroup()
    member = bench.joined(protocols=[(protocol, metadata())])["member_id"]
    data = write_assignment(Assignment(places(("t0",)), b"more"))
    bench.sync(member, 1, {member: data})
    assert bench.code("c", 0) == code


def test_a_heartbeat_that_is_refused_converts_nothing() -> None:
    bench = MixedGroup()
    bench.classic()
    assert bench.code("c", 0, subscribed_topic_regex="[") == Code.INVALID_REGULAR_EXPRESSION
    assert bench.code("c", 5) == Code.GROUP_ID_NOT_FOUND
    assert bench.state == "Stable"


def test_an_empty_group_takes_either_protocol_and_its_epoch_continues() -> None:
    bench = MixedGroup()
    a = bench.come()["member_id"]
    bench.sync(a, 1, {a: given("t0")})
    bench.leave(a)
    generation = bench.generation
    assert bench.heartbeat("c", 0)["member_epoch"] == generation + 1
    bench.heartbeat("c", -1)
    epoch = bench.epoch
    assert bench.come("gone")["error_code"] == Code.UNKNOWN_MEMBER_ID
    joined = bench.come()
    assert (joined["error_code"], joined["generation_id"]) == (0, epoch + 1)
    assert "type" not in bench.snapshot


def test_a_static_classic_member_comes_back_with_the_consumer_protocol() -> None:
    bench = MixedGroup()
    member = bench.come("", version=5, group_instance_id="i")["member_id"]
    bench.sync(member, 1, {member: given("t0", "t1", "t2")}, group_instance_id="i")
    answer = bench.heartbeat("c", 0, instance_id="i")
    assert shown(answer) == "t0 t1 t2"
    assert set(bench.snapshot["members"]) == {"c"}


def test_a_static_consumer_member_comes_back_with_the_classic_protocol() -> None:
    bench = MixedGroup()
    bench.heartbeat("c", 0, instance_id="i")
    bench.heartbeat("c", -2, instance_id="i")
    joined = bench.come("", version=5, group_instance_id="i")
    assert joined["error_code"] == Code.NONE
    assert joined["leader"] == joined["member_id"], "the group is a classic one"
    bench = MixedGroup()
    bench.heartbeat("c", 0, instance_id="i")
    bench.heartbeat("d", 0)
    joined = bench.come("", version=5, group_instance_id="i")
    new = joined["member_id"]
    assert bench.row(new)["classic"] is True
    assert set(bench.snapshot["members"]) == {new, "d"}
    fenced = bench.synced("c", 2, group_instance_id="i")
    assert fenced["error_code"] == Code.FENCED_INSTANCE_ID


def test_a_member_may_change_its_protocol() -> None:
    bench = MixedGroup()
    a, _ = bench.classic()
    bench.heartbeat("c", 0)
    answer = bench.heartbeat(a, 0)
    assert answer["error_code"] == Code.NONE
    assert bench.row(a).get("classic") is None
