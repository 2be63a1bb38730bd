"""`krust.simulate`, with which authors test their assignors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import krust
from krust.coordinator.assignors.assignor import AssignmentError, GroupAssignment, TopicDescriber
from krust.coordinator.assignors.even import Sticky
from krust.coordinator.assignors.simulation import ArgumentError, LateError
from krust.retention.policies import Time


class Both:
    name = "both"

    def assign(self, group: krust.GroupSpec, topics: TopicDescriber) -> GroupAssignment:
        return {member: [krust.TopicPartition("a", 0)] for member in group.members}


def test_names_for_authors_of_plug_ins_are_public() -> None:
    assert isinstance(Sticky(), krust.Assignor)
    assert isinstance(Time(), krust.RetentionPolicy)
    assert krust.GroupSpec({}, "g").members == {}
    for name in ("Assignor", "GroupSpec", "RetentionPolicy", "simulate"):
        assert name in krust.__all__


def test_a_simulation_reports_what_moved_at_each_step() -> None:
    start, left, back = krust.simulate(Sticky(), members=5, topics={"a": 20}, steps=["-1", "+1"])
    assert (start.moved, start.least, start.most) == (0, 4, 4)
    assert (left.step, left.members, left.orphaned, left.moved) == ("-1", 4, 4, 0)
    assert back.moved == 4
    assert sum(len(of["a"]) for of in back.assignment.values()) == 20


def test_an_answer_that_breaks_a_rule_is_an_error() -> None:
    with pytest.raises(AssignmentError):
        krust.simulate(Both())


@pytest.mark.parametrize(
    "how", [{"steps": ["x"]}, {"steps": ["-3"]}, {"members": 0}, {"topics": {"a": 0}}]
)
def test_an_invalid_simulation_is_an_argument_error(how: Mapping[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        krust.simulate(Sticky(), **how)


def test_a_slow_assignor_is_an_error_in_a_simulation() -> None:
    import threading

    never = threading.Event()

    class Hangs(Both):
        def assign(self, group: krust.GroupSpec, topics: TopicDescriber) -> GroupAssignment:
            never.wait()
            return {}

    with pytest.raises(LateError, match="both gave no answer within 20 ms"):
        krust.simulate(Hangs(), deadline_ms=20)
    never.set()
