"""Deadlines of a classic group: members wait no longer than the protocol allows."""

from __future__ import annotations

import pytest

from krust.errors import Code
from tests.unit.coordinator.bench import Bench


def test_a_new_group_waits_for_the_initial_delay() -> None:
    bench = Bench(initial_rebalance_delay_ms=3000)
    waiting = bench.join()
    bench.wait(2999)
    assert waiting not in bench.answers
    bench.wait(1)
    assert bench.answers[waiting]["generation_id"] == 1


def test_each_new_member_extends_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    bench = Bench(initial_rebalance_delay_ms=3000)
    waiting = [bench.join(rebalance_timeout_ms=10_000)]
    for _ in range(3):
        bench.wait(2900)
        waiting.append(bench.join(rebalance_timeout_ms=10_000))
    bench.wait(10_000 - 3 * 2900 - 1)
    assert not bench.answers
    bench.wait(1)
    assert [bench.answers[each]["error_code"] for each in waiting] == [Code.NONE] * 4


def test_the_initial_delay_is_not_extended_without_a_new_member() -> None:
    bench = Bench(initial_rebalance_delay_ms=3000)
    waiting = [bench.join(), bench.join()]
    bench.wait(3000)
    assert not bench.answers, "the second one came within the first delay"
    bench.wait(3000)
    assert len({bench.answers[each]["generation_id"] for each in waiting}) == 1


def test_the_initial_delay_is_at_most_the_rebalance_timeout() -> None:
    bench = Bench(initial_rebalance_delay_ms=3000)
    waiting = bench.join(rebalance_timeout_ms=500)
    bench.wait(500)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_an_emptied_group_waits_for_the_initial_delay_again() -> None:
    bench = Bench(initial_rebalance_delay_ms=3000)
    first = bench.join()
    bench.wait(3000)
    bench.leave(bench.answers[first]["member_id"])
    waiting = bench.join()
    bench.wait(2000)
    bench.join()
    bench.wait(1000)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    bench.wait(59_999)
    assert waiting not in bench.answers
    bench.wait(1)
    assert bench.answers[waiting]["error_code"] == Code.NONE
    assert set(bench.snapshot["members"]) == {a}
    assert bench.joined(b)["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_of_the_members_counts() -> None:
    bench = Bench()
    a = bench.joined(rebalance_timeout_ms=90_000)["member_id"]
    bench.share([a])
    waiting = bench.join(rebalance_timeout_ms=1_000)
    bench.wait(89_999)
    assert waiting not in bench.answers
    bench.wait(1)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_first_join_waits_five_minutes_at_most() -> None:
    bench = Bench()
    a = bench.joined(rebalance_timeout_ms=3_600_000)["member_id"]
    bench.share([a])
    waiting = bench.join(rebalance_timeout_ms=3_600_000)
    bench.wait(300_000)
    assert bench.answers[waiting]["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.answers[waiting]["member_id"] == ""
    assert set(bench.snapshot["members"]) == {a}


def test_a_member_that_joins_again_may_wait_longer_than_five_minutes() -> None:
    bench = Bench()
    a = bench.joined(rebalance_timeout_ms=3_600_000)["member_id"]
    bench.share([a])
    new = bench.join(rebalance_timeout_ms=3_600_000)
    again = bench.join(a, rebalance_timeout_ms=3_600_000)
    b = bench.answers[new]["member_id"]
    bench.share([a, b])
    again = bench.join(a, rebalance_timeout_ms=3_600_000)
    bench.wait(600_000)
    assert again not in bench.answers
    bench.wait(3_000_000)
    assert bench.answers[again]["error_code"] == Code.NONE


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    for each in (a, b):
        bench.join(each)
    bench.sync(a, bench.generation, {a: b"x"})
    assert bench.state == "Stable"
    bench.wait(59_999)
    assert bench.state == "Stable"
    bench.wait(1)
    assert bench.state == "PreparingRebalance"
    assert set(bench.snapshot["members"]) == {a}


def test_followers_are_answered_when_the_leader_never_syncs() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    for each in (a, b):
        bench.join(each)
    waiting = bench.sync(b, bench.generation)
    bench.wait(60_000)
    assert bench.answers[waiting]["error_code"] == Code.REBALANCE_IN_PROGRESS
    assert bench.joined(b)["leader"] == b


def test_no_deadline_remains_when_all_members_have_synced() -> None:
    bench = Bench()
    bench.stable(3)
    assert bench.outcomes[-1].wake_at_ms is None
    bench.wait(3_600_000)
    assert bench.state == "Stable"


def test_a_lost_member_makes_the_others_join_again() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    bench.notify("SessionExpired", members=[b])
    assert bench.state == "PreparingRebalance"
    assert bench.joined(a)["error_code"] == Code.NONE
    reasons = bench.coordinator.history("g")[-1].reasons
    assert reasons[0] == (b, f"session of {b} expired")


def test_all_members_lost_at_once_leave_an_empty_group() -> None:
    bench = Bench()
    members = bench.stable(3)
    records = len(bench.log)
    bench.notify("SessionExpired", members=members)
    assert bench.state == "Empty"
    assert len(bench.log) == records + 1


def test_a_member_with_a_waiting_join_does_not_expire() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    bench.notify("SessionExpired", members=[a])
    assert waiting not in bench.answers
    assert bench.snapshot["members"][a]["timed"] is False
    bench.notify("SessionExpired", members=[b])
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_member_with_a_waiting_sync_does_not_expire() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    for each in (a, b):
        bench.join(each)
    waiting = bench.sync(b, bench.generation)
    bench.notify("SessionExpired", members=[b])
    assert bench.snapshot["members"][b]["timed"] is False
    bench.sync(a, bench.generation, {b: b"x"})
    assert bench.answers[waiting]["assignment"] == b"x"
    assert bench.snapshot["members"][b]["timed"] is True


def test_a_rebalance_ignores_the_timeout_of_a_removed_member() -> None:
    bench = Bench()
    a, b, _ = bench.stable(3, rebalance_timeout_ms=10_000)
    bench.join(a, rebalance_timeout_ms=60_000)
    waiting = bench.join(b, rebalance_timeout_ms=10_000)
    bench.notify("SessionExpired", members=[a])
    bench.notify("SessionExpired", members=[a])
    bench.wait(9_999)
    assert waiting not in bench.answers
    bench.wait(1)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_rebalance_ignores_the_timeout_of_a_replaced_static_member() -> None:
    bench = Bench()
    a, _ = bench.stable(2, rebalance_timeout_ms=10_000)
    bench.join(version=5, group_instance_id="i", rebalance_timeout_ms=60_000)
    waiting = bench.join(version=5, group_instance_id="i", rebalance_timeout_ms=10_000)
    bench.join(a, rebalance_timeout_ms=10_000)
    bench.wait(10_000)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_member_answered_in_the_same_batch_does_not_expire() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    for each in (a, b):
        bench.join(each)
    bench.sync(b, bench.generation)
    expired = bench.event("SessionExpired", members=[b])._replace(ticket=0)
    bench.batch(bench.sync_event(a, bench.generation, {b: b"x"}), expired)
    assert set(bench.snapshot["members"]) == {a, b}
    bench.notify("SessionExpired", members=[b])
    assert set(bench.snapshot["members"]) == {a}


def test_a_waiting_member_without_connection_is_removed_on_the_second_report() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    bench.notify("SessionExpired", members=[a])
    bench.notify("SessionExpired", members=[a])
    assert bench.answers[waiting]["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert set(bench.snapshot["members"]) == {b}


def test_a_new_join_clears_the_suspicion_of_a_member() -> None:
    bench = Bench()
    a, _ = bench.stable(2)
    bench.join(a)
    bench.notify("SessionExpired", members=[a])
    waiting = bench.join(a)
    bench.notify("SessionExpired", members=[a])
    assert waiting not in bench.answers


def test_events_of_unknown_members_and_groups_correct_the_core() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    del bench.snapshots["g"]
    bench.notify("SessionExpired", members=["nobody"])
    assert set(bench.snapshot["members"]) == {a}
    bench.notify("SessionExpired", group_id="none", members=["nobody"])
    assert bench.snapshots["none"] is None


@pytest.mark.parametrize("timeout", [0, -5, -(2**31)])
def test_an_invalid_rebalance_timeout_means_the_session_timeout(timeout: int) -> None:
    bench = Bench()
    a = bench.joined(rebalance_timeout_ms=timeout)["member_id"]
    bench.share([a])
    waiting = bench.join(rebalance_timeout_ms=timeout)
    bench.wait(9_999)
    assert waiting not in bench.answers
    bench.wait(1)
    assert bench.answers[waiting]["error_code"] == Code.NONE
