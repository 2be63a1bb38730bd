"""A classic group's rebalance, one rule a test."""

from __future__ import annotations

import pytest

from krust.coordinator import classic_group
from krust.errors import Code
from tests.unit.coordinator.bench import Bench


def test_a_lone_member_is_answered_at_once_without_a_delay() -> None:
    bench = Bench()
    answer = bench.joined()
    assert answer["error_code"] == Code.NONE
    assert answer["generation_id"] == 1
    assert answer["protocol_type"] == "consumer"
    assert answer["leader"] == answer["member_id"] == "c-id1"
    members = [{"member_id": "c-id1", "group_instance_id": None, "metadata": b"m"}]
    assert answer["members"] == members
    assert bench.state == "CompletingRebalance"
    assert not bench.log


def test_the_assignment_is_appended_before_any_member_gets_it() -> None:
    bench = Bench()
    members = bench.stable(3)
    stored = bench.log[-1]
    outcome = next(each for each in bench.outcomes if each.records == [stored])
    assert len(outcome.replies) == 1
    assert isinstance(stored[1], dict)
    assert stored[1] == {
        "protocol_type": "consumer",
        "generation": bench.generation,
        "protocol": "range",
        "leader": members[0],
        "current_state_timestamp": bench.now_ms,
        "members": [
            {
                "member_id": each,
                "group_instance_id": None,
                "client_id": "c",
                "client_host": "/10.0.0.1",
                "rebalance_timeout": 60_000,
                "session_timeout": 10_000,
                "subscription": b"m",
                "assignment": each.encode(),
            }
            for each in (members[0], members[1], members[2])
        ],
    }


def test_followers_wait_for_the_leaders_assignment() -> None:
    bench = Bench()
    members = bench.stable(2)
    joins = [bench.join(each) for each in members]
    generation = bench.answers[joins[0]]["generation_id"]
    waiting = bench.sync(members[1], generation)
    assert waiting not in bench.answers
    given = {members[1]: b"all", "nobody": b"?"}
    assert bench.synced(members[0], generation, given)["assignment"] == b""
    assert bench.answers[waiting]["assignment"] == b"all"


def test_only_the_leader_gets_the_list_of_members() -> None:
    bench = Bench()
    members = bench.stable(2)
    joins = [bench.join(each) for each in members]
    leader, follower = (bench.answers[each] for each in joins)
    assert {each["member_id"] for each in leader["members"]} == set(members)
    assert follower["members"] == []
    assert follower["leader"] == members[0]


def test_from_version_4_a_new_member_gets_an_id_first() -> None:
    bench = Bench()
    pending = bench.joined(version=4)
    assert pending["error_code"] == Code.MEMBER_ID_REQUIRED
    assert pending["member_id"] == "c-id1"
    assert pending["generation_id"] == -1
    again = bench.joined(pending["member_id"], version=4)
    assert (again["error_code"], again["member_id"]) == (Code.NONE, "c-id1")


def test_a_pending_member_is_removed_after_its_session_timeout() -> None:
    bench = Bench()
    pending = bench.joined(version=4)["member_id"]
    bench.wait(10_000)
    assert bench.joined(pending, version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.send("ListGroups", 4)["groups"] == []  # type: ignore[index]


def test_a_rebalance_waits_for_pending_members_until_they_expire() -> None:
    bench = Bench()
    (member,) = bench.stable(1)
    bench.joined(version=4)
    waiting = bench.join(member)
    assert waiting not in bench.answers
    bench.wait(10_000)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_an_unknown_member_id_creates_no_group() -> None:
    bench = Bench()
    assert bench.joined("who", version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.synced("who", 1)["error_code"] == Code.UNKNOWN_MEMBER_ID
    bench.stable(1)
    assert bench.joined("who", version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_an_empty_group_id_is_refused() -> None:
    bench = Bench(group_id="")
    assert bench.joined()["error_code"] == Code.INVALID_GROUP_ID
    assert bench.synced("m", 1)["error_code"] == Code.INVALID_GROUP_ID
    assert bench.leave("m", group_id="")["error_code"] == Code.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5999, 1_800_001, 0, -1])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    answer = Bench().joined(session_timeout_ms=session_ms)
    assert answer["error_code"] == Code.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_protocol_and_its_type() -> None:
    bench = Bench()
    assert bench.joined(protocols=())["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL
    assert bench.joined(protocol_type="")["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL
    bench.stable(1)
    other = bench.joined(protocol_type="connect")
    assert other["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL
    none = bench.joined(protocols=[("sticky", b"")])
    assert none["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("kind", ["connect", "sr"])
def test_groups_are_of_any_protocol_type(kind: str) -> None:
    bench = Bench()
    answer = bench.joined(protocol_type=kind, protocols=[("v0", b"\xff")])
    assert answer["protocol_type"] == kind
    synced = bench.synced(
        answer["member_id"], 1, {answer["member_id"]: b"x"}, 5, protocol_type=kind,
        protocol_name="v0",
    )  # fmt: skip
    assert (synced["protocol_type"], synced["assignment"]) == (kind, b"x")
    assert bench.snapshot["subscribed"] is None


@pytest.mark.parametrize(
    ("subscriptions", "elected"),
    [
        (["ab", "ba", "ba"], "b"),
        (["abc", "cb", "bc"], "b"),  # a is not common, so the first vote is for b
        (["abc", "cb", "cb"], "c"),
        (["ab", "ba"], "a"),  # a tie goes to the older vote
        (["ba", "ab", "a"], "a"),
    ],
)
def test_each_member_votes_for_its_first_candidate(subscriptions: list[str], elected: str) -> None:
    bench = Bench()
    members = bench.stable(len(subscriptions), protocols=[(each, b"") for each in "abc"])
    joins = [
        bench.join(member, protocols=[(each, b"") for each in wish])
        for member, wish in zip(members, subscriptions, strict=True)
    ]
    assert {bench.answers[each]["protocol_name"] for each in joins} == {elected}


def test_the_leader_stays_while_it_joins_and_another_leads_when_it_does_not() -> None:
    bench = Bench()
    a, b, c = bench.stable(3)
    joins = [bench.join(each) for each in (a, c, b)]
    assert {bench.answers[each]["leader"] for each in joins} == {a}
    bench.share([a, b, c])
    waiting = [bench.join(each, protocols=[("range", b"new")]) for each in (c, b)]
    bench.wait(60_000)
    assert {bench.answers[each]["leader"] for each in waiting} == {b}
    assert set(bench.snapshot["members"]) == {b, c}


def test_another_member_leads_after_the_leader_left() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    bench.leave(a)
    assert bench.joined(b)["leader"] == b


def test_a_repeated_join_with_the_same_metadata_gets_the_same_answer_until_the_sync() -> None:
    bench = Bench()
    members = bench.stable(2)
    first = [bench.answers[each] for each in [bench.join(each) for each in members]]
    again = [bench.joined(each) for each in members]
    assert again == first
    assert bench.state == "CompletingRebalance"


def test_a_repeated_join_with_other_metadata_restarts_a_completing_rebalance() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    for each in (a, b):
        bench.join(each)
    waiting_sync = bench.sync(b, bench.generation)
    waiting = bench.join(a, protocols=[("range", b"other")])
    assert bench.answers[waiting_sync]["error_code"] == Code.REBALANCE_IN_PROGRESS
    assert waiting not in bench.answers
    assert bench.state == "PreparingRebalance"


def test_a_follower_that_joins_a_stable_group_again_is_answered_at_once() -> None:
    bench = Bench()
    _, b = bench.stable(2)
    answer = bench.joined(b)
    assert (answer["error_code"], answer["generation_id"]) == (Code.NONE, bench.generation)
    assert answer["members"] == []
    assert bench.state == "Stable"


def test_a_follower_with_other_metadata_triggers_a_rebalance() -> None:
    bench = Bench()
    _, b = bench.stable(2)
    assert bench.join(b, protocols=[("range", b"other")]) not in bench.answers
    assert bench.state == "PreparingRebalance"


def test_the_leader_may_ask_for_a_rebalance_by_joining() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    assert waiting not in bench.answers
    assert bench.synced(b, bench.generation)["error_code"] == Code.REBALANCE_IN_PROGRESS
    bench.join(b)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_join_that_a_newer_one_replaces_is_answered() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    old = bench.join(a)
    new = bench.join(a)
    assert bench.answers[old]["error_code"] == Code.REBALANCE_IN_PROGRESS
    bench.join(b)
    assert bench.answers[new]["error_code"] == Code.NONE


def test_a_sync_that_a_newer_one_replaces_is_answered() -> None:
    bench = Bench()
    members = bench.stable(2)
    for each in members:
        bench.join(each)
    old = bench.sync(members[1], bench.generation)
    new = bench.sync(members[1], bench.generation)
    assert bench.answers[old]["error_code"] == Code.REBALANCE_IN_PROGRESS
    bench.sync(members[0], bench.generation, {members[1]: b"x"})
    assert bench.answers[new]["assignment"] == b"x"


def test_a_sync_of_another_generation_is_refused() -> None:
    bench = Bench()
    (member,) = bench.stable(1)
    for generation in (bench.generation - 1, bench.generation + 1, -1):
        assert bench.synced(member, generation)["error_code"] == Code.ILLEGAL_GENERATION


def test_a_sync_in_a_stable_group_has_the_assignment_again() -> None:
    bench = Bench()
    for member in bench.stable(2):
        assert bench.synced(member, bench.generation)["assignment"] == member.encode()


def test_a_later_assignment_of_the_leader_is_ignored() -> None:
    bench = Bench()
    (member,) = bench.stable(1)
    answer = bench.synced(member, bench.generation, {member: b"other"})
    assert answer["assignment"] == member.encode()


def test_from_version_5_a_sync_names_the_protocol() -> None:
    bench = Bench()
    (member,) = bench.stable(1)
    wrong: list[dict[str, str | None]] = [
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
    ]
    for each in wrong:
        answer = bench.synced(member, bench.generation, version=5, **each)
        assert answer["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL
    answer = bench.synced(member, bench.generation, version=5)
    assert (answer["protocol_type"], answer["protocol_name"]) == ("consumer", "range")


def test_generations_rise_even_when_all_members_have_left() -> None:
    bench = Bench()
    (member,) = bench.stable(1)
    bench.leave(member)
    assert (bench.state, bench.generation) == ("Empty", 2)
    value = bench.log[-1][1]
    assert isinstance(value, dict)
    assert (value["generation"], value["members"], value["leader"]) == (2, [], None)
    assert bench.joined()["generation_id"] == 3


def test_a_full_classic_group_refuses_new_members() -> None:
    bench = Bench(max_size=2)
    members = bench.stable(2)
    refused = bench.joined()
    assert refused["error_code"] == Code.GROUP_MAX_SIZE_REACHED
    assert refused["member_id"] == ""
    waiting = [bench.join(each) for each in members]
    assert all(bench.answers[each]["error_code"] == Code.NONE for each in waiting)


def test_the_first_members_to_join_a_rebalance_stay_in_a_full_group() -> None:
    bench = Bench(max_size=2)
    a, b = bench.stable(2)
    bench.join(a)
    new = bench.join()
    late = bench.joined(b)
    assert late["error_code"] == Code.GROUP_MAX_SIZE_REACHED
    assert bench.answers[new]["error_code"] == Code.NONE
    assert set(bench.snapshot["members"]) == {a, bench.answers[new]["member_id"]}


def test_pending_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group, "MAX_PENDING", 3)
    bench = Bench()
    pending = [bench.joined(version=4)["member_id"] for _ in range(4)]
    assert bench.joined(pending[0], version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.joined(pending[1], version=4)["error_code"] == Code.NONE


def test_version_0_has_one_timeout_for_session_and_rebalance() -> None:
    bench = Bench()
    a = bench.joined(version=0, rebalance_timeout_ms=-1)["member_id"]
    bench.share([a])
    waiting = bench.join(version=0, rebalance_timeout_ms=-1)
    bench.wait(9_999)
    assert waiting not in bench.answers
    bench.wait(1)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_the_reasons_of_the_last_rebalances_are_remembered() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    bench.join(a, version=8, reason="because")
    bench.wait(250)
    bench.join(b, version=8, reason="me too")
    bench.share([a, b])
    last = bench.coordinator.history("g")[-1]
    assert last.reasons == [
        (a, f"leader joined again: {a} (because)"),
        (b, f"member joined again: {b} (me too)"),
    ]
    assert (last.generation, last.members) == (bench.generation, 2)
    assert last.ended_ms is not None
    assert last.ended_ms - last.started_ms == 250
    leaving = {"member_id": b, "group_instance_id": None, "reason": "enough"}
    bench.leave(leaving, version=5)
    assert bench.coordinator.history("g")[-1].reasons == [(b, f"{b} left (enough)")]
    for _ in range(30):
        bench.join(a)
        bench.share([a])
    assert len(bench.coordinator.history("g")) == 20
    assert bench.coordinator.history("other") == []


def test_remembered_reasons_are_bounded() -> None:
    bench = Bench()
    bench.stable(1)
    bench.batch(*(bench.join_event("", 3, reason="x" * 1000) for _ in range(100)))
    last = bench.coordinator.history("g")[-1]
    assert (len(last.reasons), last.unlisted_reasons) == (50, 50)
    assert max(len(why) for _, why in last.reasons) == 255
