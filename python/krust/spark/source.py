"""`format("krust")`: the data source, and batch reads.

Spark imports this class in three kinds of processes: the planner (a child of the driver, one for
each query), the process for a stream's offsets (it exists as long as the stream), and the forked
workers that read and write. The planner pickles the reader and sends it to each task, so krust has
to be installed there. The native module is imported at first use, and each process creates its own
client. There are two classes for batches, because Spark refuses a reader with filters if filter
pushdown is off.
    pushFilters   `filters` applies the filters
    partitions    asks the brokers once, then `plan` decides
    read          runs in a task, in `reading`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from krust.spark import options, plan
from krust.spark.errors import LossReporter
from krust.spark.filters import (
    AT_LEAST,
    AT_MOST,
    CONTAINS,
    ENDS,
    EQUAL,
    GREATER,
    IN,
    LESS,
    NEVER_NULL,
    STARTS,
    ColumnFilter,
    RangeFilter,
)
from krust.spark.planner import offset_reader, tasks
from krust.spark.reading import Part, check, full_schema, manifest_schema, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
        InputPartition,
    )
    from pyspark.sql.types import StructType

_OPS = {
    "EqualTo": EQUAL,
    "EqualNullSafe": EQUAL,
    "In": IN,
    "GreaterThan": GREATER,
    "GreaterThanOrEqual": AT_LEAST,
    "LessThan": LESS,
    "LessThanOrEqual": AT_MOST,
    "StringStartsWith": STARTS,
    "StringEndsWith": ENDS,
    "StringContains": CONTAINS,
}


class KrustDataSource(DataSource):
    """Kafka topics as a source and a sink."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "krust"

    def schema(self) -> StructType:
        """The schema if the user gave none. Checks the options first."""
        headers = options.headers_wanted(self.options)
        return manifest_schema() if options.materializes(self.options) else full_schema(headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        source = options.source(self.options, options.BATCH)
        if source.filter_pushdown and source.target is None:
            return KrustFilteringReader(source, schema)
        return KrustBatchReader(source, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream."""
        from krust.spark.stream import stream_reader

        return stream_reader(options.source(self.options, options.STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from krust.spark.sink import batch_writer

        return batch_writer(options.sink(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The sink of a stream."""
        from krust.spark.sink import stream_writer

        return stream_writer(options.sink(self.options), schema)


class KrustBatchReader(DataSourceReader):
    """Reads ranges that are fixed when the query is planned."""

    def __init__(self, source: options.SourceOptions, schema: StructType) -> None:
        check(source, schema)
        self.source, self._schema = source, schema
        self.clip = RangeFilter()

    def partitions(self) -> list[InputPartition]:
        """A task for each range."""
        source, offsets = self.source, offset_reader(self.source)
        spans, missing = offsets.survey()
        if missing:
            raise offsets.unknown_topics(missing)
        first, last = source.starting, source.ending
        starts = first.resolve(spans, offsets.at(first.moments(spans)), starting=True)
        ends = last.resolve(spans, offsets.at(last.moments(spans)), starting=False)
        ranges = plan.batch_ranges(starts, ends, spans, LossReporter(source.fail_on_data_loss))
        ranges = [one for one in ranges if self.clip.wants(one.place)]
        ranges = self.clip.cut(ranges, offsets.at(self.clip.moments(ranges)))
        return [Part((one,)) for one in tasks(source, offsets, spans, ranges)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task, as Arrow batches."""
        return read(partition, self.source, self._schema)


class KrustFilteringReader(KrustBatchReader):
    """A batch reader with filters. Needs spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use filters. Returns those that Spark has to check again."""
        return [one for one in filters if not self._taken(one)]

    def _taken(self, one: Filter) -> bool:
        kind, negated = type(one).__name__, False
        if kind == "IsNotNull":
            return one.attribute in [(name,) for name in NEVER_NULL]
        if kind == "Not":
            one, negated = one.child, True
            kind = type(one).__name__
        op = _OPS.get(kind)
        if op is None or len(one.attribute) != 1 or one.value is None:
            return False
        return self.clip.take(ColumnFilter(one.attribute[0], op, one.value, negated))
