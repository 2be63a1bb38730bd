"""Reads a range of a partition as Arrow batches, in a task of a batch or micro-batch.

The columns are those of Spark's Kafka source. A schema of the user is a projection: any of these
columns, in any order; others are not decoded. Batches are passed on from Rust without a copy.
A task creates its own client in its own process, because Spark's workers are forked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from krust.errors import KafkaError
from krust.spark.client_options import core_options
from krust.spark.errors import LOG, LossReporter, PlanError
from krust.spark.files import MANIFEST_DDL, TaskNaming, materialize
from krust.spark.plan import PartitionRange, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust.spark.files import StagingTarget
    from krust.spark.options import SourceOptions

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""The table of columns, as of Spark's Kafka source."""
_ALL = ", ".join(f"{name} {kind.simpleString()}" for name, kind in COLUMNS.items())
MAY_BE_NULL = frozenset({"key", "value", "headers"})
_GONE = frozenset({1, 3, 100})
"""Offset out of range, unknown topic or partition, unknown topic id."""


class Part(InputPartition):
    """The range of one task."""

    def __init__(self, ranges: tuple[PartitionRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def full_schema(headers: bool) -> StructType:
    """The schema if the user gives none."""
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if headers or name != "headers"]
    )


def sql_columns(schema: StructType) -> str:
    """A schema as SQL."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def columns(schema: StructType) -> list[str]:
    """The columns of a schema. PlanError: one does not exist, or has another type."""
    by_name = {name.lower(): name for name in COLUMNS}
    found = []
    for field in schema.fields:
        name = by_name.get(field.name.lower())
        if name is None:
            raise PlanError(
                "KRUST_UNKNOWN_COLUMN",
                f"There is no column '{field.name}'. Write a schema of some of these: {_ALL}.",
            )
        if field.dataType != COLUMNS[name]:
            raise PlanError(
                "KRUST_WRONG_COLUMN_TYPE",
                f"Column '{name}' is {COLUMNS[name].simpleString()}, not "
                f'{field.dataType.simpleString()}. Write .schema("{name} '
                f'{COLUMNS[name].simpleString()}") and convert it afterwards.',
            )
        if not field.nullable and name in MAY_BE_NULL:
            raise PlanError(
                "KRUST_WRONG_COLUMN_TYPE",
                f"Column '{name}' is null in records that have none. Leave out NOT NULL.",
            )
        found.append(name)
    if not found:
        raise PlanError(
            "KRUST_UNKNOWN_COLUMN", f"The schema names no column. Write some of these: {_ALL}."
        )
    return found


def manifest_schema() -> StructType:
    """The schema of `materialize=parquet`: a row for each file."""
    kinds = {"string": StringType(), "int": IntegerType(), "bigint": LongType()}
    pairs = (column.split() for column in MANIFEST_DDL.split(", "))
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


def check(source: SourceOptions, schema: StructType) -> None:
    """Check a schema before anything is read. PlanError: it does not fit this source."""
    if source.target is None:
        columns(schema)
    elif schema != manifest_schema():
        raise PlanError(
            "KRUST_UNKNOWN_COLUMN",
            "With 'materialize' the rows are those of manifests. Leave out .schema(...).",
        )


def read(part: InputPartition, source: SourceOptions, schema: StructType) -> Iterator[Any]:
    """The records of a task as Arrow batches of exactly the schema's layout."""
    if not isinstance(part, Part) or not part.ranges:
        return  # Spark makes one task if there are none
    if source.target is None:
        yield from _batches(part, source, schema)
    else:
        yield _manifest(part, source, source.target)


def _manifest(part: Part, source: SourceOptions, target: StagingTarget) -> Any:
    """Write a task's records to files. Returns manifest rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    names = target.columns or full_schema(source.headers).names
    wanted = StructType([StructField(name, COLUMNS[name]) for name in names])
    task = batch = 0
    job = source.file_job
    if context is not None:
        task = context.partitionId()
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        job = job or context.getLocalProperty("sql.streaming.queryId")
    one = part.ranges[0]
    naming = TaskNaming(job or "read", batch, task, one.topic, one.partition, one.start, one.end)
    return materialize(_batches(part, source, wanted), target, naming)


def _batches(part: Part, source: SourceOptions, schema: StructType) -> Iterator[Any]:
    import pyarrow as pa

    from krust import _krust

    wanted = columns(schema)
    lost = "fail" if source.fail_on_data_loss else "skip"
    place: dict[str, Any] = {"bootstrap": source.bootstrap, "options": core_options(source.client)}
    if source.log_dirs:
        level = source.client.get("isolation.level", "read_uncommitted")
        place = {"data_dirs": source.log_dirs, "options": {"isolation.level": level}}
    stream = _krust.scan(part.ranges, wanted, lost=lost, **place)
    try:
        reader = pa.RecordBatchReader.from_stream(stream)
        layout = _layout(reader.schema, schema)
        for batch in reader:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=layout) if layout else batch
    except Exception as error:  # of pyarrow, or OSError: raise its cause
        raise _to_spark_error(stream.failure() or error, part) from error
    for topic, partition, start, end in stream.skipped():
        LOG.warning(
            "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] %s-%d: the offsets [%d, %d) are gone.",
            topic,
            partition,
            start,
            end,
        )


def _layout(given: Any, schema: StructType) -> Any:
    """The Arrow schema that Spark expects if names or nullability differ; None: they do not."""
    import pyarrow as pa

    fields = [
        pa.field(want.name, have.type, nullable=want.nullable)
        for have, want in zip(given, schema.fields, strict=True)
    ]
    wanted = pa.schema(fields)
    return None if wanted.equals(given) else wanted


def _to_spark_error(error: BaseException, part: Part) -> BaseException:
    """The error for Spark's users."""
    if isinstance(error, KafkaError) and error.code in _GONE:
        try:
            LossReporter(fail=True).report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"Offsets of {_ranges(part.ranges)} could not be read: {error}.",
            )
        except PlanError as loss:
            return loss
    if isinstance(error, KafkaError) and not error.retriable:  # so that Spark does not retry
        return PlanError(f"KRUST_{error.name}", f"{error}.")
    return error


def _ranges(ranges: tuple[PartitionRange, ...]) -> str:
    return ", ".join(f"{names([one.place])} [{one.start}, {one.end})" for one in ranges)
