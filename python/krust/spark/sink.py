"""`df.write.format("krust")` and `writeStream`: writes rows to topics with krust's producer.

The column `value` is needed; `key`, `headers`, `partition`, `topic` are used if they exist,
`timestamp` with keepTimestamp. Keys and values are text or binary. Other columns are not written.
Spark's Arrow batches go to Rust; streams of Spark 4.0 come row by row.

Promised: at least once. Rows that a failed task has written stay, and the repeated task writes them
again. After a successful task every row is acknowledged. With exactlyOnce: see `exactly_once`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType, TimestampType

from krust.spark import exactly_once
from krust.spark.errors import LOG, OptionError, PlanError
from krust.spark.reading import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Row
    from pyspark.sql.types import DataType

    from krust.clients.producer import Producer
    from krust.spark.options import SinkOptions

ROLES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
"""The table of columns that are written, and their types."""


@dataclass
class Written(WriterCommitMessage):
    """The result of a task."""

    rows: int


def roles(sink: SinkOptions, schema: StructType) -> dict[str, str]:
    """Role -> column. PlanError: one is missing, or has an invalid type."""
    found: dict[str, str] = {}
    for field in schema.fields:
        kinds = ROLES.get(field.name)
        unused = (
            (field.name == "topic" and sink.topic is not None)
            or (field.name == "partition" and not sink.keep_partition)
            or (field.name == "timestamp" and not sink.keep_timestamp)
        )
        if kinds is None or unused:
            continue
        if not any(_same(field.dataType, kind) for kind in kinds):
            words = " or ".join(kind.simpleString() for kind in kinds)
            raise PlanError(
                "KRUST_WRONG_COLUMN_TYPE",
                f"Column '{field.name}' is {field.dataType.simpleString()}; it has to be {words}. "
                f'Write e.g. .withColumn("{field.name}", col("{field.name}").cast('
                f'"{kinds[0].simpleString()}")), or drop it.',
            )
        found[field.name] = field.name
    if "value" not in found:
        raise PlanError(
            "KRUST_MISSING_COLUMN",
            "There is no column 'value' to write. Write e.g. "
            '.selectExpr("to_json(struct(*)) AS value").',
        )
    if "topic" not in found and sink.topic is None:
        raise PlanError(
            "KRUST_MISSING_COLUMN",
            "There is neither an option nor a column 'topic'. Write e.g. "
            '.option("topic", "orders").',
        )
    if sink.keep_timestamp and "timestamp" not in found:
        raise PlanError(
            "KRUST_MISSING_COLUMN",
            "Option 'keepTimestamp' is true, but there is no column 'timestamp'. Leave it out.",
        )
    return found


def _same(one: DataType, other: DataType) -> bool:
    """Whether types are equal except for nullability."""
    return bool(one.simpleString() == other.simpleString())


@dataclass(frozen=True)
class RowWriter:
    """Writes the rows of one task with a producer, as the options say. Pickled."""

    sink: SinkOptions
    columns: dict[str, str]

    def batches(self, producer: Producer, batches: Iterator[Any]) -> int:
        """Write Arrow batches. Returns the number of rows."""
        rows = 0
        for batch in batches:
            if "topic" in self.columns and batch.column(self.columns["topic"]).null_count:
                raise _null_topic()
            if batch.num_rows:
                rows += producer.append(batch, topic=self.sink.topic, columns=self.columns)
        return rows

    def rows(self, producer: Producer, rows: Iterator[Row]) -> int:
        """Write rows one by one. Returns their number."""
        count = 0
        for row in rows:
            found = {role: row[name] for role, name in self.columns.items()}
            topic = self.sink.topic if self.sink.topic is not None else found["topic"]
            if topic is None:
                raise _null_topic()
            moment = found.get("timestamp")
            producer.produce(
                topic,
                _plain(found["value"]),
                _plain(found.get("key")),
                found.get("partition"),
                None,
                None if moment is None else round(moment.timestamp() * 1000),
                [(one["key"], _plain(one["value"])) for one in found.get("headers") or ()],
            )
            count += 1
        return count


def _plain(value: Any) -> Any:
    """A value without Spark's bytearrays."""
    return bytes(value) if isinstance(value, bytearray) else value


def _producer(sink: SinkOptions) -> Producer:
    from krust.clients.producer import Producer

    return Producer({**sink.client, "bootstrap.servers": sink.bootstrap})


def _null_topic() -> PlanError:
    return PlanError(
        "KAFKA_NULL_TOPIC_IN_DATA",
        "Column 'topic' is null in a row. Filter such rows, or write them all to one topic: "
        '.option("topic", "orders").',
    )


class KrustArrowWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, sink: SinkOptions, schema: StructType) -> None:
        self._writer = RowWriter(sink, roles(sink, schema))
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        sink = self._writer.sink
        if sink.job_id is None:
            return _write_at_least_once(sink, iterator, self._writer.batches)
        task = exactly_once.batch_task(sink.job_id, self._run)
        return exactly_once.write_task(sink, task, iterator, self._writer.batches)

    def commit(self, messages: list[Any]) -> None:
        """Commit the transactions of the tasks."""
        if self._writer.sink.exactly_once:
            exactly_once.commit(self._writer.sink, messages, 0)

    def abort(self, messages: list[Any]) -> None:
        """Abort the transactions of the tasks."""
        if self._writer.sink.exactly_once:
            exactly_once.abort(self._writer.sink, messages, 0)


class KrustStreamRowWriter(DataSourceStreamWriter):
    """The sink of a stream on Spark 4.0."""

    def __init__(self, sink: SinkOptions, schema: StructType) -> None:
        self._writer = RowWriter(sink, roles(sink, schema))

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Write the rows of one task of a micro-batch."""
        return _write_stream(self._writer.sink, iterator, self._writer.rows)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Commit the transactions of the tasks."""
        if self._writer.sink.exactly_once:
            exactly_once.commit(self._writer.sink, messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Abort the transactions of the tasks. Without transactions, what is written stays."""
        if self._writer.sink.exactly_once:
            exactly_once.abort(self._writer.sink, messages, batchId)
        else:
            LOG.warning("Micro-batch %d failed; what its tasks wrote stays.", batchId)


if hasattr(datasource, "DataSourceStreamArrowWriter"):

    class KrustStreamArrowWriter(datasource.DataSourceStreamArrowWriter):
        """The sink of a stream on Spark 4.1 and newer."""

        def __init__(self, sink: SinkOptions, schema: StructType) -> None:
            self._writer = RowWriter(sink, roles(sink, schema))

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            """Write the rows of one task of a micro-batch."""
            return _write_stream(self._writer.sink, iterator, self._writer.batches)

        commit = KrustStreamRowWriter.commit
        abort = KrustStreamRowWriter.abort


def _write_stream(
    sink: SinkOptions,
    rows: Iterator[Any],
    write: Callable[[Producer, Iterator[Any]], int],
) -> WriterCommitMessage:
    if sink.exactly_once:
        return exactly_once.write_task(sink, exactly_once.stream_task(), rows, write)
    return _write_at_least_once(sink, rows, write)


def _write_at_least_once(
    sink: SinkOptions,
    rows: Iterator[Any],
    write: Callable[[Producer, Iterator[Any]], int],
) -> Written:
    """Every row is acknowledged when this returns."""
    with _producer(sink) as producer:
        return Written(write(producer, rows))


def batch_writer(sink: SinkOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of a batch. OptionError: a topic cannot be overwritten, or a job has no name."""
    if overwrite:
        raise OptionError(
            "KRUST_UNSUPPORTED_MODE",
            'A topic cannot be overwritten. Write .mode("append").',
        )
    if sink.exactly_once != (sink.job_id is not None):
        raise OptionError(
            "KRUST_MISSING_OPTION",
            "The options 'exactlyOnce' and 'jobId' of a batch write need each other: the name "
            "tells whether the rows are written already. Write e.g. "
            '.option("exactlyOnce", "true").option("jobId", "orders-2026-11-26").',
        )
    return KrustArrowWriter(sink, schema)


def stream_writer(sink: SinkOptions, schema: StructType) -> DataSourceStreamWriter:
    """The writer of a stream for the running Spark version."""
    if sink.job_id is not None:
        raise OptionError(
            "KRUST_UNSUPPORTED_OPTION",
            "Option 'jobId' is for batch writes: a stream is known by its checkpoint. "
            "Leave it out.",
        )
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        return KrustStreamArrowWriter(sink, schema)
    return KrustStreamRowWriter(sink, schema)
