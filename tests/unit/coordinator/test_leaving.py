"""LeaveGroup in each version and state of a classic group."""

from __future__ import annotations

import pytest

from krust.errors import Code
from tests.unit.coordinator.bench import Bench


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_one_member_leaves(version: int) -> None:
    bench = Bench()
    a, b = bench.stable(2)
    assert bench.leave(b, version=version)["error_code"] == Code.NONE
    assert bench.state == "PreparingRebalance"
    assert bench.leave(b, version=version)["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert set(bench.snapshot["members"]) == {a}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_from_version_3_each_member_has_its_own_code(version: int) -> None:
    bench = Bench()
    a, b, c = bench.stable(3)
    answer = bench.leave(b, "who", c, version=version)
    assert answer["error_code"] == Code.NONE
    codes = [each["error_code"] for each in answer["members"]]
    assert codes == [Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.NONE]
    assert set(bench.snapshot["members"]) == {a}
    assert bench.joined(a)["error_code"] == Code.NONE, "one rebalance for all that left"


def test_a_leave_of_an_unknown_group_is_refused() -> None:
    bench = Bench()
    assert bench.leave("m", version=2)["error_code"] == Code.UNKNOWN_MEMBER_ID
    answer = bench.leave("m", version=3)
    assert answer["error_code"] == Code.NONE
    assert answer["members"][0]["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_the_last_leave_empties_the_group_and_is_recorded() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    bench.leave(a)
    assert bench.state == "Empty"
    outcome = bench.outcomes[-1]
    assert len(outcome.records) == len(outcome.replies) == 1


def test_a_member_that_leaves_during_its_join_is_answered() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    bench.leave(a)
    assert bench.answers[waiting]["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.joined(b)["error_code"] == Code.NONE


def test_a_member_that_leaves_during_its_sync_is_answered() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    for each in (a, b):
        bench.join(each)
    waiting = bench.sync(b, bench.generation)
    bench.leave(b)
    assert bench.answers[waiting]["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_when_the_last_awaited_member_leaves() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    bench.leave(b)
    assert bench.answers[waiting]["error_code"] == Code.NONE


def test_a_pending_member_leaves_without_a_rebalance() -> None:
    bench = Bench()
    a, _ = bench.stable(2)
    assigned_id = bench.joined(version=4)["member_id"]
    assert bench.leave(assigned_id)["members"][0]["error_code"] == Code.NONE
    assert bench.state == "Stable"
    assert bench.joined(assigned_id, version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert set(bench.snapshot["members"]) > {a}


def test_a_rebalance_no_longer_waits_for_a_pending_member_that_left() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    assigned_id = bench.joined(version=4)["member_id"]
    waiting = bench.join(a)
    assert waiting not in bench.answers
    bench.leave(assigned_id)
    assert bench.answers[waiting]["error_code"] == Code.NONE
