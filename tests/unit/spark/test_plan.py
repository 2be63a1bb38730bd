"""Offsets, ranges, tasks and limits of Spark jobs: properties and edge cases."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.spark import plan
from krust.spark.errors import DataLossError, LossReporter, PlanError
from krust.spark.plan import EARLIEST, LATEST, EndOffsets, PartitionRange, ReadBound

A, B = ("a", 0), ("b", 1)
topics = st.text('abc.-_é"\\', min_size=1, max_size=4)
places = st.tuples(topics, st.integers(0, 99))
offsets = st.dictionaries(places, st.integers(-2, 2**63 - 1), max_size=8)
ranges = st.lists(
    st.builds(
        lambda topic, partition, start, size: PartitionRange(topic, partition, start, start + size),
        st.sampled_from("abc"),
        st.integers(0, 5),
        st.integers(0, 2**40),
        st.integers(-3, 2**40) | st.integers(0, 30),
    ),
    max_size=12,
    unique_by=lambda one: one.place,
)
FAIL, WARN = LossReporter(fail=True), LossReporter(fail=False)


@given(offsets)
def test_offsets_are_encoded_as_json_and_back(found: plan.Offsets) -> None:
    assert plan.parse_offsets(json.dumps(plan.to_json(found))) == found


@given(offsets)
def test_equal_offsets_have_equal_json(found: plan.Offsets) -> None:
    """Spark compares offsets as text."""
    turned = dict(reversed(found.items()))
    assert json.dumps(plan.to_json(found)) == json.dumps(plan.to_json(turned))


def test_an_empty_topic_is_passed_over() -> None:
    assert plan.from_json({"krust:pinned": {}, "a": {"0": 5}}) == {A: 5}


def test_offsets_may_be_text_as_the_official_source_allows() -> None:
    assert plan.parse_offsets('{"a": {"0": "7"}}') == {A: 7}


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "1", '{"a": 1}', '{"a": [0]}', '{"a": {"x": 1}}', '{"a": {"0": 1.5}}'),
        *('{"a": {"0": true}}', '{"a": {"-1": 3}}', '{"a": {"0": null}}'),
        '{"a":{"0":9223372036854775808}}',
    ],
)
def test_invalid_offsets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is expected|not JSON|from 0 up"):
        plan.parse_offsets(text)


def test_partitions_are_parsed_from_json() -> None:
    assert plan.parse_places('{"b": [1], "a": [0, "0"]}') == [A, B]
    for text in ('{"a": 0}', '{"a": [-1]}', "{", '{"a": {"0": 1}}'):
        with pytest.raises(ValueError, match=r"no list|from 0 up|not JSON"):
            plan.parse_places(text)


@given(ranges, st.none() | st.integers(1, 200), st.none() | st.integers(1, 2**41))
def test_tasks_cover_each_offset_once(
    whole: list[PartitionRange], least: int | None, most: int | None
) -> None:
    most = most if most is None else max(most, max((r.size for r in whole), default=1) // 50 + 1)
    parts = plan.split(whole, least, most)
    assert all(part.size > 0 for part in parts)
    assert most is None or all(part.size <= most for part in parts)
    for one in whole:
        of_range = [part for part in parts if part.place == one.place]
        assert sum(part.size for part in of_range) == max(0, one.size)
        for left, right in pairwise(of_range):
            assert left.end == right.start
        if of_range:
            assert (of_range[0].start, of_range[-1].end) == (one.start, one.end)


@given(ranges, st.integers(1, 200))
def test_there_are_about_as_many_tasks_as_wanted(whole: list[PartitionRange], least: int) -> None:
    full = [one for one in whole if one.size > 0]
    parts = plan.split(whole, least)
    assert len(parts) <= max(least, 1) + 2 * len(full)
    if full and sum(one.size for one in full) >= least * 100:
        assert len(parts) >= min(least, len(full)) or len(parts) >= least // 2


def test_small_partitions_do_not_count_when_a_large_one_is_divided() -> None:
    parts = plan.split([PartitionRange("a", 0, 0, 10), PartitionRange("b", 0, 0, 1000)], 5)
    assert [part.size for part in parts] == [10, 250, 250, 250, 250]


def test_default_tasks_leave_small_ranges_whole() -> None:
    assert plan.default_tasks([PartitionRange("a", 0, 0, 1000)], 8) == 1
    assert plan.default_tasks([PartitionRange("a", 0, 0, 100 * plan.LARGE)], 8) == 8
    assert plan.default_tasks([PartitionRange("a", 0, 0, 30 * plan.LARGEST)], 2) == 30
    assert plan.default_tasks([], 2) == 1


sizes = st.dictionaries(places, st.integers(0, 2**45), min_size=1, max_size=8)


@given(sizes, st.integers(1, 2**40), st.data())
def test_a_limit_is_kept_and_every_partition_advances(
    backlog: dict[plan.TopicPartition, int], limit: int, data: st.DataObject
) -> None:
    starts = {place: data.draw(st.integers(0, 2**40)) for place in backlog}
    ends = {place: starts[place] + size for place, size in backlog.items()}
    admitted = plan.admit(limit, starts, ends)
    got = {place: admitted[place] - starts[place] for place in ends}
    assert all(0 <= got[place] <= size for place, size in backlog.items())
    assert all(got[place] > 0 for place, size in backlog.items() if size)
    assert sum(got.values()) <= limit + len(backlog)
    if sum(backlog.values()) <= limit:
        assert admitted == ends


def test_a_limit_is_shared_by_backlog() -> None:
    admitted = plan.admit(100, {A: 0, B: 50}, {A: 300, B: 150})
    assert admitted == {A: 75, B: 75}


def test_partitions_whose_end_went_back_are_not_limited() -> None:
    assert plan.admit(10, {A: 100, B: 0}, {A: 40, B: 1000}) == {A: 40, B: 10}


def test_bytes_are_shared_by_weight() -> None:
    admitted = plan.admit(1000, {A: 0, B: 0}, {A: 100, B: 100}, {A: 10, B: 90})
    assert admitted == {A: 10, B: 10}


SPANS = {A: EndOffsets(10, 20), B: EndOffsets(0, 7)}


@pytest.mark.parametrize(
    ("bound", "found", "wanted"),
    [
        (ReadBound(EARLIEST), {}, {A: 10, B: 0}),
        (ReadBound(LATEST), {}, {A: 20, B: 7}),
        (ReadBound(offsets={A: -2, B: -1}), {}, {A: 10, B: 7}),
        (ReadBound(offsets={A: 13, B: 0}), {}, {A: 13, B: 0}),
        (ReadBound(time=5), {A: 12, B: 3}, {A: 12, B: 3}),
        (ReadBound(time=5, or_end=True), {A: -1, B: 3}, {A: 20, B: 3}),
        (ReadBound(times={A: 5, B: 6}, or_end=True), {A: 12, B: -1}, {A: 12, B: 7}),
    ],
)
def test_a_bound_resolves_to_offsets(
    bound: ReadBound, found: plan.Offsets, wanted: plan.Offsets
) -> None:
    assert bound.resolve(SPANS, found, starting=True) == wanted


def test_an_end_time_after_the_last_record_is_the_end() -> None:
    assert ReadBound(time=5).resolve(SPANS, {A: -1, B: -1}, starting=False) == {A: 20, B: 7}


def test_a_start_time_after_the_last_record_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"(?s)b-1 has no record.*startingOffsetsByTimestampStrat"):
        ReadBound(times={A: 1, B: 6}).resolve(SPANS, {A: 12, B: -1}, starting=True)


@pytest.mark.parametrize("named", [{A: 1}, {A: 1, B: 1, ("c", 0): 1}])
def test_every_partition_must_be_named_and_no_other(named: plan.Offsets) -> None:
    with pytest.raises(PlanError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        ReadBound(offsets=named).resolve(SPANS, {}, starting=True)
    with pytest.raises(PlanError, match="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        ReadBound(times=named).resolve(SPANS, dict(SPANS.fromkeys(SPANS, 1)), starting=True)


def test_only_needed_timestamps_are_requested() -> None:
    assert ReadBound(time=5).moments([A, B]) == [("a", 0, 5), ("b", 1, 5)]
    assert ReadBound(times={A: 7}).moments([A, B]) == [("a", 0, 7)]
    assert ReadBound(LATEST).moments([A]) == []


@pytest.mark.parametrize(
    ("bound", "moves"),
    [
        (ReadBound(LATEST), True),
        (ReadBound(EARLIEST), False),
        (ReadBound(offsets={A: 3}), False),
        (ReadBound(offsets={A: -1}), True),
        (ReadBound(time=3), False),
        (ReadBound(time=3, or_end=True), True),
    ],
)
def test_only_unpinned_starts_move_when_resolved_again(bound: ReadBound, moves: bool) -> None:
    assert bound.moves() is moves


def test_a_batch_within_the_log_is_planned_entirely() -> None:
    found = plan.batch_ranges({A: 12, B: 0}, {A: 20, B: 7}, SPANS, FAIL)
    assert found == [PartitionRange("a", 0, 12, 20), PartitionRange("b", 1, 0, 7)]


def test_a_batch_that_begins_before_the_log_fails_or_skips() -> None:
    with pytest.raises(DataLossError, match="START_OFFSET_RESET"):
        plan.batch_ranges({A: 3, B: 0}, {A: 20, B: 7}, SPANS, FAIL)
    found = plan.batch_ranges({A: 3, B: 0}, {A: 5, B: 9}, SPANS, WARN)
    assert found == [PartitionRange("a", 0, 10, 10), PartitionRange("b", 1, 0, 7)]


def test_a_batch_that_ends_too_late_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        plan.batch_ranges({A: 10, B: 0}, {A: 20, B: 9}, SPANS, FAIL)


def test_a_batch_that_ends_before_it_begins_is_an_error() -> None:
    with pytest.raises(PlanError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        plan.batch_ranges({A: 15, B: 0}, {A: 12, B: 7}, SPANS, WARN)


def test_new_partitions_begin_at_their_first_offset() -> None:
    assert plan.stream_ranges({A: 5}, {A: 9, B: 4}, {B: 0}, FAIL) == [
        PartitionRange("a", 0, 5, 9),
        PartitionRange("b", 1, 0, 4),
    ]


@pytest.mark.parametrize(
    ("starts", "ends", "earliest", "kind"),
    [
        ({A: 5}, {A: 9, B: 4}, {B: 2}, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"),
        ({A: 5}, {A: 9, B: 4}, {}, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"),
        ({A: 5, B: 1}, {A: 9}, {}, "PARTITIONS_DELETED"),
        ({A: 5}, {A: 3}, {}, "PARTITION_OFFSET_CHANGED"),
    ],
)
def test_losses_of_a_stream_fail_or_are_skipped(
    starts: plan.Offsets, ends: plan.Offsets, earliest: plan.Offsets, kind: str
) -> None:
    with pytest.raises(DataLossError, match=rf"KAFKA_DATA_LOSS.{kind}.*failOnDataLoss"):
        plan.stream_ranges(starts, ends, earliest, FAIL)
    assert plan.split(plan.stream_ranges(starts, ends, earliest, WARN)) == [
        one
        for one in (PartitionRange("a", 0, 5, 9), PartitionRange("b", 1, 2, 4))
        if one.end == ends.get(one.place) and (one.place in starts or one.place in earliest)
    ]
