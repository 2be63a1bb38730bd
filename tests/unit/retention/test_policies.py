"""The built-in retention policies, and the validation of custom ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.plugins import FindError
from krust.retention.policies import (
    BUILT_IN,
    POLICIES,
    KeepFreeDiskSpace,
    Size,
    Time,
    TimeAndSize,
)
from krust.retention.policy import Disk, ExpiryError, PartitionLog, Segment, validate

ROOM = Disk(free=10**12, total=10**12)
NOW = 1_000_000


def partition(
    *ages: int,
    number: int = 0,
    size: int = 100,
    high: int = 10**9,
    limits: tuple[int, int] = (-1, -1),
) -> PartitionLog:
    """Segments of ten records each, so old; the last one is active."""
    segments = tuple(Segment(at * 10, at * 10 + 10, size, NOW - age) for at, age in enumerate(ages))
    return PartitionLog("t", number, segments, high, *limits)


def test_the_time_policy_deletes_up_to_the_first_recent_segment() -> None:
    it = partition(500, 400, 90, 300, 0, limits=(100, -1))
    assert Time().expired(ROOM, [it], NOW) == {("t", 0): 2}
    forever = partition(500, 400, 0)
    assert Time().expired(ROOM, [forever], NOW) == {("t", 0): 0}


def test_the_size_policy_keeps_at_least_its_limit() -> None:
    it = partition(5, 4, 3, 2, 1, limits=(-1, 250))
    assert Size().expired(ROOM, [it], NOW) == {("t", 0): 2}
    assert Size().expired(ROOM, [partition(5, 4, 3)], NOW) == {("t", 0): 0}


def test_the_combined_policy_deletes_what_either_would() -> None:
    it = partition(500, 4, 3, 2, 1, limits=(100, 150))
    assert TimeAndSize().expired(ROOM, [it], NOW) == {("t", 0): 3}


def test_no_policy_deletes_the_active_segment_or_one_above_the_high_watermark() -> None:
    it = partition(500, 500, 500, 500, high=19, limits=(1, 0))
    for kind in BUILT_IN.values():
        assert kind().expired(Disk(0, 10**9), [it], NOW) == {("t", 0): 1}


def test_the_disk_space_policy_deletes_the_oldest_segments_of_any_partition() -> None:
    disk = Disk(free=50, total=3000)
    old, young = partition(900, 800, 700, 0), partition(850, 100, 0, number=1)
    assert KeepFreeDiskSpace().expired(disk, [old, young], NOW) == {("t", 0): 2, ("t", 1): 1}
    assert KeepFreeDiskSpace().expired(ROOM, [old, young], NOW) == {("t", 0): 0, ("t", 1): 0}


@given(
    st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 70),
    st.tuples(st.integers(-1, 800), st.integers(-1, 800)),
    st.integers(0, 3000),
)
def test_built_in_policies_keep_the_rules_for_any_segments(
    ages: list[list[int]], high: int, limits: tuple[int, int], free: int
) -> None:
    them = [partition(*each, number=n, high=high, limits=limits) for n, each in enumerate(ages)]
    for kind in BUILT_IN.values():
        answer = kind().expired(Disk(free, 10_000), them, NOW)
        validate(them, answer)
        least = TimeAndSize().expired(Disk(free, 10_000), them, NOW)
        if kind is KeepFreeDiskSpace:
            assert all(answer[key] >= count for key, count in least.items())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "not a mapping"),
        ({("u", 0): 1}, "no partition ('u', 0)"),
        ({"t": 1}, "no partition 't'"),
        ({("t", 0): -1}, "-1 is no number of segments"),
        ({("t", 0): True}, "True is no number of segments"),
        ({("t", 0): 4}, "the active one among them"),
        ({("t", 0): 3}, "above the high watermark 25"),
    ],
)
def test_an_answer_that_breaks_a_rule_is_reported(answer: Any, says: str) -> None:
    with pytest.raises(ExpiryError) as error:
        validate([partition(9, 9, 9, 9, high=25)], answer)
    assert says in str(error.value)


def test_policies_are_found_by_name_and_by_module() -> None:
    assert [one.name for one in POLICIES.known()][:4] == list(BUILT_IN)
    assert POLICIES.find("krust.retention.policies:Size").name == "size"
    for wrong in ("sizes", "nowhere.at:All", "krust.retention.policies:BUILT_IN", "os:"):
        with pytest.raises(FindError):
            POLICIES.find(wrong)
