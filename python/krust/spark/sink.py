"""`df.write.format("krust")` and `writeStream`: writes rows to topics with krust's producer.

The column `value` is needed; `key`, `headers`, `partition`, `topic` are used if they exist,
`timestamp` with keepTimestamp. Keys and values are text or binary. Other columns are not written.
Spark's Arrow batches go to Rust; streams of Spark 4.0 come row by row.

Promised: at least once. Rows that a failed task has written stay, and the repeated task writes them
again. After a successful task every row is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType, TimestampType

from krust.spark.errors import LOG, OptionError, PlanError
from krust.spark.reading import HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Row
    from pyspark.sql.types import DataType

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


def write_batches(sink: SinkOptions, columns: dict[str, str], batches: Iterator[Any]) -> Written:
    """Write Arrow batches. Every row is acknowledged when this returns."""
    rows = 0
    with _producer(sink) as producer:
        for batch in batches:
            if "topic" in columns and batch.column(columns["topic"]).null_count:
                raise _null_topic()
            if batch.num_rows:
                rows += producer.append(batch, topic=sink.topic, columns=columns)
    return Written(rows)


def write_rows(sink: SinkOptions, columns: dict[str, str], rows: Iterator[Row]) -> Written:
    """Write rows one by one. Every row is acknowledged when this returns."""
    count = 0
    with _producer(sink) as producer:
        for row in rows:
            found = {role: row[name] for role, name in columns.items()}
            topic = sink.topic if sink.topic is not None else found["topic"]
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
    return Written(count)


def _plain(value: Any) -> Any:
    """A value without Spark's bytearrays."""
    return bytes(value) if isinstance(value, bytearray) else value


def _producer(sink: SinkOptions) -> Any:
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
        self._sink, self._columns = sink, roles(sink, schema)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task."""
        return write_batches(self._sink, self._columns, iterator)


class KrustStreamRowWriter(DataSourceStreamWriter):
    """The sink of a stream on Spark 4.0."""

    def __init__(self, sink: SinkOptions, schema: StructType) -> None:
        self._sink, self._columns = sink, roles(sink, schema)

    def write(self, iterator: Iterator[Row]) -> Written:
        """Write the rows of one task of a micro-batch."""
        return write_rows(self._sink, self._columns, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing: every row was acknowledged."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing: written rows cannot be removed."""
        LOG.warning("Micro-batch %d failed; what its tasks wrote stays.", batchId)


if hasattr(datasource, "DataSourceStreamArrowWriter"):

    class KrustStreamArrowWriter(datasource.DataSourceStreamArrowWriter):
        """The sink of a stream on Spark 4.1 and newer."""

        def __init__(self, sink: SinkOptions, schema: StructType) -> None:
            self._sink, self._columns = sink, roles(sink, schema)

        def write(self, iterator: Iterator[Any]) -> Written:
            """Write the rows of one task of a micro-batch."""
            return write_batches(self._sink, self._columns, iterator)

        commit = KrustStreamRowWriter.commit
        abort = KrustStreamRowWriter.abort


def batch_writer(sink: SinkOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of a batch. OptionError: a topic cannot be overwritten."""
    if overwrite:
        raise OptionError(
            "KRUST_UNSUPPORTED_MODE",
            'A topic cannot be overwritten. Write .mode("append").',
        )
    return KrustArrowWriter(sink, schema)


def stream_writer(sink: SinkOptions, schema: StructType) -> DataSourceStreamWriter:
    """The writer of a stream for the running Spark version."""
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        return KrustStreamArrowWriter(sink, schema)
    return KrustStreamRowWriter(sink, schema)
