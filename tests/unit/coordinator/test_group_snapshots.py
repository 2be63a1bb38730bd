"""When group snapshots are published to the core, and what a group of 500 members costs."""

from __future__ import annotations

import sys
from typing import Any

from krust.coordinator.events import GroupOutcome
from krust.errors import Code
from tests.unit.coordinator.bench import Bench


def rows(outcome: GroupOutcome) -> list[Any]:
    return [row for _, row in outcome.snapshots]


def test_a_batch_publishes_each_changed_group_once() -> None:
    bench = Bench()
    bench.stable(2)
    outcome = bench.batch(*(bench.join_event(group_id=name) for name in "gghhg"))
    assert sorted(group_id for group_id, _ in outcome.snapshots) == ["g", "h"]


def test_a_repeated_join_publishes_no_snapshot() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    bench.join(a)
    assert len(bench.outcomes[-1].snapshots) == 1
    bench.join(a)
    assert not bench.outcomes[-1].snapshots
    bench.join(a, protocols=[("range", b"2")])
    assert not bench.outcomes[-1].snapshots
    bench.join(b)
    assert bench.outcomes[-1].snapshots


def test_a_changed_connection_of_a_member_is_published() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    bench.join(a)
    event = bench.join_event(b)
    event.client["connection"] = 8
    bench.batch(event)
    assert bench.snapshot["members"][b]["connection"] == 8


def test_sessions_restart_when_a_wait_ends() -> None:
    bench = Bench()
    a, b, c = bench.stable(3)
    for each in (a, b):
        bench.join(each)
    bench.join(c)
    first, second = rows(bench.outcomes[-1])
    assert not first["members"][b]["timed"], "it has waited, and the core does not know that"
    assert all(each["timed"] for each in second["members"].values())
    for each in (b, c):
        bench.sync(each, bench.generation)
        assert not bench.outcomes[-1].snapshots
    bench.sync(a, bench.generation)
    first, second = rows(bench.outcomes[-1])
    assert not first["members"][b]["timed"]
    assert second["members"][b]["timed"]
    assert second["state"] == first["state"] == "Stable"


def test_pending_members_are_not_published() -> None:
    bench = Bench()
    bench.joined(version=4)
    assert not bench.outcomes[-1].snapshots


def test_states_have_the_time_of_their_beginning() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    assert bench.snapshot["since_ms"] == bench.now_ms
    bench.wait(1234)
    bench.joined(a)
    assert bench.snapshot["since_ms"] == bench.now_ms


def test_a_group_is_empty_since_a_time_of_the_wall_clock() -> None:
    bench = Bench()
    (a,) = bench.stable(1)
    members = [{"member_id": a, "group_instance_id": None}]
    event = bench.event("LeaveGroup", 3, members=members)
    day_ms = 24 * 3_600_000
    bench.take(bench.coordinator.handle_batch([event], bench.now_ms, bench.now_ms + day_ms))
    assert bench.snapshot["since_ms"] == bench.now_ms + day_ms
    _, record = bench.log[-1]
    assert isinstance(record, dict)
    assert record["current_state_timestamp"] == bench.now_ms + day_ms


def test_the_snapshot_of_500_members_takes_500_times_the_steps_of_one() -> None:
    """Work is counted in executed lines, so that no clock decides."""

    def lines(size: int) -> int:
        bench = Bench(initial_rebalance_delay_ms=3000)
        count = 0

        def tracer(*_: Any) -> Any:
            nonlocal count
            count += 1
            return tracer

        tickets = [bench.join() for _ in range(size)]
        bench.wait(60_000)
        members = [bench.answers[each]["member_id"] for each in tickets]
        bench.share(members)
        sys.settrace(tracer)
        joins = [bench.join(each, protocols=[("range", b"2")]) for each in members]
        for each in reversed(members):
            bench.sync(each, bench.generation, {})
        sys.settrace(None)
        assert all(bench.answers[each]["error_code"] == Code.NONE for each in joins)
        assert bench.state == "Stable"
        return count

    small, large = lines(50), lines(500)
    assert large < 11 * small
