"""Groups in which krust, not the leader, assigns."""

from __future__ import annotations

from typing import Any

from krust.coordinator.events import AssignCall
from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.bench import Bench


def called(size: int = 2) -> tuple[Bench, list[str], AssignCall]:
    """A group whose members have joined, and the call that was made."""
    bench = Bench(server_assignor=lambda name: name == "g", initial_rebalance_delay_ms=100)
    joins = [bench.join() for _ in range(size)]
    bench.wait(1000)
    (call,) = [each for outcome in bench.outcomes for each in outcome.calls]
    return bench, [bench.answers[each]["member_id"] for each in joins], call


def say(bench: Bench, given: dict[str, bytes] | None, generation: int = 1, **more: Any) -> None:
    bench.notify("Assigned", call=bench.call(generation), assignments=given, **more)


def test_a_call_of_an_assignor_has_members_topics_and_owned_partitions() -> None:
    bench, (a, b), call = called()
    assert call == AssignCall("g", 1, "range", [(a, None, b"m", b""), (b, None, b"m", b"")])
    say(bench, {a: b"A", b: b"B"})
    for each in (a, b):
        bench.join(each)
    again = bench.outcomes[-1].calls[0]
    assert [had for *_, had in again.members] == [b"A", b"B"]
    assert again.generation == 2


def test_the_leaders_sync_waits_and_its_assignment_is_ignored() -> None:
    bench, (a, b), _ = called()
    leader = bench.sync(a, 1, {a: b"mine", b: b""})
    assert leader not in bench.answers
    say(bench, {a: b"A", b: b"B"})
    assert bench.answers[leader]["assignment"] == b"A"
    assert bench.synced(b, 1)["assignment"] == b"B"
    assert bench.state == "Stable"


def test_an_answer_before_the_syncs_makes_the_group_stable() -> None:
    bench, (a, b), _ = called()
    say(bench, {b: b"B"})
    value: Message = bench.log[-1][1]  # type: ignore[assignment]
    assert [each["assignment"] for each in value["members"]] == [b"", b"B"]
    assert bench.synced(a, 1, {a: b"mine"})["assignment"] == b""


def test_the_leader_assigns_when_the_assignor_fails() -> None:
    bench, (a, _), _ = called()
    say(bench, None, line="Traceback: planted")
    assert bench.state == "CompletingRebalance"
    assert bench.synced(a, 1, {a: b"mine"})["assignment"] == b"mine"
    assert bench.coordinator.history("g")[-1].assignor_error == "Traceback: planted"
    bench, (a, _), _ = called()
    leader = bench.sync(a, 1, {a: b"mine"})
    say(bench, None)
    assert bench.answers[leader]["assignment"] == b"mine"


def test_an_assignor_that_never_answers_delays_until_the_sync_deadline() -> None:
    bench, (a, b), _ = called()
    waiting = [bench.sync(each, 1, {each: b"x"}) for each in (a, b)]
    bench.wait(58_000)
    assert waiting[0] not in bench.answers
    bench.wait(2_000)
    assert [bench.answers[each]["error_code"] for each in waiting] == [Code.NONE] * 2
    assert bench.answers[waiting[0]]["assignment"] == b"x"
    assert bench.outcomes[-1].wake_at_ms is None


def test_a_late_answer_of_an_assignor_is_ignored() -> None:
    bench, (a, b), _ = called()
    bench.leave(b)
    say(bench, {a: b"late"})
    assert bench.state == "PreparingRebalance"
    bench.join(a)
    say(bench, {a: b"late"})
    assert bench.state == "CompletingRebalance"
    say(bench, {a: b"A"}, bench.generation)
    say(bench, {a: b"twice"}, bench.generation)
    assert bench.synced(a, bench.generation)["assignment"] == b"A"


def test_an_answer_of_before_the_group_was_read_again_is_not_heard() -> None:
    bench, _, old = called()
    bench.restart()
    joins = [bench.join() for _ in range(2)]
    bench.wait(1000)
    a, b = (bench.answers[each]["member_id"] for each in joins)
    assert bench.generation == old.generation
    bench.notify("Assigned", call=old, assignments={a: b"old"})
    assert bench.state == "CompletingRebalance"
    say(bench, {a: b"A", b: b"B"})
    assert bench.synced(b, 1)["assignment"] == b"B"


def test_other_groups_and_protocol_types_are_assigned_by_their_leaders() -> None:
    bench = Bench(server_assignor=lambda name: name == "g")
    bench.joined(group_id="h")
    bench.joined(protocol_type="connect")
    assert not [each for outcome in bench.outcomes for each in outcome.calls]
    bench.notify("Assigned", group_id="none", call=None, assignments={})
