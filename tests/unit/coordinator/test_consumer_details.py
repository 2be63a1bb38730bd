"""Static members, regular expressions, assignors, admin APIs and failures of consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from krust.coordinator.consumer_protocol import TopicPartition
from krust.coordinator.events import AssignCall
from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.consuming import ConsumerBench, shown

CUSTOM = {"uniform": "uniform", "mine": "my.mod:Mine"}


def static(bench: ConsumerBench, member_id: str, epoch: int, **more: Any) -> Message:
    return bench.heartbeat(member_id, epoch, instance_id="i", **more)


def test_a_static_member_that_left_for_a_while_gets_its_assignment_back() -> None:
    bench = ConsumerBench(topics={"t": 4})
    static(bench, "a", 0)
    bench.heartbeat("b", 0)
    held = bench.settle("a", "b")
    epoch = bench.epoch
    left = static(bench, "a", -2)
    assert (left["error_code"], left["member_epoch"]) == (0, -2)
    assert bench.state == "Reconciling"
    assert shown(bench.heartbeat("b", epoch)) == "-"
    back = static(bench, "a2", 0)
    assert (back["member_epoch"], shown(back)) == (epoch, held["a"])
    assert (bench.epoch, bench.state) == (epoch, "Stable")
    assert set(bench.snapshot["members"]) == {"a2", "b"}


def test_partitions_of_an_absent_static_member_are_kept_until_its_session_ends() -> None:
    bench = ConsumerBench()
    static(bench, "a", 0)
    static(bench, "a", -2)
    bench.restart()
    assert (bench.row("a")["epoch"], bench.row("a")["has_current_assignment"]) == (-2, False)
    joined = bench.heartbeat("b", 0)
    assert "t0" not in shown(joined) or "t1" not in shown(joined)
    bench.notify("SessionExpired", members=["a"])
    assert shown(bench.heartbeat("b", joined["member_epoch"])) == "t0 t1 t2"


def test_a_used_instance_id_is_not_released() -> None:
    bench = ConsumerBench()
    static(bench, "a", 0)
    answer = static(bench, "b", 0)
    assert answer["error_code"] == Code.UNRELEASED_INSTANCE_ID
    assert set(bench.snapshot["members"]) == {"a"}
    assert static(bench, "a", 0)["error_code"] == Code.NONE, "the same one, once more"


def test_another_member_id_under_the_instance_id_is_fenced() -> None:
    bench = ConsumerBench()
    static(bench, "a", 0)
    for epoch in (1, -1, -2):
        assert static(bench, "b", epoch)["error_code"] == Code.FENCED_INSTANCE_ID
    static(bench, "a", -2)
    static(bench, "b", 0)
    assert static(bench, "a", 1)["error_code"] == Code.FENCED_INSTANCE_ID
    assert bench.code("a", 1) == Code.UNKNOWN_MEMBER_ID


def test_a_member_keeps_its_first_instance_id() -> None:
    bench = ConsumerBench()
    static(bench, "a", 0)
    assert bench.code("a", 0, instance_id="j") == Code.FENCED_INSTANCE_ID
    bench.heartbeat("b", 0)
    assert static(bench, "b", 0)["error_code"] == Code.FENCED_INSTANCE_ID
    static(bench, "a", -1)
    assert static(bench, "c", 0)["error_code"] == Code.NONE


def test_a_static_member_that_left_for_good_is_removed() -> None:
    bench = ConsumerBench()
    static(bench, "a", 0)
    assert static(bench, "a", -1)["member_epoch"] == -1
    assert bench.state == "Empty"
    assert static(bench, "b", 0)["error_code"] == Code.NONE


def test_a_static_member_returns_to_a_full_group() -> None:
    bench = ConsumerBench(consumer_max_size=1)
    static(bench, "a", 0)
    static(bench, "a", -2)
    assert static(bench, "b", 0)["error_code"] == Code.NONE


def test_a_regular_expression_matches_present_and_future_topics() -> None:
    bench = ConsumerBench(topics={"t": 1, "u": 1})
    answer = bench.heartbeat("a", 0, subscribed_topic_regex="t.*")
    assert shown(answer) == "t0"
    assert bench.snapshot["subscribed"] == ["t"]
    bench.change(tt=2)
    answer = bench.heartbeat("a", 1)
    assert (answer["member_epoch"], shown(answer)) == (2, "t0 t0 t1")
    bench.change(uu=1)
    assert bench.epoch == 2
    (group,) = bench.described()
    assert group["members"][0]["subscribed_topic_regex"] == "t.*"


def test_names_and_a_regular_expression_are_combined_and_an_empty_one_clears_it() -> None:
    bench = ConsumerBench(topics={"t": 1, "u": 1})
    answer = bench.heartbeat("a", 0, subscribed_topic_names=["u"], subscribed_topic_regex="t.*")
    assert shown(answer) == "t0 u0"
    answer = bench.heartbeat("a", 1, subscribed_topic_regex="")
    assert shown(answer) == "u0"
    assert [value for kind, _, value in bench.written() if kind == 16][-1] is None


def test_an_invalid_regular_expression_changes_nothing() -> None:
    bench = ConsumerBench()
    answer = bench.heartbeat("a", 0, subscribed_topic_regex="[")
    assert answer["error_code"] == Code.INVALID_REGULAR_EXPRESSION
    assert "unclosed" in answer["error_message"]
    assert not bench.log
    bench.heartbeat("a", 0)
    assert bench.code("a", 1, subscribed_topic_regex="[") == Code.INVALID_REGULAR_EXPRESSION
    assert bench.epoch == 1


def test_a_resolved_regular_expression_is_logged_while_a_member_uses_it() -> None:
    bench = ConsumerBench()
    for member in ("a", "b"):
        bench.heartbeat(member, 0, subscribed_topic_regex="t.*")
    (record,) = [each for each in bench.written() if each[0] == 16]
    assert record[1] == {"regular_expression": "t.*"}
    assert (record[2] or {})["topics"] == ["t"]
    bench.restart()
    assert bench.epoch == 2
    bench.heartbeat("a", -1)
    assert [value for kind, _, value in bench.written() if kind == 16][-1] is not None
    bench.notify("SessionExpired", members=["b"])
    assert [value for kind, _, value in bench.written() if kind == 16][-1] is None


def test_a_regular_expression_that_only_kafka_parses_keeps_its_logged_topics() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0, subscribed_topic_regex="t.*")

    def refuse(_: str) -> list[str]:
        raise ValueError("not here")

    object.__setattr__(bench.settings, "match_topics", refuse)
    bench.restart()
    bench.change(tt=1)
    assert not [line for outcome in bench.outcomes for line in outcome.lines]
    assert bench.snapshot["subscribed"] == ["t"]


def test_an_unused_resolved_regular_expression_is_removed_at_the_start() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    bench.log.append(("g", [(16, {"regular_expression": "x"}, {"topics": ["t"]})]))
    bench.restart()
    assert (16, {"regular_expression": "x"}, None) in bench.written()


@pytest.mark.parametrize(
    ("votes", "chosen"),
    [
        ((None, None, None), "uniform"),
        ((None, None, "range"), "range"),
        (("uniform", "range", None), "uniform"),
        (("uniform", "range", "range"), "range"),
    ],
)
def test_the_assignor_with_most_votes_is_used(votes: tuple[str | None, ...], chosen: str) -> None:
    bench = ConsumerBench()
    for n, select_protocol in enumerate(votes):
        bench.heartbeat(f"m{n}", 0, server_assignor=select_protocol)
    (group,) = bench.described()
    assert group["assignor_name"] == chosen


def test_range_assigns_neighbours_and_uniform_keeps_owned_partitions() -> None:
    for name, held in (("range", "t0 t1"), ("uniform", "t0 t1")):
        bench = ConsumerBench(topics={"t": 4})
        bench.heartbeat("z", 0, server_assignor=name)
        bench.heartbeat("a", 0, server_assignor=name)
        found = bench.settle("z", "a")
        assert found["z" if name == "uniform" else "a"] == held


def called(bench: ConsumerBench) -> AssignCall:
    return [call for outcome in bench.outcomes for call in outcome.calls][-1]


def say(bench: ConsumerBench, given: dict[str, str] | None, epoch: int, **more: Any) -> None:
    assignments = {
        member: [TopicPartition(one[0], int(one[1:])) for one in text.split()]
        for member, text in (given or {}).items()
    }
    bench.notify("Assigned", call=bench.call(epoch), assignments=given and assignments, **more)


def test_a_custom_assignor_is_called_and_joining_members_wait_for_it() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    event = bench.heartbeat_event("a", 0, server_assignor="mine")
    bench.batch(event)
    assert event.ticket not in bench.answers
    assert bench.state == "Assigning"
    call = called(bench)
    assert (call.kind, call.assignor, call.generation) == ("consumer", "my.mod:Mine", 1)
    assert call.topics == ["t"]
    assert call.group is not None
    assert call.group.members["a"].topics == {"t"}
    say(bench, {"a": "t1 t9 u0"}, 1)
    answer = bench.answers[event.ticket]
    assert (answer["member_epoch"], shown(answer)) == (1, "t1")
    assert bench.state == "Stable"


def test_members_continue_while_an_assignor_works_and_changes_call_it_again() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    bench.batch(bench.heartbeat_event("a", 0, server_assignor="mine"))
    say(bench, {"a": "t0 t1 t2"}, 1)
    joins = [bench.heartbeat_event(each, 0) for each in ("b", "c")]
    bench.batch(joins[0])
    assert shown(bench.heartbeat("a", 1)) == "-"
    assert bench.row("a")["has_current_assignment"] is True
    bench.batch(joins[1])
    assert called(bench).generation == 2
    say(bench, {"a": "t0", "b": "t1"}, 2)
    assert [bench.answers[each.ticket]["member_epoch"] for each in joins] == [2, 2]
    assert called(bench).generation == 3
    group = called(bench).group
    assert group is not None
    assert group.members["b"].owned == (TopicPartition("t", 1),)
    say(bench, {"a": "t0"}, 2)
    assert bench.state == "Assigning", "an answer counts once"
    say(bench, {"a": "t0", "b": "t1", "c": "t2"}, 3)
    assert bench.settle("a", "b", "c") == {"a": "t0", "b": "t1", "c": "t2"}


def test_the_default_assigns_when_a_custom_assignor_fails_or_never_answers() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    event = bench.heartbeat_event("a", 0, server_assignor="mine")
    bench.batch(event)
    say(bench, None, 1, line="Traceback: planted")
    assert shown(bench.answers[event.ticket]) == "t0 t1 t2"
    assert bench.coordinator.history("g")[-1].assignor_error == "Traceback: planted"
    event = bench.heartbeat_event("b", 0)
    bench.batch(event)
    bench.wait(14_999)
    assert event.ticket not in bench.answers
    bench.wait(1)
    assert bench.answers[event.ticket]["member_epoch"] == 2
    assert "in time" in (bench.coordinator.history("g")[-1].assignor_error or "")


def test_a_member_that_rejoins_under_another_id_is_in_the_next_assignment() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    bench.batch(bench.heartbeat_event("a", 0, server_assignor="mine", instance_id="i"))
    bench.heartbeat("a", -2, instance_id="i")
    bench.batch(bench.heartbeat_event("b", 0, instance_id="i"))
    say(bench, {"a": "t0 t1 t2"}, 1)
    say(bench, {"b": "t0 t1 t2"}, called(bench).generation)
    assert shown(bench.heartbeat("b", bench.row("b")["epoch"])) == "t0 t1 t2"


def test_a_member_that_leaves_while_it_waits_for_an_assignor_is_answered() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    event = bench.heartbeat_event("a", 0, server_assignor="mine")
    bench.batch(event)
    again = bench.heartbeat_event("a", 0)
    bench.batch(again)
    assert bench.answers[event.ticket]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    bench.heartbeat("a", -1)
    assert bench.answers[again.ticket]["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
    say(bench, {"a": "t0"}, 1)
    assert bench.state == "Empty"


def test_a_member_that_waits_for_an_assignor_expires_only_on_the_second_report() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    event = bench.heartbeat_event("a", 0, server_assignor="mine")
    bench.batch(event)
    bench.notify("SessionExpired", members=["a"])
    assert bench.snapshot["members"]["a"]["timed"] is False
    bench.notify("SessionExpired", members=["a"])
    assert bench.answers[event.ticket]["error_code"] == Code.UNKNOWN_MEMBER_ID
    assert bench.state == "Empty"


def test_a_group_describes_current_and_target_assignments() -> None:
    bench = ConsumerBench(topics={"t": 2})
    bench.heartbeat("a", 0, rack_id="r")
    bench.heartbeat("b", 0)
    (group,) = bench.described()
    state = (group["group_state"], group["group_epoch"], group["assignment_epoch"])
    assert state == ("Reconciling", 2, 2)
    a, b = group["members"]
    names = [
        [(topic["topic_name"], topic["partitions"]) for topic in each["topic_partitions"]]
        for each in (a["assignment"], a["target_assignment"], b["assignment"])
    ]
    assert names == [[("t", [0, 1])], [("t", [0])], []]
    bench.heartbeat("a", 1)
    (described_group,) = bench.described()
    assert described_group["members"][0]["assignment"] == a["assignment"], "it may still read t1"
    assert (a["rack_id"], a["member_epoch"], a["member_type"]) == ("r", 1, 1)
    assert group["authorized_operations"] == -(2**31)


def test_consumer_group_describe_finds_no_classic_groups() -> None:
    bench = ConsumerBench(has_offsets=lambda name: name == "o")
    bench.joined(group_id="h")
    found = bench.described("h", "x", "", "o")
    assert [each["error_code"] for each in found] == [69, 69, 24, 69]
    texts = [each["error_message"] for each in found[:2]]
    assert texts == ["Group h is not a consumer group.", "Group x not found."]


def test_describe_groups_reports_a_consumer_group_as_dead_or_not_found() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    answer = bench.send("DescribeGroups", 5, groups=["g"]) or {}
    (group,) = answer["groups"]
    assert (group["group_state"], group["error_code"]) == ("Dead", 0)
    answer = bench.send("DescribeGroups", 6, groups=["g"]) or {}
    (group,) = answer["groups"]
    assert (group["error_code"], group["error_message"]) == (69, "Group g is not a classic group.")


def test_groups_are_listed_with_their_type() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    bench.joined(group_id="h")
    for types, found in (([], ["g", "h"]), (["Consumer"], ["g"]), (["classic"], ["h"])):
        answer = bench.send("ListGroups", 5, states_filter=[], types_filter=types) or {}
        assert [each["group_id"] for each in answer["groups"]] == found
    answer = bench.send("ListGroups", 5, states_filter=["stable"], types_filter=["consumer"]) or {}
    (group,) = answer["groups"]
    assert (group["protocol_type"], group["group_type"]) == ("consumer", "consumer")


def live(bench: ConsumerBench) -> dict[tuple[int, str], Message]:
    left = {(kind, repr(key)): value for kind, key, value in bench.written()}
    return {key: value for key, value in left.items() if value is not None}


def test_only_an_empty_group_is_deleted_and_it_leaves_no_record() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0, subscribed_topic_regex="t.*")
    answer = bench.send("DeleteGroups", 2, groups_names=["g"]) or {}
    assert answer["results"][0]["error_code"] == Code.NON_EMPTY_GROUP
    bench.heartbeat("a", -1)
    answer = bench.send("DeleteGroups", 2, groups_names=["g"]) or {}
    assert answer["results"][0]["error_code"] == Code.NONE
    assert ("g", "drop_offsets") in bench.log
    assert not live(bench)
    assert bench.snapshots["g"] is None


def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    bench.notify("OffsetsExpired")
    assert bench.state == "Stable"
    bench.heartbeat("a", -1)
    bench.notify("OffsetsExpired")
    assert not live(bench)
    assert bench.snapshots["g"] is None


def test_a_failed_append_drops_the_group_until_it_is_read_again() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    event = bench.heartbeat_event("b", 0)
    outcome = bench.coordinator.handle(event, bench.now_ms)
    refused = bench.coordinator.on_append_failed(["g"], bench.now_ms, outcome.replies)
    ((ticket, reply, _),) = refused.replies
    assert (ticket, reply["error_code"]) == (event.ticket, Code.COORDINATOR_NOT_AVAILABLE)
    assert bench.code("a", 1) == Code.COORDINATOR_LOAD_IN_PROGRESS
    bench.restart()
    assert set(bench.snapshot["members"]) == {"a"}
    assert bench.code("a", 1) == Code.NONE


def test_an_assignment_computed_before_a_replay_is_ignored() -> None:
    bench = ConsumerBench(assignors=CUSTOM)
    bench.batch(bench.heartbeat_event("a", 0, server_assignor="mine"))
    say(bench, {"a": "t0 t1 t2"}, 1)
    lost = bench.coordinator.handle(bench.heartbeat_event("b", 0), bench.now_ms)
    (old,) = lost.calls
    bench.coordinator.on_append_failed(["g"], bench.now_ms, lost.replies)
    bench.restart()
    join = bench.heartbeat_event("c", 0)
    bench.batch(join)
    assert (called(bench).generation, old.generation) == (2, 2)
    bench.notify("Assigned", call=old, assignments={"a": [], "b": [TopicPartition("t", 0)]})
    assert bench.state == "Assigning"
    say(bench, {"a": "t0 t1", "c": "t2"}, 2)
    assert bench.settle("a", "c") == {"a": "t0 t1", "c": "t2"}


def test_a_bug_affects_only_its_group() -> None:
    def broken(name: str) -> None:
        raise RuntimeError(f"planted {name}")

    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    object.__setattr__(bench.settings, "topics", broken)
    assert bench.code("b", 0) == Code.COORDINATOR_NOT_AVAILABLE
    assert "planted t" in bench.outcomes[-1].lines[0]
    assert bench.outcomes[-1].reload == ["g"]


def test_the_history_records_the_reason_of_each_rebalance() -> None:
    bench = ConsumerBench()
    bench.heartbeat("a", 0)
    bench.heartbeat("b", 0)
    bench.settle("a", "b")
    bench.heartbeat("b", -1)
    bench.heartbeat("a", 2)
    first, second, third = bench.coordinator.history("g")
    assert first.reasons[0] == ("a", "member a joined")
    assert (first.generation, first.members, first.ended_ms) == (1, 1, bench.now_ms)
    assert (second.generation, second.members) == (2, 2)
    assert third.reasons == [("b", "b left")]
