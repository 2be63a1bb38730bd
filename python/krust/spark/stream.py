"""`spark.readStream.format("krust")`: offsets of micro-batches.

Spark asks a source for its start, does not store it, and asks again if the first micro-batch
failed. With `latest` the second answer is later, and the records between would be lost. So krust's
first start is a symbol, and the first micro-batch goes from the symbol to the concrete start. It is
empty, and once Spark has logged it the start is fixed.

    batch   start                          end                                    reads
    0       {"__krust_start": "latest"}    {"krust:pinned": {}, "t": {"0": 100}}  nothing
    1       {"krust:pinned": {}, ...}      {"t": {"0": 110}}                      [100, 110)

Offsets are the official connector's, so a checkpoint works with both sources. The empty entry is no
topic; the official connector ignores it. It marks a batch 0 of krust. A batch 0 that the official
connector has not finished is not empty, and only that connector knows its start.
Trigger.AvailableNow: the ends are fixed when the query starts. Spark 4.0 and 4.1 do not pass the
start to `latestOffset`, so the reader remembers it, and AvailableNow is a single micro-batch.
Threads: one at a time. A reader exists as long as its query.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from krust.errors import KrustError
from krust.spark import plan
from krust.spark.errors import LOG, LossReporter, PlanError
from krust.spark.group_commits import GroupCommitter
from krust.spark.planner import offset_reader, tasks
from krust.spark.reading import Part, check, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from krust.spark.offset_reader import OffsetReader
    from krust.spark.options import SourceOptions
    from krust.spark.plan import Offsets

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    ADMITS = True
except ImportError:  # Spark 4.0, 4.1
    ADMITS = False

START, PINNED = "__krust_start", "krust:pinned"
Json = dict[str, Any]


class _StreamReader(DataSourceStreamReader):
    """Shared by the readers for all versions of Spark."""

    def __init__(self, source: SourceOptions, schema: StructType) -> None:
        check(source, schema)
        self.source, self._schema = source, schema
        self._losses = LossReporter(source.fail_on_data_loss)
        self._ends: Offsets = {}
        self._frozen: Offsets | None = None
        self._start: Offsets | None = None
        self._last_batch = float("-inf")

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        if START in start:
            if PINNED in end:
                return []
            raise PlanError(
                "KRUST_UNFINISHED_FIRST_BATCH",
                "The first micro-batch of this checkpoint was begun by another source and never "
                "finished, and where it starts is known to that source alone. Let that source "
                "finish it, then go on with krust; or begin a new checkpoint with "
                "'startingOffsets'.",
            )
        starts, ends = plan.from_json(start), plan.from_json(end)
        added = plan.new_places(starts, ends)
        earliest = self._offset_reader.earliest_there(added) if added else {}
        ranges = plan.stream_ranges(starts, ends, earliest, self._losses)
        spans = {one.place: plan.EndOffsets(one.start, one.end) for one in ranges if one.size > 0}
        found = tasks(self.source, self._offset_reader, spans, ranges, streaming=True)
        return [Part((one,)) for one in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task, as Arrow batches."""
        return read(partition, self.source, self._schema)

    def commit(self, end: Json) -> None:
        """Commit to the group, for tools that show lag. Spark's checkpoint counts."""
        if self.source.group_id and START not in end:
            try:
                self._commits.commit(plan.from_json(end))
            except KrustError as error:
                LOG.warning("Group '%s' was not committed: %s", self.source.group_id, error)

    @cached_property
    def _offset_reader(self) -> OffsetReader:
        return offset_reader(self.source)

    @cached_property
    def _commits(self) -> GroupCommitter:
        source = self.source
        return GroupCommitter(source.bootstrap, source.group_id or "", source.client)

    def __getstate__(self) -> dict[str, Any]:
        """The state without connections, because a reader is pickled for tasks."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_offset_reader", "_commits")}

    def _symbol(self) -> Json:
        starting = self.source.starting
        word = {plan.EARLIEST: "earliest", plan.LATEST: "latest"}[starting.everywhere]
        return {START: word if starting.named() is None and starting.time is None else "given"}

    def _settled(self) -> Offsets:
        """The start of a new query; the same at each call of this reader."""
        if self._start is None:
            spans, missing = self._offset_reader.survey()
            if missing:
                raise self._offset_reader.unknown_topics(missing)
            if self._frozen is not None:
                frozen = self._frozen
                spans = {
                    p: plan.EndOffsets(spans[p].earliest, frozen[p]) for p in frozen if p in spans
                }
            starting = self.source.starting
            found = self._offset_reader.at(starting.moments(spans))
            starts = starting.resolve(spans, found, starting=True)
            if found:
                starts = {p: min(offset, spans[p].latest) for p, offset in starts.items()}
            self._start = starts
        return self._start

    def _pinned(self) -> Json:
        return {PINNED: {}, **plan.to_json(self._settled())}

    def _now(self, starts: Offsets) -> Offsets:
        """The ends of all partitions. They are read again if one seems to have gone back."""
        for left in range(self.source.retries, 0, -1):
            ends, missing = self._offset_reader.ends()
            back = [p for p, end in ends.items() if end < starts.get(p, 0)]
            if not back:
                break
            LOG.warning("The ends of %s lie before what was read.", plan.names(back))
            if left > 1:
                time.sleep(self.source.retry_ms / 1000)
        if missing:
            words = ", ".join(sorted(missing))
            self._losses.report("PARTITIONS_DELETED", f"There is no {words} any more.")
        return ends

    def _admitted(self, starts: Offsets, ends: Offsets) -> Offsets:
        """The ends of a micro-batch by `max...PerTrigger`."""
        source, known = self.source, starts
        if source.max_offsets_per_trigger is None and source.max_bytes_per_trigger is None:
            return ends
        added = plan.new_places(starts, ends)
        if added:
            known = starts | self._offset_reader.earliest_there(added)
        admitted = ends
        if source.max_offsets_per_trigger is not None:
            admitted = plan.admit(source.max_offsets_per_trigger, known, ends)
        if source.max_bytes_per_trigger is not None:
            spans = {p: plan.EndOffsets(known.get(p, end), end) for p, end in ends.items()}
            weights = self._offset_reader.bytes_per_offset(spans)
            other = plan.admit(source.max_bytes_per_trigger, known, ends, weights)
            admitted = {p: min(end, other[p]) for p, end in admitted.items()}
        return admitted

    def _too_few(self, starts: Offsets, ends: Offsets) -> bool:
        """Whether `minOffsetsPerTrigger` makes a micro-batch wait."""
        least, now = self.source.min_offsets_per_trigger, time.monotonic()
        if least is None or self._frozen is not None:
            return False
        late = (now - self._last_batch) * 1000 >= self.source.max_delay_ms
        if not late and plan.backlog(starts, ends) < least:
            return True
        self._last_batch = now
        return False


class KrustOlderStreamReader(_StreamReader):
    """For Spark 4.0 and 4.1, which call `latestOffset()` without the start.

    When a query continues, Spark plans an empty range first, which shows its position.
    """

    _at: Offsets | None = None

    def initialOffset(self) -> Json:
        """The start of a new query: a symbol if it could change before the next call."""
        return self._symbol() if self.source.starting.moves() else plan.to_json(self._settled())

    def latestOffset(self) -> Json:
        """The ends of the next micro-batch."""
        if self._at is None and self.source.starting.moves():
            return self._pinned()
        starts = self._settled() if self._at is None else self._at
        ends = self._now(starts)
        if self._too_few(starts, ends):
            return plan.to_json(starts)
        return plan.to_json(self._admitted(starts, ends))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        self._at = plan.from_json(end)
        return super().partitions(start, end) if start != end else []


if ADMITS:

    class KrustStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """For Spark 4.2 and newer."""

        def initialOffset(self) -> Json:
            """A symbol for the start of a new query."""
            return self._symbol()

        def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
            """The ends of the next micro-batch."""
            if START in start:
                return self._pinned()
            starts = plan.from_json(start)
            self._ends = self._now(starts) if self._frozen is None else self._frozen
            ends = self._ends
            if not isinstance(limit, ReadAllAvailable):
                if self._too_few(starts, ends):
                    return start
                ends = self._admitted(starts, ends)
            return start if ends == starts else plan.to_json(ends)

        def getDefaultReadLimit(self) -> ReadLimit:
            """The limit of a micro-batch. Spark can express only one; krust applies all."""
            source = self.source
            if source.max_offsets_per_trigger is not None:
                return ReadMaxRows(source.max_offsets_per_trigger)
            if source.max_bytes_per_trigger is not None:
                return ReadMaxBytes(source.max_bytes_per_trigger)
            if source.min_offsets_per_trigger is not None:
                return ReadMinRows(source.min_offsets_per_trigger)
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            """Fix the ends that this run reads to."""
            self._frozen, _ = self._offset_reader.ends()

        def reportLatestOffset(self) -> Json | None:
            """The ends of all partitions, for the query's progress."""
            return plan.to_json(self._ends) or None


def stream_reader(source: SourceOptions, schema: StructType) -> DataSourceStreamReader:
    """The reader for the running Spark version."""
    if ADMITS:
        return KrustStreamReader(source, schema)
    LOG.warning(
        "Before Spark 4.2 a Python source has limits: Trigger.AvailableNow reads one micro-batch, "
        "'maxOffsetsPerTrigger' of records at most; progress shows no latest offset."
    )
    return KrustOlderStreamReader(source, schema)
