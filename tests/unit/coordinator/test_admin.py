"""DescribeGroups, ListGroups, DeleteGroups, and groups whose offsets expire."""

from __future__ import annotations

import pytest

from krust.errors import Code
from krust.messages import Message
from tests.unit.coordinator.bench import Bench


def describe(bench: Bench, *groups: str, version: int = 5, **more: object) -> list[Message]:
    answer = bench.send("DescribeGroups", version, groups=list(groups), **more)
    assert answer is not None
    described: list[Message] = answer["groups"]
    return described


def listed(bench: Bench, version: int = 5, **filters: list[str]) -> dict[str, str]:
    answer = bench.send("ListGroups", version, **filters)
    assert answer is not None
    return {each["group_id"]: each["group_state"] for each in answer["groups"]}


def deleted(bench: Bench, *groups: str) -> list[int]:
    answer = bench.send("DeleteGroups", 2, groups_names=list(groups))
    assert answer is not None
    assert [each["group_id"] for each in answer["results"]] == list(groups)
    return [each["error_code"] for each in answer["results"]]


def test_a_stable_group_shows_metadata_and_assignments() -> None:
    bench = Bench()
    a, b = bench.stable(2)
    (group,) = describe(bench, "g", include_authorized_operations=False)
    assert group["group_state"] == "Stable"
    assert (group["protocol_type"], group["protocol_data"]) == ("consumer", "range")
    assert group["authorized_operations"] == -(2**31)
    assert group["members"][1] == {
        "member_id": b,
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/10.0.0.1",
        "member_metadata": b"m",
        "member_assignment": b.encode(),
    }
    bench.join(a)
    (group,) = describe(bench, "g", include_authorized_operations=True)
    assert (group["group_state"], group["protocol_data"]) == ("PreparingRebalance", "")
    assert {each["member_assignment"] for each in group["members"]} == {b""}
    assert group["authorized_operations"] > 0


def test_an_unknown_group_is_dead_and_from_version_6_an_error() -> None:
    bench = Bench()
    (group,) = describe(bench, "x")
    assert (group["error_code"], group["group_state"]) == (Code.NONE, "Dead")
    (group,) = describe(bench, "x", version=6)
    assert (group["error_code"], group["group_state"]) == (Code.GROUP_ID_NOT_FOUND, "Dead")
    assert group["error_message"] == "Group x not found."


def test_a_group_with_offsets_only_is_empty() -> None:
    bench = Bench(has_offsets=lambda name: name == "o", groups_with_offsets=lambda: ["o"])
    (group,) = describe(bench, "o", version=6)
    assert (group["error_code"], group["group_state"]) == (Code.NONE, "Empty")
    assert listed(bench) == {"o": "Empty"}
    assert deleted(bench, "o", "p") == [Code.NONE, Code.GROUP_ID_NOT_FOUND]
    assert bench.log == [("o", "drop_offsets"), ("o", None)]


def test_groups_are_listed_by_state_and_type() -> None:
    bench = Bench()
    bench.stable(1)
    empty = bench.joined(group_id="e")["member_id"]
    bench.leave(empty, group_id="e")
    assert listed(bench) == {"g": "Stable", "e": "Empty"}
    assert listed(bench, states_filter=["stable"]) == {"g": "Stable"}
    assert listed(bench, states_filter=["Empty", "Dead"]) == {"e": "Empty"}
    assert listed(bench, types_filter=["Classic"], states_filter=[]) == listed(bench)
    assert listed(bench, types_filter=["consumer"]) == {}
    answer = bench.send("ListGroups", 0)
    assert answer is not None
    assert {each["protocol_type"] for each in answer["groups"]} == {"consumer"}
    assert {each["group_type"] for each in answer["groups"]} == {"classic"}


def test_only_groups_without_members_are_deleted() -> None:
    bench = Bench()
    members = bench.stable(2)
    not_found = Code.GROUP_ID_NOT_FOUND
    assert deleted(bench, "g", "", "x") == [Code.NON_EMPTY_GROUP, not_found, not_found]
    bench.leave(*members)
    records = len(bench.log)
    assert deleted(bench, "g") == [Code.NONE]
    assert bench.log[records:] == [("g", "drop_offsets"), ("g", None)]
    assert bench.snapshots["g"] is None
    assert listed(bench) == {}
    assert deleted(bench, "g") == [Code.GROUP_ID_NOT_FOUND]


def test_the_response_on_several_groups_waits_for_every_append() -> None:
    bench = Bench()
    bench.leave(*bench.stable(1))
    deleted(bench, "x", "g", "y")
    describe(bench, "x", "g", "y")
    bench.send("ConsumerGroupDescribe", group_ids=["x", "g", "y"])
    assert [each.replies[0][2] for each in bench.outcomes[-3:]] == [("x", "g", "y")] * 3


def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    bench = Bench()
    members = bench.stable(1)
    bench.notify("OffsetsExpired")
    assert bench.state == "Stable"
    bench.leave(*members)
    bench.notify("OffsetsExpired")
    assert bench.log[-1] == ("g", None)
    assert bench.snapshots["g"] is None
    bench.notify("OffsetsExpired", group_id="x")
    assert bench.log[-1] == ("g", None)


@pytest.mark.parametrize("version", range(7))
def test_a_pending_member_is_not_described(version: int) -> None:
    bench = Bench()
    assigned_id = bench.joined(version=4)["member_id"]
    (group,) = describe(bench, "g", version=version)
    assert (group["group_state"], group["members"]) == ("Empty", [])
    assert deleted(bench, "g") == [Code.NONE]
    assert bench.joined(assigned_id, version=4)["error_code"] == Code.UNKNOWN_MEMBER_ID
