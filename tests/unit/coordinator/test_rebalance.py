"""A classic group's rebalance, one rule a test."""

from __future__ import annotations

from krust.errors import Code
from tests.unit.coordinator.bench import Bench


def test_a_lone_member_is_answered_at_once_without_a_delay() -> None:
    bench = Bench()
    answer = bench.joined()
    assert answer["error_code"] == Code.NONE
    assert answer["generation_id"] == 1
    assert answer["leader"] == answer["member_id"]
    assert [each["member_id"] for each in answer["members"]] == [answer["member_id"]]
    assert answer["members"][0]["metadata"] == b"m"
    assert bench.state == "CompletingRebalance"
    assert not bench.log


def test_the_assignment_is_stored_before_anyone_hears_of_it() -> None:
    bench = Bench()
    members = bench.stable(3)
    stored = bench.log[-1]
    outcome = next(each for each in bench.outcomes if each.records == [stored])
    assert len(outcome.replies) == 1
    assert stored[0] == "g"
    assert isinstance(stored[1], dict)
    assert [each["assignment"] for each in stored[1]["members"]] == [
        each.encode() for each in members
    ]


def test_followers_wait_for_the_leaders_assignment() -> None:
    bench = Bench()
    members = bench.stable(2)
    joins = [bench.join(each) for each in members]
    generation = bench.answers[joins[0]]["generation_id"]
    waiting = bench.sync(members[1], generation)
    assert waiting not in bench.answers
    bench.sync(members[0], generation, {members[1]: b"all"})
    assert bench.answers[waiting]["assignment"] == b"all"
    assert bench.synced(members[0], generation)["assignment"] == b""
