"""The offsets that a job reads, and their tasks: pure functions of the cluster's offsets.

A place is (topic, partition). Offsets in JSON are the official connector's, `{"topic":{"0":123}}`:
the offset of the next record to read, so a checkpoint works with both sources. A range is
[start, end) of one partition. `split` divides ranges exactly as the connector's
KafkaOffsetRangeCalculator, `admit` divides a limit among partitions as the connector's rate limit.
Not promised: that a range has `size` records. Compaction and transactions leave gaps.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple
from krust.spark.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from krust.spark.errors import LossReporter

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]

EARLIEST, LATEST = -2, -1
"""In place of an offset: the first offset, the end."""
NO_LATER_RECORD = -1
"""In place of an offset for a time: there is no record at or after it."""


class PartitionRange(NamedTuple):
    """The offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """The number of offsets, not of records."""
        return self.end - self.start


class EndOffsets(NamedTuple):
    """The first offset of a partition, and its end."""

    earliest: int
    latest: int


def parse_offsets(text: str) -> Offsets:
    """Offsets, or times, of partitions from JSON. ValueError: invalid, with the reason."""
    try:
        return from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def from_json(tree: object) -> Offsets:
    """Offsets of partitions from `{"topic": {"0": 123}}`. ValueError: another form."""
    found: Offsets = {}
    for topic, partitions in _object(tree).items():
        for partition, offset in _object(partitions).items():
            found[topic, _number(partition)] = _number(offset)
    if any(partition < 0 for _, partition in found):
        raise ValueError("a partition is a number from 0 up")
    return found


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets for JSON. Equal offsets have the same order."""
    tree: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        tree.setdefault(topic, {})[str(partition)] = offset
    return tree


def parse_places(text: str) -> list[TopicPartition]:
    """Partitions from `{"topic": [0, 1]}`. ValueError: another form."""
    try:
        tree = _object(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    places = []
    for topic, partitions in tree.items():
        if not isinstance(partitions, list):
            raise ValueError(f"the partitions of {topic!r} are no list")
        places += [(topic, _number(partition)) for partition in partitions]
    if any(partition < 0 for _, partition in places):
        raise ValueError("a partition is a number from 0 up")
    return sorted(set(places))


def _object(tree: object) -> dict[str, object]:
    if not isinstance(tree, dict):
        raise ValueError(f"{json.dumps(tree)} is where an object is expected")
    return tree


def _number(value: object) -> int:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise ValueError(f"{json.dumps(value)} is where a number is expected")
    return value


@dataclass(frozen=True)
class ReadBound:
    """The start or the end of a reading, from the options.

    offsets  of each partition, including EARLIEST and LATEST; or `times` of each, in milliseconds;
             or one `time` for all. All None: `everywhere`, EARLIEST or LATEST
    or_end   whether a time without a later record means the end; else it is an error of a start
    """

    everywhere: int = EARLIEST
    offsets: Offsets | None = None
    times: Offsets | None = None
    time: int | None = None
    or_end: bool = False

    def moments(self, places: Iterable[TopicPartition]) -> list[tuple[str, int, int]]:
        """The times whose offsets `resolve` needs: (topic, partition, milliseconds)."""
        if self.time is not None:
            return [(topic, partition, self.time) for topic, partition in places]
        times = self.times or {}
        return [(*place, times[place]) for place in places if place in times]

    def moves(self) -> bool:
        """Whether its offset may change with new records."""
        timed = self.time is not None or self.times is not None
        if timed or self.offsets is not None:
            return self.or_end if timed else LATEST in (self.offsets or {}).values()
        return self.everywhere == LATEST

    def named(self) -> set[TopicPartition] | None:
        """The partitions that it names; None: all."""
        if self.time is not None:
            return None
        if self.times is not None:
            return set(self.times)
        return None if self.offsets is None else set(self.offsets)

    def resolve(
        self,
        spans: Mapping[TopicPartition, EndOffsets],
        found: Mapping[TopicPartition, int],
        *,
        starting: bool,
    ) -> Offsets:
        """The offset of each partition.

        spans     the offsets of each partition
        found     for `moments`: the first offset at or after the time, or NONE_SO_LATE
        raises    PlanError: other partitions than it names; a start without a later record
        """
        self._check_names(set(spans), starting=starting)
        offsets: Offsets = {}
        for place, span in spans.items():
            if self.time is not None or self.times is not None:
                offset = found[place]
                if offset == NO_LATER_RECORD and starting and not self.or_end:
                    time = self.time if self.time is not None else (self.times or {})[place]
                    raise PlanError(
                        "KRUST_NO_RECORD_SO_LATE",
                        f"{place[0]}-{place[1]} has no record at or after {time} ms. To start such "
                        'partitions at their end write .option("startingOffsetsByTimestampStrategy"'
                        ', "latest").',
                    )
                offset = LATEST if offset == NO_LATER_RECORD else offset
            else:
                offset = self.everywhere if self.offsets is None else self.offsets[place]
            offsets[place] = {EARLIEST: span.earliest, LATEST: span.latest}.get(offset, offset)
        return offsets

    def _check_names(self, places: set[TopicPartition], *, starting: bool) -> None:
        named = self.named()
        if named is None or named == places:
            return
        which = "starting" if starting else "ending"
        timed = self.times is not None
        raise PlanError(
            "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            if timed
            else "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            f"Option '{which}{'OffsetsByTimestamp' if timed else 'Offsets'}' must name every "
            f"partition that is read, and no other. Named: {names(named)}. Read: {names(places)}."
            + ("" if timed else " Write -2 for the earliest offset of one, -1 for the latest."),
        )


def names(places: Iterable[TopicPartition]) -> str:
    """Partitions in Kafka's form: `orders-0, orders-1`."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "none"


def batch_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    spans: Mapping[TopicPartition, EndOffsets],
    losses: LossReporter,
) -> list[PartitionRange]:
    """The ranges of a batch, within the partitions' offsets.

    starts, ends, spans  of the same partitions
    raises               PlanError: a start behind its end; DataLossError: missing offsets, if
                         losses are errors
    """
    ranges = []
    for place in sorted(spans):
        start, end, span = starts[place], ends[place], spans[place]
        if start > end:
            raise PlanError(
                "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                f"Partition {names([place])} would be read from {start} to {end}: the start lies "
                "behind the end. Compare the options startingOffsets and endingOffsets (or their "
                f"timestamps) with what it holds, {span.earliest} to {span.latest}; a topic that "
                "was deleted and made again counts from 0.",
            )
        if start < end and start < span.earliest:
            losses.report(
                "START_OFFSET_RESET",
                f"Partition {names([place])} begins at {span.earliest}, not at {start}.",
            )
        if end > span.latest:
            losses.report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"Partition {names([place])} ends at {span.latest}, not at {end}.",
            )
        start, end = max(start, span.earliest), min(end, span.latest)
        ranges.append(PartitionRange(*place, start, max(start, end)))
    return ranges


def stream_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    losses: LossReporter,
) -> list[PartitionRange]:
    """The ranges of a micro-batch.

    earliest  the first offsets of `new_places`; an absent partition was deleted
    raises    DataLossError: missing partitions or offsets, if losses are errors
    """
    added = new_places(starts, ends)
    unknown = added - set(earliest)
    if unknown:
        losses.report(
            "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
            f"Partitions {names(unknown)} were found and then deleted.",
        )
    for place in sorted(added - unknown):
        if earliest[place]:
            losses.report(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"The new partition {names([place])} begins at {earliest[place]}, not at 0.",
            )
    gone = set(starts) - set(ends)
    if gone:
        losses.report("PARTITIONS_DELETED", f"Partitions {names(gone)} have been deleted.")
    ranges = []
    for place in sorted(set(ends) - unknown):
        start, end = starts.get(place, earliest.get(place, 0)), ends[place]
        if end < start:
            losses.report(
                "PARTITION_OFFSET_CHANGED",
                f"The end of partition {names([place])} went back from {start} to {end}: the topic "
                "was deleted and made again, or the start was set behind its end.",
            )
        ranges.append(PartitionRange(*place, start, end))
    return ranges


def new_places(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Partitions that are new in a micro-batch."""
    return set(ends) - set(starts)


def split(
    ranges: Iterable[PartitionRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[PartitionRange]:
    """Divide ranges into about `min_partitions` tasks, none empty, none above `max_records`.

    A range gets tasks in proportion to its size. The numbers are rounded, so there may be fewer or
    more tasks. The order is kept.
    """
    whole = [one for one in ranges if one.size > 0]
    if max_records is not None:
        whole = [
            part
            for one in whole
            for part in _divided(one, math.ceil(float(one.size) / float(max_records)))
        ]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(one.size for one in whole)
    small = [one for one in whole if _share(one.size, total, min_partitions) == 1]
    places = {one.place for one in small}
    rest = total - sum(one.size for one in small)
    wanted = max(min_partitions - len(small), 1)
    return [
        part
        for one in whole
        for part in _divided(one, 1 if one.place in places else _share(one.size, rest, wanted))
    ]


def _share(size: int, total: int, parts: int) -> int:
    exact = float(size) / float(total) * parts
    below = math.floor(exact)
    return max(below + (exact - below >= 0.5), 1)


def _divided(one: PartitionRange, parts: int) -> list[PartitionRange]:
    found, start, left = [], one.start, one.size
    for part in range(parts):
        step = left // (parts - part)
        found.append(PartitionRange(one.topic, one.partition, start, start + step))
        start, left = start + step, left - step
    return [part for part in found if part.size > 0]


LARGE = 500_000
"""The offsets of a task if the user has not set the number of tasks."""
LARGEST = 10_000_000
"""The most offsets of a task if the user has not set a limit."""


def default_tasks(ranges: Sequence[PartitionRange], processors: int) -> int:
    """The least number of tasks of a batch if the user has not set it."""
    total = sum(max(0, one.size) for one in ranges)
    return max(1, min(processors, total // LARGE), total // LARGEST)


def admit(
    limit: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, float] | None = None,
) -> Offsets:
    """The ends of a micro-batch with `limit` offsets, divided in proportion to the backlogs.

    Every partition with a backlog gets at least one offset, so there may be more than `limit`.
    starts   of every partition of `ends`, including new ones; an absent one is not limited
    weights  the weight of an offset of a partition, if the limit does not count offsets
    """
    weights = weights or {}
    sizes = {
        place: end - starts[place]
        for place, end in ends.items()
        if place in starts and end > starts[place]
    }
    total = float(sum(size * weights.get(place, 1) for place, size in sizes.items()))
    if total < 1:
        return dict(ends)
    admitted = dict(ends)
    for place, size in sizes.items():
        share = limit * (size / total)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        admitted[place] = min(ends[place], starts[place] + offsets)
    return admitted


def backlog(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """The offsets between two positions. A position that went back counts as 0."""
    return sum(max(0, end - starts.get(place, 0)) for place, end in ends.items())
