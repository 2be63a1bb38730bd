"""Runs a pipeline: a Spark query over the source whose micro-batches are published once each.

Without a transformation no row reaches the JVM: tasks decode and write Parquet (`materialize` of
the source), and Spark gets manifest rows. With a transformation, rows pass through DataFrames and
the same code writes them in `mapInArrow`. In both cases the driver publishes by (job, batch), so a
micro-batch that Spark repeats changes nothing.
    <checkpoint>/krust.json   the id of the job, made for a new checkpoint, and the running process
    <checkpoint>/krust.lock   locked by the driver: one driver for each checkpoint
Threads: Spark's callback thread calls `publish`, the caller's thread everything else.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from krust.errors import KrustError
from krust.spark.failures import query_error
from krust.spark.files import MANIFEST_DDL, StagingTarget, TaskNaming
from krust.spark.table import Commit, listed, merged
from krust.spark.tables import KINDS, open_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from krust.spark.recipe import Pipeline
    from krust.spark.table import Offsets, Table


@dataclass
class Counts:
    """What a flow has published since its start."""

    batches: int = 0
    rows: int = 0
    bad_rows: int = 0
    files: int = 0
    bytes: int = 0


class Checkpoint:
    """Spark's checkpoint folder of a query, and krust's files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def take(self) -> None:
        """Lock the checkpoint. KrustError: another driver runs, or this is a forked child."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / "krust.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise self._running() from None

    def _running(self) -> KrustError:
        return KrustError(
            f"{self.path} is the checkpoint of a pipeline that runs "
            f"(process {self.metadata().get('pid', '?')})",
            hint="stop that one first, or give this one a name or checkpoint of its own",
        )

    def refuse_running(self) -> None:
        """KrustError: another driver runs."""
        if self.running() is not None:
            raise self._running()

    def free(self) -> None:
        """Unlock the checkpoint."""
        if self._lock is not None:
            self._lock.close()

    @property
    def new(self) -> bool:
        """Whether Spark has planned no batch yet, so the start is still open.

        A run that failed before its first batch leaves Spark's other files in the folder.
        """
        names = (path.name for path in listed(self.path / "offsets"))
        return not any(name.isdecimal() for name in names)

    def metadata(self) -> dict[str, Any]:
        """The content of krust.json; {}: there is none."""
        try:
            found: dict[str, Any] = json.loads((self.path / "krust.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def job(self) -> str:
        """The id of the checkpoint's job. A new checkpoint gets a new one."""
        known = self.metadata().get("job")
        job = str(uuid.uuid4()) if self.new or not known else str(known)
        metadata = {"job": job, "pid": os.getpid(), "started_ms": int(time.time() * 1000)}
        draft = self.path / ".krust.json"
        draft.write_text(json.dumps(metadata))
        draft.replace(self.path / "krust.json")
        return job

    def running(self) -> int | None:
        """The process that runs it; None: none."""
        try:
            with (self.path / "krust.lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return int(self.metadata().get("pid", 0))
        return None

    def reached(self) -> Offsets:
        """The end of the newest batch that Spark has finished; {}: there is none."""
        names = [path.name for path in listed(self.path / "commits")]
        return self.offsets(max((int(name) for name in names if name.isdecimal()), default=-1))

    def offsets(self, batch: int) -> Offsets:
        """The end of a batch, from Spark's offset log; {}: there is no such batch."""
        try:
            lines = (self.path / "offsets" / str(batch)).read_text().splitlines()
            found = json.loads(lines[-1])
        except (FileNotFoundError, ValueError, IndexError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {topic: ends for topic, ends in found.items() if isinstance(ends, dict) and ends}


class Flow:
    """One run of a pipeline. The end of its `with` stops and unlocks it.

    once   read to the current end, then stop
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.counts = Counts()
        self.offsets: Offsets = {}
        self.table: Table | None = None
        self._spark = spark
        self._failure: Exception | None = None
        self._query: Any = None
        self._bad: Any = None
        self._checkpoint = Checkpoint(pipeline.checkpoint_path)
        self._checkpoint.take()
        try:
            self._job = self._checkpoint.job()
        except BaseException:
            self._checkpoint.free()
            raise

    def start(self, *, once: bool) -> None:
        """Begin reading where the last run ended, or at the table's offsets.

        raises  KrustError: a problem of the sink, the source or the transformation
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._failure = None
        try:
            self._query = self._started(once=once)
        except (PySparkException, Py4JError) as error:
            raise query_error(error, "cannot start") from error

    def _started(self, *, once: bool) -> Any:
        frame = self._frame()
        writer = frame.writeStream.queryName(f"krust {self.pipeline.name}")
        writer = writer.option("checkpointLocation", str(self._checkpoint.path))
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(
                processingTime=f"{round(self.pipeline.trigger_ms)} milliseconds"
            )
        if self.pipeline.sink == "topic":
            options = {"topic": self.pipeline.place, "kafka.bootstrap.servers": self._bootstrap}
            writer = writer.format("krust").options(**options)
        else:
            writer = writer.foreachBatch(self._caught)
        return writer.start()

    def wait(self, timeout_ms: float) -> bool:
        """Wait for the end. Returns whether it has come. KrustError: the run failed."""
        from pyspark.errors import StreamingQueryException

        try:
            ended = bool(self._query.awaitTermination(timeout_ms / 1000))
        except StreamingQueryException as error:
            raise self._failure or query_error(error) from error
        return ended

    def progress(self) -> dict[str, Any]:
        """Spark's newest report; {}: none yet."""
        found = self._query.lastProgress if self._query is not None else None
        return json.loads(found.json) if found is not None else {}

    def reached(self) -> Offsets:
        """The offsets that it has reached: the table's, or for a topic those of the checkpoint."""
        return self._checkpoint.reached() if self.table is None else self.offsets

    def stop(self) -> None:
        """Stop. The next run reads again what was not published."""
        if self._query is not None:
            self._query.stop()

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._checkpoint.free()

    @property
    def _bootstrap(self) -> str:
        return self.pipeline.bootstrap

    def _frame(self) -> DataFrame:
        """The rows of the query: manifest rows, or transformed rows."""
        made = self.pipeline
        if made.sink == "topic":
            return as_records(self._transformed())
        if made.transforms:
            frame = self._transformed()
            self._open(arrow_schema(frame))
            return frame
        table = self._open(direct_schema(made))
        options = {"materialize": "parquet", "fileJob": self._job, "path": str(table.path)}
        options |= {"fileMegabytes": str(made.file_mb), "fileCompression": made.compression}
        return self._source(options | dict(made.decode))

    def _open(self, columns: pa.Schema) -> Table:
        """Open the table for these columns. ConfigError: one has another type there."""
        made = self.pipeline
        self.table = open_table(made.sink, made.place, made.catalog, schema=columns)
        self.table.refuse_changed(columns)
        self.offsets = self.table.offsets(made.name)
        return self.table

    def _target(self, table: Table) -> StagingTarget:
        made = self.pipeline
        return StagingTarget(str(table.path), made.file_mb << 20, made.compression)

    def _source(self, more: dict[str, str]) -> DataFrame:
        from krust.spark.positions import source_options
        from krust.spark.session import register

        register(self._spark)
        options = {"maxOffsetsPerTrigger": str(self.pipeline.max_per_trigger)}
        options |= self._begin() | source_options(self.pipeline) | more
        return self._spark.readStream.format("krust").options(**options).load()

    def _begin(self) -> dict[str, str]:
        """The options that set the start of a new checkpoint."""
        from krust.spark import positions

        if not self._checkpoint.new:
            return {}
        return positions.starting(self.pipeline, self.offsets)

    def _transformed(self) -> DataFrame:
        made = self.pipeline
        whole = {"includeHeaders": "true"}
        frame = self._source({} if made.sink in KINDS else whole)
        if made.decode:
            self._bad = self._spark.sparkContext.accumulator(0)
            frame = decoded(frame, self._target_of_decoding(), self._bad)
        return applied(self._spark, made, frame)

    def _target_of_decoding(self) -> StagingTarget:
        made = self.pipeline
        place = made.place if made.sink in ("parquet", "delta") else str(self._checkpoint.path)
        client = {"bootstrap.servers": self._bootstrap}
        client |= {
            name.removeprefix("kafka."): value
            for name, value in made.source_options.items()
            if name.startswith("kafka.")
        }
        return StagingTarget(place, decoding=made.decode, client=client)

    def _caught(self, frame: DataFrame, batch: int) -> None:
        """Publish a batch, and keep its exception, of which Spark returns only the text."""
        try:
            self._publish(frame, batch)
        except Exception as error:
            self._failure = query_error(error)
            raise

    def _publish(self, frame: DataFrame, batch: int) -> None:
        made, table = self.pipeline, self.table
        if table is None:
            raise RuntimeError("a batch came before its table was opened")
        rows: list[dict[str, Any]] = []
        if table.committed(self._job) < batch:
            if made.transforms:
                frame = written(frame, self._target(table), TaskNaming(self._job, batch, 0))
            rows = [row.asDict() for row in frame.collect()]
            if not rows:  # the first batch of a stream only sets its start
                return
        ends = self._checkpoint.offsets(batch)
        starts = self._checkpoint.offsets(batch - 1) if made.transforms else {}
        commit = Commit(self._job, batch, rows, ends or _ends(rows), starts, made.name)
        if table.publish(commit):
            self.counts.batches += 1
            self.counts.rows += commit.records
            self.counts.bad_rows += sum(row["bad_rows"] for row in rows)
            if self._bad is not None:
                self.counts.bad_rows = int(self._bad.value)
            self.counts.files += len(commit.files)
            self.counts.bytes += sum(row["bytes"] for row in rows)
        self.offsets = merged(self.offsets, commit.offsets)


def _ends(rows: list[dict[str, Any]]) -> Offsets:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["topic"] and row["end_offset"] is not None and row["end_offset"] >= 0:
            found.setdefault(row["topic"], {})[str(row["partition"])] = row["end_offset"]
    return found


def applied(spark: SparkSession, made: Pipeline, frame: DataFrame) -> DataFrame:
    """The rows after the pipeline's SQL or function."""
    if made.sql:
        frame.createOrReplaceTempView("input")
        return spark.sql(made.sql)
    return frame if made.function is None else made.function(frame)


def transformed_columns(spark: SparkSession, made: Pipeline) -> pa.Schema:
    """The columns of the transformation's result, without records. KrustError: it fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from krust.decode import ddl

    schema = direct_schema(made, headers=made.sink not in KINDS)
    try:
        frame = applied(spark, made, spark.createDataFrame([], ddl.text(schema)))
        return arrow_schema(frame)
    except (PySparkException, Py4JError) as error:
        raise query_error(error, "cannot start") from error


def decoded(frame: DataFrame, target: StagingTarget, counter: Any) -> DataFrame:
    """Decode records in the workers. Bad records are handled as the options say.

    counter  an accumulator of bad records, including those of repeated tasks
    """
    from krust.decode import ddl
    from krust.decode.rows import Rows

    rows = Rows(target.decoding)
    source = arrow_schema(frame)
    columns = [name for name in rows.columns if name in source.names]
    words = ddl.text(rows.schema(source))

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from krust.spark.dead_letters import BadRecords

        stem = f"transform-{os.getpid()}"
        with BadRecords(target.decoding, target.path, stem, target.client) as bad:
            for good, apart in Rows(target.decoding).split(batches):
                if apart is not None:
                    bad.take(apart)
                    counter.add(apart.num_rows)
                yield good

    return frame.select(*columns).mapInArrow(decode, words)


def written(frame: DataFrame, target: StagingTarget, naming: TaskNaming) -> DataFrame:
    """Write rows to staged files in the workers. Returns manifest rows."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import dataclasses

        from pyspark import TaskContext

        from krust.spark.files import materialize

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        yield materialize(map(nullable, batches), target, dataclasses.replace(naming, task=task))

    return frame.mapInArrow(write, MANIFEST_DDL)


def nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with nullable columns and UTC times, so that all batches have one schema."""
    import pyarrow as pa

    schema = pa.schema([pa.field(one.name, _plain(one.type)) for one in batch.schema])
    return batch if schema == batch.schema else batch.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _plain(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a DataFrame, as `nullable` leaves them."""
    import pyarrow as pa

    return pa.schema([pa.field(one.name, _arrow_type(one.dataType)) for one in frame.schema])


def _arrow_type(kind: Any) -> pa.DataType:
    import pyarrow as pa

    from krust.decode import ddl

    match kind.typeName():
        case "struct":
            return pa.struct([pa.field(one.name, _arrow_type(one.dataType)) for one in kind])
        case "array":
            return pa.list_(pa.field("element", _arrow_type(kind.elementType)))
        case "map":
            return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
    return ddl.schema(f"column {kind.simpleString()}").field(0).type


def direct_schema(pipeline: Pipeline, *, headers: bool = False) -> pa.Schema:
    """The columns of a table that the source writes directly."""
    from krust.decode import ddl
    from krust.decode.rows import Rows
    from krust.spark.reading import full_schema, sql_columns

    headers |= pipeline.source_options.get("includeHeaders", "false").lower() == "true"
    source = ddl.schema(sql_columns(full_schema(headers)))
    return Rows(pipeline.decode).schema(source) if pipeline.decode else source


def as_records(frame: DataFrame) -> DataFrame:
    """Rows for a topic: unchanged if they have a `value`, else JSON of all columns except `_..`."""
    from pyspark.sql import functions as f

    if "value" in frame.columns:
        return frame.select(*(one for one in frame.columns if one in _SINK))
    shown = [one for one in frame.columns if not one.startswith("_")]
    value = f.to_json(f.struct(*(frame[one] for one in shown))).alias("value")
    own = [frame["_key"].alias("key")] if "_key" in frame.columns else []
    return frame.select(*own, value)


_SINK = ("key", "value", "headers")
"""Columns that are written to a topic. The source's topic and partition are not."""
