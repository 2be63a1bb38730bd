"""Writes topics to tables and tables to topics, for Spark programs.

    from krust.spark import pipeline

    with pipeline.to_delta(spark, "orders", "/lake/orders", bootstrap="localhost:9092",
                           decode={"valueFormat": "json", "valueSchema": "id bigint"}) as flow:
        flow.wait(timeout_ms=3_600_000)

`once=True` reads to the current end and stops; without it the flow continues with new records.
`krust.spark.table` has the promises. `krust pipeline run` does the same with a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from krust.errors import ConfigError
from krust.spark.flow import Flow
from krust.spark.recipe import Pipeline
from krust.spark.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from krust.spark.recipe import PipelineSettings, TableSettings

__all__ = [
    "Pipeline",
    "compact",
    "replay",
    "start",
    "to_delta",
    "to_iceberg",
    "to_parquet",
    "transform",
]
_FOLDER_BYTES = 256 << 20


def start(spark: SparkSession, made: Pipeline, *, once: bool = False) -> Flow:
    """Run a pipeline. The flow has to be stopped, or used with `with`."""
    flow = Flow(spark, made)
    try:
        flow.start(once=once)
    except BaseException:
        flow.__exit__()
        raise
    return flow


def to_parquet(
    spark: SparkSession,
    topics: str | Sequence[str],
    path: str,
    *,
    once: bool = False,
    **more: Unpack[TableSettings],
) -> Flow:
    """Write topics to Parquet files with manifests. `more`: see `TableSettings`."""
    return start(spark, _made(topics, "parquet", path, more), once=once)


def to_delta(
    spark: SparkSession,
    topics: str | Sequence[str],
    path: str,
    *,
    once: bool = False,
    **more: Unpack[TableSettings],
) -> Flow:
    """Write topics to a Delta table. `more`: see `TableSettings`."""
    return start(spark, _made(topics, "delta", path, more), once=once)


def to_iceberg(
    spark: SparkSession,
    topics: str | Sequence[str],
    table: str,
    *,
    once: bool = False,
    **more: Unpack[TableSettings],
) -> Flow:
    """Write topics to an Iceberg table `namespace.table`; `catalog={..}` is for pyiceberg."""
    return start(spark, _made(topics, "iceberg", table, more), once=once)


def transform(
    spark: SparkSession,
    topics: str | Sequence[str],
    function: Callable[[DataFrame], DataFrame],
    topic: str,
    *,
    once: bool = False,
    **more: Unpack[PipelineSettings],
) -> Flow:
    """Write topics through a function of DataFrames to another topic, at least once.

    Rows without a `value` column are written as JSON. `checkpoint=` is needed to continue.
    """
    made = _made(topics, "topic", topic, more | {"function": function})
    return start(spark, made, once=once)


def _made(topics: str | Sequence[str], sink: str, place: str, more: Mapping[str, Any]) -> Pipeline:
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    return Pipeline(names, sink, place, **{"name": Path(place).name or "pipeline", **more})


def replay(
    spark: SparkSession,
    kind: str,
    place: str,
    topic: str,
    *,
    bootstrap: str,
    keep_timestamp: bool = True,
    keep_partition: bool = False,
    per_second: int = 0,
    catalog: Mapping[str, str] | None = None,
) -> int:
    """Write a table of whole records (no decoding) to a topic, each partition in order.

    per_second  the most records a second, in all; 0: no limit
    returns     the number of records; at least once if tasks fail
    """
    from krust.spark.session import register

    files = open_table(kind, place, catalog).files()
    if not files:
        return 0
    frame = spark.read.parquet(*(f"file://{path}" for path in files))
    missing = {"value", "partition", "offset"} - set(frame.columns)
    if missing:
        raise ConfigError(
            f"{place} has no column {min(missing)!r}: its values were decoded",
            hint="a table that is to be replayed keeps records as they are: no [decode]",
        )
    register(spark)
    columns = ["key", "value"] + ["headers"] * ("headers" in frame.columns)
    columns += ["timestamp"] * keep_timestamp + ["partition"] * keep_partition
    tasks = max(1, frame.select("topic", "partition").distinct().count())
    ordered = frame.repartition(tasks, "topic", "partition")
    ordered = ordered.sortWithinPartitions("topic", "partition", "offset").select(*columns)
    if per_second:
        ordered = ordered.mapInArrow(_throttle(per_second / tasks), ordered.schema)
    rows: int = frame.count()
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    options |= {"keepTimestamp": str(keep_timestamp), "keepPartition": str(keep_partition)}
    ordered.write.format("krust").mode("append").options(**options).save()
    return rows


def _throttle(
    per_second: float,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        began, rows = time.monotonic(), 0
        for batch in batches:
            step = max(1, round(per_second / 10))
            for first in range(0, batch.num_rows, step):
                piece = batch.slice(first, step)
                rows += piece.num_rows
                time.sleep(max(0.0, began + rows / per_second - time.monotonic()))
                yield piece

    return slowly


def compact(
    kind: str,
    place: str,
    *,
    file_bytes: int = _FOLDER_BYTES,
    catalog: Mapping[str, str] | None = None,
) -> tuple[int, int]:
    """Merge a table's small files and delete old orphans. Returns (files removed, files added)."""
    table = open_table(kind, place, catalog)
    table.sweep()
    return table.compact(file_bytes)
