"""Applies filters to the ranges of a batch before anything is read. Pure, without pyspark.

    topic, partition    exact: partitions that do not match are not read
    offset              exact: ranges are cut to the offsets that match
    timestamp           the start moves to the first record at or after the time, by the broker's
                        time index. Later records may be older, so Spark checks every row again
Spark applies all other filters.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from krust.spark.plan import PartitionRange, TopicPartition

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
EQUAL, IN, GREATER, AT_LEAST, LESS, AT_MOST = "=", "in", ">", ">=", "<", "<="
STARTS, ENDS, CONTAINS = "starts", "ends", "contains"
_SCALAR: dict[str, Callable[[int, int], bool]] = {
    EQUAL: lambda x, y: x == y,
    GREATER: lambda x, y: x > y,
    AT_LEAST: lambda x, y: x >= y,
    LESS: lambda x, y: x < y,
    AT_MOST: lambda x, y: x <= y,
}
_TEXT: dict[str, Callable[[str, str], bool]] = {
    EQUAL: lambda x, y: x == y,
    STARTS: str.startswith,
    ENDS: str.endswith,
    CONTAINS: lambda x, y: y in x,
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class ColumnFilter(NamedTuple):
    """A filter: `column op value`, or its negation."""

    column: str
    op: str
    value: object
    negated: bool = False


@dataclass
class RangeFilter:
    """The filters that apply. A row must match all of them."""

    topics: list[ColumnFilter] = field(default_factory=list)
    partitions: list[ColumnFilter] = field(default_factory=list)
    first: int = 0
    last: int = 2**63 - 1
    since_ms: int | None = None

    def take(self, check: ColumnFilter) -> bool:
        """Use a filter. False: Spark has to check it too."""
        if check.column == "topic":
            return self._keep(self.topics, check, str, _TEXT)
        if check.column == "partition":
            return self._keep(self.partitions, check, int, _SCALAR)
        if check.negated:
            return False
        if check.column == "offset":
            return self._cut(check)
        if check.column == "timestamp" and check.op in (EQUAL, GREATER, AT_LEAST):
            self._wait_until(check.value)
        return False

    def wants(self, place: TopicPartition) -> bool:
        """Whether a partition may have matching rows."""
        topic, partition = place
        return all(_holds(check, topic, _TEXT) for check in self.topics) and all(
            _holds(check, partition, _SCALAR) for check in self.partitions
        )

    def moments(self, ranges: Iterable[PartitionRange]) -> list[tuple[str, int, int]]:
        """The times whose offsets `cut` needs."""
        if self.since_ms is None:
            return []
        return [(one.topic, one.partition, self.since_ms) for one in ranges if one.size > 0]

    def cut(
        self, ranges: Iterable[PartitionRange], found: Mapping[TopicPartition, int]
    ) -> list[PartitionRange]:
        """The matching parts of ranges.

        found  the offsets of `moments`; -1: no record at or after the time
        """
        left = []
        for one in ranges:
            start, end = max(one.start, self.first), min(one.end, self.last)
            if one.place in found:
                start = end if found[one.place] < 0 else max(start, found[one.place])
            left.append(one._replace(start=start, end=max(start, end)))
        return left

    def _keep(
        self, taken: list[ColumnFilter], check: ColumnFilter, kind: type, ops: Mapping[str, object]
    ) -> bool:
        values = check.value if check.op == IN else [check.value]
        known = check.op == IN or check.op in ops
        if not known or not isinstance(values, (list, tuple)):
            return False
        if any(type(value) is not kind for value in values):
            return False
        taken.append(check)
        return True

    def _cut(self, check: ColumnFilter) -> bool:
        value = check.value
        if type(value) is not int or check.op not in _SCALAR:
            return False
        if check.op in (EQUAL, AT_LEAST, GREATER):
            self.first = max(self.first, value + (check.op == GREATER))
        if check.op in (EQUAL, AT_MOST, LESS):
            self.last = min(self.last, value + (check.op != LESS))
        return True

    def _wait_until(self, value: object) -> None:
        """Begin a millisecond early, because the index has a resolution of milliseconds."""
        if not isinstance(value, dt.datetime):
            return
        moment = value if value.tzinfo else value.astimezone()
        since = (moment - _EPOCH) // dt.timedelta(milliseconds=1) - 1
        if since > 0:
            self.since_ms = max(self.since_ms or 0, since)


def _holds(check: ColumnFilter, value: object, ops: Mapping[str, Callable[..., bool]]) -> bool:
    if check.op == IN:
        found = value in check.value if isinstance(check.value, (list, tuple)) else True
    else:
        found = ops[check.op](value, check.value)
    return found != check.negated
