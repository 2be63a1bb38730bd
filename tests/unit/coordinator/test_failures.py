"""A failed append or a bug affects only its group."""

from __future__ import annotations

from typing import Any

import pytest

from krust.coordinator import replies
from krust.coordinator.classic_group import ClassicGroup
from krust.errors import Code
from tests.unit.coordinator.bench import Bench

MESSAGES: dict[str, dict[str, Any]] = {
    "JoinGroup": {
        "session_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    "SyncGroup": {"member_id": "m", "generation_id": 1, "assignments": []},
    "LeaveGroup": {"members": [{"member_id": "m", "group_instance_id": None}]},
    "DescribeGroups": {"groups": ["g", "h"]},
}


def broken(*_: object) -> None:
    raise RuntimeError("planted")


@pytest.mark.parametrize("api", MESSAGES)
def test_an_exception_answers_the_request_and_costs_the_group(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.stable(1)
    other = bench.joined(group_id="h")["member_id"]
    method = {"JoinGroup": "join", "SyncGroup": "sync", "LeaveGroup": "leave"}
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, method.get(api, "describe"), broken)
        event = bench.event(api, 3, **MESSAGES[api])
        outcome = bench.batch(event)
    assert any("RuntimeError: planted" in line for line in outcome.lines)
    assert "g" in outcome.reload
    answer = bench.answers[event.ticket]
    if api == "DescribeGroups":
        assert answer["groups"][0]["error_code"] == Code.UNKNOWN_SERVER_ERROR
    else:
        assert answer["error_code"] == Code.UNKNOWN_SERVER_ERROR
        synced = bench.synced(other, 1, {}, group_id="h")
        assert synced["error_code"] == Code.NONE, "another group"
    assert bench.joined()["error_code"] == Code.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    "api", ["JoinGroup", "LeaveGroup", "DescribeGroups", "ListGroups", "DeleteGroups"]
)
def test_a_malformed_request_gets_a_response_of_its_api(api: str) -> None:
    bench = Bench(groups_with_offsets=broken, has_offsets=broken)
    known: dict[str, Any] = {"groups": ["x"], "groups_names": ["x"]}
    event = bench.event(api, 3, **(known if api in ("DescribeGroups", "DeleteGroups") else {}))
    bench.batch(event)
    assert "UNKNOWN_SERVER_ERROR" in repr(bench.answers[event.ticket])


def test_a_failing_step_leaves_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    value = bench.log[-1]
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "_end_join", lambda *_: broken())
        last = bench.join(b)
    assert bench.answers[last]["error_code"] == Code.UNKNOWN_SERVER_ERROR
    assert bench.answers[waiting]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.log[-1] is value
    bench.notify("GroupsLoaded", partition=0, groups=[{"group_id": "g", "value": value[1]}])
    assert bench.state == "Stable"
    assert bench.synced(b, bench.generation)["assignment"] == b.encode()


def test_answers_given_before_the_failure_are_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    real = ClassicGroup._end_join

    def second_fails(self: ClassicGroup, turn: Any, member: Any, reply: Any) -> None:
        real(self, turn, member, reply)
        if member.id == b:
            broken()

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "_end_join", second_fails)
        last = bench.join(b)
    assert bench.answers[waiting]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.answers[last]["error_code"] == Code.UNKNOWN_SERVER_ERROR


def test_a_failing_deadline_affects_only_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    a, _ = bench.stable(2)
    waiting = bench.join(a)
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "on_time", broken)
        bench.wait(60_000)
    assert bench.answers[waiting]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    reloads = [each.reload for each in bench.outcomes if each.reload]
    assert reloads == [["g"]]


def test_a_failed_append_unloads_the_group_and_answers_waiting_members() -> None:
    bench = Bench()
    members = bench.stable(3)
    for each in members:
        bench.join(each)
    waiting_sync = bench.sync(members[1], bench.generation)
    leader = bench.sync_event(members[0], bench.generation, {members[1]: b"x"})
    outcome = bench.coordinator.handle_batch([leader], bench.now_ms)
    refused = bench.take(bench.coordinator.on_append_failed(["g"], bench.now_ms, outcome.replies))
    for ticket in (waiting_sync, leader.ticket):
        assert bench.answers[ticket]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert not refused.records
    assert bench.joined()["error_code"] == Code.COORDINATOR_LOAD_IN_PROGRESS
    bench.notify("GroupsLoaded", partition=0, groups=[{"group_id": "g", "value": bench.log[-1][1]}])
    assert bench.state == "Stable"


def test_a_failed_append_withdraws_the_answers_of_its_groups_alone() -> None:
    bench = Bench()
    g, h = bench.join_event(), bench.join_event(group_id="h")
    outcome = bench.coordinator.handle_batch([g, h], bench.now_ms)
    refused = bench.coordinator.on_append_failed(["g"], bench.now_ms, outcome.replies)
    assert [ticket for ticket, _, _ in refused.replies] == [g.ticket]
    assert refused.replies[0][1]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert refused.replies[0][1]["member_id"] == "c-id1"


SEVERAL = {
    "DeleteGroups": "groups_names",
    "DescribeGroups": "groups",
    "ConsumerGroupDescribe": "group_ids",
}


@pytest.mark.parametrize("failed", ["g", "h", "i"])
@pytest.mark.parametrize("api", SEVERAL)
def test_a_failed_append_refuses_only_its_group_in_a_response_on_several(
    api: str, failed: str
) -> None:
    names = ["g", "h", "i"]
    bench = Bench(has_offsets=names.__contains__)
    message: dict[str, Any] = {SEVERAL[api]: names}
    event = bench.event(api, **message)
    outcome = bench.coordinator.handle_batch([event], bench.now_ms)
    [(_, before, _)] = outcome.replies
    [(ticket, reply, waits_for)] = bench.coordinator.on_append_failed(
        [failed], bench.now_ms, outcome.replies
    ).replies
    assert ticket == event.ticket
    assert waits_for == tuple(each for each in names if each != failed), "of the same GroupOutcome"
    key = "results" if api == "DeleteGroups" else "groups"
    for old, new in zip(before[key], reply[key], strict=True):
        if new["group_id"] == failed:
            assert new["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
            assert new.keys() == old.keys()
        else:
            assert new == old


def test_a_withdrawn_deletion_is_refused_in_a_response_on_several_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    for group_id in ("g", "h"):
        bench.leave(bench.joined(group_id=group_id)["member_id"], group_id=group_id)
    delete = bench.event("DeleteGroups", 2, groups_names=["g", "h"])
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "publish", broken)
        outcome = bench.batch(delete, bench.join_event())
    results = bench.answers[delete.ticket]["results"]
    assert [each["error_code"] for each in results] == [Code.COORDINATOR_NOT_AVAILABLE, Code.NONE]
    assert {group_id for group_id, _ in outcome.records} == {"h"}
    assert (delete.ticket, ("h",)) in [(ticket, groups) for ticket, _, groups in outcome.replies]


def test_a_group_that_is_not_replayed_is_requested_again() -> None:
    bench = Bench()
    bench.stable(1)
    bench.take(bench.coordinator.on_append_failed(["g"], bench.now_ms))
    bench.wait(25_000)
    assert [each.reload for each in bench.outcomes if each.reload] == [["g"], ["g"]]
    bench.notify("GroupsLoaded", partition=0, groups=[{"group_id": "g", "value": None}])
    assert bench.snapshots["g"] is None
    assert bench.outcomes[-1].wake_at_ms is None
    assert bench.joined()["generation_id"] == 1


def test_a_group_in_replay_answers_every_request_with_loading() -> None:
    bench = Bench()
    members = bench.stable(1)
    bench.take(bench.coordinator.on_append_failed(["g"], bench.now_ms))
    loading = Code.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.synced(members[0], 1)["error_code"] == loading
    assert bench.leave(*members)["error_code"] == loading
    described = bench.send("DescribeGroups", 5, groups=["g"])
    assert described is not None
    assert described["groups"][0]["error_code"] == loading
    results = bench.send("DeleteGroups", 2, groups_names=["g"])
    assert results is not None
    assert results["results"][0]["error_code"] == loading
    before = len(bench.outcomes[-1].snapshots)
    bench.notify("SessionExpired", members=members)
    assert len(bench.outcomes[-1].snapshots) == before == 0


def test_an_unknown_event_is_logged() -> None:
    bench = Bench()
    outcome = bench.notify("SomethingElse")
    assert not outcome.replies
    assert "SomethingElse" in outcome.lines[0]


def test_a_group_snapshot_that_cannot_be_published_affects_only_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    a, b = bench.stable(2)
    waiting = bench.join(a)
    real = ClassicGroup.publish

    def fails(self: ClassicGroup, turn: Any) -> None:
        if self.id == "g":
            broken()
        real(self, turn)

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "publish", fails)
        events = [bench.join_event(b), bench.join_event(group_id="h")]
        outcome = bench.batch(*events)
    assert {group_id for group_id, _ in outcome.records + outcome.snapshots} <= {"h"}
    assert outcome.reload == ["g"]
    for ticket in (waiting, events[0].ticket):
        assert bench.answers[ticket]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert "RuntimeError: planted" in outcome.lines[0]
    assert bench.joined(group_id="i")["error_code"] == Code.NONE


def test_a_group_that_cannot_be_replayed_starts_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.stable(1)
    value = bench.log[-1][1]
    bench.take(bench.coordinator.on_append_failed(["g"], bench.now_ms))
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "replayed", broken)
        outcome = bench.notify(
            "GroupsLoaded", partition=0, groups=[{"group_id": "g", "value": value}]
        )
    assert "RuntimeError: planted" in outcome.lines[0]
    assert outcome.snapshots == [("g", None)], "the core waits for one"
    assert bench.joined()["error_code"] == Code.NONE


def test_a_failure_outside_any_group_replays_all_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    a, _ = bench.stable(2)
    bench.joined(group_id="h")
    waiting, event = bench.join(a), bench.join_event()
    monkeypatch.setattr(type(bench.coordinator), "_on_time", broken)
    with pytest.raises(RuntimeError):
        bench.coordinator.handle_batch([event], bench.now_ms)
    monkeypatch.undo()
    outcome = bench.take(bench.coordinator.on_batch_failed([event], bench.now_ms))
    assert sorted(outcome.reload) == ["g", "h"]
    assert outcome.records == outcome.snapshots == []
    assert bench.answers[waiting]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.answers[event.ticket]["error_code"] != Code.NONE
    for group_id in ("g", "h"):
        loading = bench.joined(group_id=group_id)["error_code"]
        assert loading == Code.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("api", ["LeaveGroup", "ListGroups", "SyncGroup", "JoinGroup"])
def test_a_withdrawn_answer_keeps_the_shape_of_its_api(api: str) -> None:
    bench = Bench()
    bench.stable(1)
    known: dict[str, Any] = {"JoinGroup": {**MESSAGES["JoinGroup"]}, "SyncGroup": {}}
    known["SyncGroup"] = {**MESSAGES["SyncGroup"], "group_instance_id": None}
    event = bench.event(api, 3, **known.get(api, {"members": []}))
    reply = replies.refusal(event, Code.NONE)
    _, withdrawn, _ = replies.refuse_failed((event.ticket, reply, ("g",)), {"g"})
    assert withdrawn.keys() == reply.keys()
    assert withdrawn["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
