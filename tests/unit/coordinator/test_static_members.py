"""Static members (KIP-345, KIP-814): known by their instance id across restarts of the client."""

from __future__ import annotations

from typing import Any

import pytest

from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.bench import Bench


def settled(*instances: str, **more: Any) -> tuple[Bench, list[str]]:
    """A Stable group of static members; the first one leads."""
    bench = Bench()
    members: list[str] = []
    for instance in instances:
        joins = [bench.join("", 5, group_instance_id=instance, **more)]
        joins += [
            bench.join(each, 5, group_instance_id=name, **more)
            for each, name in zip(members, instances, strict=False)
        ]
        members.append(bench.answers[joins[0]]["member_id"])
    bench.share(members)
    return bench, members


def test_a_static_member_needs_no_second_join_for_its_id() -> None:
    answer = Bench().joined("", 5, group_instance_id="i", client="c")
    assert (answer["error_code"], answer["member_id"]) == (Code.NONE, "i-id1")


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_follower_returns_without_a_rebalance(version: int) -> None:
    bench, (a, b) = settled("i", "j")
    generation = bench.generation
    answer = bench.joined("", version, group_instance_id="j")
    new = answer["member_id"]
    assert new not in (a, b)
    assert (answer["error_code"], answer["generation_id"]) == (Code.NONE, generation)
    assert (answer["leader"], answer["members"]) == (a, [])
    assert answer["skip_assignment"] is False
    assert bench.synced(new, generation, group_instance_id="j")["assignment"] == b.encode()
    assert bench.state == "Stable"
    stored = bench.log[-1][1]
    assert isinstance(stored, dict)
    assert [each["member_id"] for each in stored["members"]] == [a, new]
    assert stored["generation"] == generation


def test_a_returning_static_leader_does_not_lead() -> None:
    bench, (a, _) = settled("i", "j")
    answer = bench.joined("", 8, group_instance_id="i")
    assert (answer["leader"], answer["members"]) == (a, [])
    assert answer["member_id"] != a
    rebalance = bench.join(answer["member_id"], 8, group_instance_id="i")
    assert rebalance not in bench.answers, "it does lead, though"


def test_from_version_9_a_returning_leader_skips_the_assignment() -> None:
    bench, (a, b) = settled("i", "j")
    answer = bench.joined("", 9, group_instance_id="i")
    new = answer["member_id"]
    assert (answer["leader"], answer["skip_assignment"]) == (new, True)
    assert {each["member_id"] for each in answer["members"]} == {new, b}
    synced = bench.synced(new, bench.generation, {b: b"other"}, group_instance_id="i")
    assert synced["assignment"] == a.encode()
    assert bench.synced(b, bench.generation)["assignment"] == b.encode()


def test_a_replaced_static_member_is_fenced() -> None:
    bench, (_, b) = settled("i", "j")
    bench.joined("", 5, group_instance_id="j")
    join = bench.joined(b, 5, group_instance_id="j")
    sync = bench.synced(b, bench.generation, group_instance_id="j")
    leave = bench.leave({"member_id": b, "group_instance_id": "j"})
    codes = [join["error_code"], sync["error_code"], leave["members"][0]["error_code"]]
    assert codes == [Code.FENCED_INSTANCE_ID] * 3
    assert bench.synced(b, bench.generation)["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_a_waiting_request_of_a_replaced_member_is_fenced() -> None:
    bench, (a, b) = settled("i", "j")
    waiting = bench.join(a, 5, group_instance_id="i")
    bench.join("", 5, group_instance_id="i")
    assert bench.answers[waiting]["error_code"] == Code.FENCED_INSTANCE_ID
    bench.join(b, 5, group_instance_id="j")
    waiting_sync = bench.sync(b, bench.generation, group_instance_id="j")
    again = bench.join("", 5, group_instance_id="j")
    assert bench.answers[waiting_sync]["error_code"] == Code.FENCED_INSTANCE_ID
    assert again not in bench.answers
    assert bench.state == "PreparingRebalance", "the leader assigns by the old id"


def test_a_static_member_that_returns_with_other_protocols_triggers_a_rebalance() -> None:
    both = [("range", b"m"), ("sticky", b"m")]
    bench, _ = settled("i", "j", protocols=both)
    waiting = bench.join("", 5, group_instance_id="j", protocols=[("sticky", b"m")])
    assert waiting not in bench.answers
    assert bench.state == "PreparingRebalance"


def test_a_static_member_that_returns_with_another_subscription_keeps_its_assignment() -> None:
    bench, (_, b) = settled("i", "j")
    answer = bench.joined("", 5, group_instance_id="j", protocols=[("range", b"new")])
    assert answer["error_code"] == Code.NONE
    synced = bench.synced(answer["member_id"], bench.generation)
    assert synced["assignment"] == b.encode()


def test_an_unknown_instance_id_makes_a_known_member_unknown() -> None:
    bench, (a, _) = settled("i", "j")
    answer = bench.joined(a, 5, group_instance_id="k")
    assert answer["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_join_again_stays_until_its_session_ends() -> None:
    bench, (a, b) = settled("i", "j")
    waiting = bench.join(a, 5, group_instance_id="i")
    bench.wait(60_000)
    assert bench.answers[waiting]["error_code"] == Code.NONE
    members = {each["member_id"] for each in bench.answers[waiting]["members"]}
    assert members == {a, b} == set(bench.snapshot["members"])
    bench.sync(a, bench.generation, {a: b"x", b: b"y"}, group_instance_id="i")
    bench.wait(3_600_000)
    assert bench.state == "Stable"
    bench.notify("SessionExpired", members=[b])
    assert (bench.state, set(bench.snapshot["members"])) == ("PreparingRebalance", {a})


def test_a_rebalance_that_waits_for_absent_static_members_ends_with_their_sessions() -> None:
    bench, (a, b) = settled("i", "j")
    bench.join(a, 5, group_instance_id="i")
    bench.leave({"member_id": a, "group_instance_id": "i"})
    bench.wait(300_000)
    assert (bench.state, set(bench.snapshot["members"])) == ("PreparingRebalance", {b})
    bench.notify("SessionExpired", members=[b])
    assert bench.state == "Empty"


def test_a_static_member_returns_to_a_full_group() -> None:
    bench = Bench(max_size=1)
    a = bench.joined("", 5, group_instance_id="i")["member_id"]
    bench.share([a])
    other = bench.joined("", 5, group_instance_id="j")
    assert other["error_code"] == Code.GROUP_MAX_SIZE_REACHED
    assert bench.joined("", 5, group_instance_id="i")["error_code"] == Code.NONE


def test_an_admin_removes_a_static_member_by_its_instance_id() -> None:
    bench, (a, b) = settled("i", "j")
    wrong: Message = {"member_id": "", "group_instance_id": "k"}
    right: Message = {"member_id": "", "group_instance_id": "j"}
    answer = bench.leave(wrong, right, {"member_id": "", "group_instance_id": None}, b, version=5)
    assert answer["error_code"] == Code.NONE
    assert [(each["member_id"], each["error_code"]) for each in answer["members"]] == [
        ("", Code.UNKNOWN_MEMBER_ID),
        ("", Code.NONE),
        ("", Code.UNKNOWN_MEMBER_ID),
        (b, Code.UNKNOWN_MEMBER_ID),
    ]
    assert set(bench.snapshot["members"]) == {a}
    assert bench.snapshot["members"][a]["instance_id"] == "i"
