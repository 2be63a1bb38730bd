"""Filters: the offsets that remain to be read hold every row that passes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from krust.spark.filters import ColumnFilter, RangeFilter
from krust.spark.plan import PartitionRange

SCALAR = ("=", ">", ">=", "<", "<=")


def passes(test: ColumnFilter, row: Mapping[str, object]) -> bool:
    value, other = row[test.column], test.value
    if test.op == "in":
        found = value in other  # type: ignore[operator]
    elif test.op in ("starts", "ends", "contains"):
        found = {
            "starts": str(value).startswith(str(other)),
            "ends": str(value).endswith(str(other)),
            "contains": str(other) in str(value),
        }[test.op]
    else:
        found = eval(f"value {'==' if test.op == '=' else test.op} other")
    return bool(found) != test.negated


def check(
    column: str, ops: tuple[str, ...], values: st.SearchStrategy[object]
) -> st.SearchStrategy[ColumnFilter]:
    return st.builds(ColumnFilter, st.just(column), st.sampled_from(ops), values, st.booleans())


checks = st.one_of(
    check("topic", ("=", "starts", "ends", "contains"), st.text("ab", max_size=2)),
    check("topic", ("in",), st.just(("a", "bb"))),
    check("partition", SCALAR, st.integers(-1, 3)),
    check("partition", ("in",), st.just((0, 2))),
    check("offset", SCALAR, st.integers(-3, 25)),
)
ROWS = [
    {"topic": topic, "partition": partition, "offset": offset}
    for topic in ("a", "ab", "bb")
    for partition in range(3)
    for offset in range(20)
]


@given(st.lists(checks, max_size=4))
def test_pushed_filters_are_exact_and_others_lose_no_row(filters: list[ColumnFilter]) -> None:
    clip = RangeFilter()
    taken = [test for test in filters if clip.take(test)]
    ranges = [PartitionRange(t, p, 0, 20) for t in ("a", "ab", "bb") for p in range(3)]
    left = clip.cut([one for one in ranges if clip.wants(one.place)], {})
    kept = {
        (one.topic, one.partition, offset) for one in left for offset in range(one.start, one.end)
    }
    wanted = [row for row in ROWS if all(passes(test, row) for test in taken)]
    assert kept == {tuple(row.values()) for row in wanted}


def test_filters_on_other_columns_are_left_to_spark() -> None:
    clip = RangeFilter()
    assert not clip.take(ColumnFilter("value", "=", b"x"))
    assert not clip.take(ColumnFilter("offset", "in", (1, 2)))
    assert not clip.take(ColumnFilter("offset", "=", 1.5))
    assert not clip.take(ColumnFilter("partition", "=", True))
    assert clip.cut([PartitionRange("a", 0, 0, 9)], {}) == [PartitionRange("a", 0, 0, 9)]


def test_a_timestamp_filter_moves_the_start_and_is_applied_by_spark_too() -> None:
    clip = RangeFilter()
    moment = dt.datetime(2026, 11, 1, 10, tzinfo=dt.UTC)
    assert not clip.take(ColumnFilter("timestamp", ">=", moment))
    assert not clip.take(ColumnFilter("timestamp", "<", moment + dt.timedelta(hours=1)))
    whole = [
        PartitionRange("a", 0, 0, 9),
        PartitionRange("b", 0, 0, 9),
        PartitionRange("c", 0, 4, 4),
    ]
    since = round(moment.timestamp() * 1000) - 1
    assert clip.moments(whole) == [("a", 0, since), ("b", 0, since)]
    left = clip.cut(whole, {("a", 0): 5, ("b", 0): -1})
    assert [one.size for one in left] == [4, 0, 0]
    assert clip.take(ColumnFilter("offset", "<", 7))
    assert clip.cut(whole, {("a", 0): 8})[0].size == 0


def test_the_latest_of_several_timestamp_filters_applies() -> None:
    clip = RangeFilter()
    for hour in (10, 12, 11):
        clip.take(ColumnFilter("timestamp", ">", dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC)))
    assert clip.since_ms == round(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).timestamp() * 1000) - 1
