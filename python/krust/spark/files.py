"""Writes records to Parquet files in a Spark worker: rolled by size, staged, with manifest rows.

    <table>/_staging/<job>-<batch>-<task>-<12 hex>-<n>.parquet      until they are published

No name is used twice, so another attempt of a task never writes into a published file. A file
without a manifest row is an orphan. Publishing a batch deletes the orphans of that batch.
Promised: a manifest row is made after its file is complete and synced. The rows of a range are in
the order of the batches. Memory is bounded by GROUP_BYTES and one batch.
Not promised: that the directory entry of a file survives a power failure (publishing syncs it).
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from krust.spark.dead_letters import BadRecords

STAGING = "_staging"
GROUP_BYTES = 32 << 20
"""The size in memory of the rows of a row group."""
FILE_MB = 256
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
MANIFEST_DDL = (
    "path string, topic string, partition int, start_offset bigint, end_offset bigint, "
    "first_offset bigint, last_offset bigint, rows bigint, bytes bigint, min_timestamp bigint, "
    "max_timestamp bigint, bad_rows bigint, stats string"
)
"""The columns of a manifest row in Spark's SQL. Timestamps are microseconds since 1970."""
_NAME = re.compile(r"(?P<job>.+)-(?P<batch>\d+)-(?P<task>\d+)-[0-9a-f]{12}-\d+\.parquet")


@dataclass(frozen=True)
class TaskNaming:
    """The task that writes, and its range.

    job     the id of the query's checkpoint, which is unique
    start, end  offsets of the range [start, end); -1: the rows have no offsets
    """

    job: str
    batch: int
    task: int
    topic: str = ""
    partition: int = -1
    start: int = -1
    end: int = -1


@dataclass(frozen=True)
class StagingTarget:
    """The files that a task writes.

    path        the folder of the table, shared by all workers and the driver
    file_bytes  the size at which a file is closed and the next one begun
    decoding    options of decoding (`krust.decode.options`); empty: no decoding
    client      Kafka's settings, for a dead-letter topic
    """

    path: str
    file_bytes: int = FILE_MB << 20
    codec: str = "zstd"
    decoding: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str] | None:
        """The columns of the record to read; None: those of the source."""
        from krust.decode.rows import Rows

        return Rows(self.decoding).columns if self.decoding else None

    @property
    def staging(self) -> Path:
        """The folder of files that are not published yet."""
        return Path(self.path) / STAGING

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StagingTarget:
        """Read a source's options: path, fileMegabytes, fileCompression, and those of decoding.

        raises  ConfigError: a missing or invalid one
        """
        from krust.decode import options as decoding

        given = {name.lower(): str(value) for name, value in options.items()}
        megabytes = given.get("filemegabytes", str(FILE_MB))
        if not megabytes.isdecimal() or not int(megabytes):
            raise ConfigError(f"fileMegabytes: {megabytes!r} is not a number from 1 up")
        codec = given.get("filecompression", "zstd").lower()
        if codec not in CODECS:
            raise ConfigError.choice("fileCompression", CODECS, codec)
        if "path" not in given:
            raise ConfigError(
                "materialize=parquet needs a folder", hint='write .option("path", "/data/table")'
            )
        path = str(local_path(given["path"]))
        client = {n.removeprefix("kafka."): v for n, v in given.items() if n.startswith("kafka.")}
        return cls(path, int(megabytes) << 20, codec, decoding.chosen(given), client)


def local_path(text: str) -> Path:
    """A folder of this machine, or mounted on it. ConfigError: it is remote."""
    scheme, colon, rest = text.partition("://")
    if colon and scheme != "file":
        raise ConfigError(
            f"{text!r}: tables are written to mounted file systems, not yet to {scheme}://",
            hint="give a path that the driver and every worker see",
        )
    return Path(rest if colon else text.removeprefix("file:")).absolute()


def manifest_schema() -> pa.Schema:
    """MANIFEST_DDL as an Arrow schema."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
    pairs = (column.split() for column in MANIFEST_DDL.split(", "))
    return pa.schema([(name, kinds[kind]) for name, kind in pairs])


def materialize(
    batches: Iterable[pa.RecordBatch], target: StagingTarget, naming: TaskNaming
) -> pa.RecordBatch:
    """Write batches as Parquet files in the target's staging folder.

    batches  have one schema; `offset` and `timestamp` of raw records give the manifest its bounds
    returns  rows of `manifest_schema`, one for each file. Without records it has one row whose path
             is null, which shows that the range was read
    raises   the exceptions of reading the batches; then the files of this call are removed
    """
    import pyarrow as pa

    from krust.spark.dead_letters import BadRecords

    stem = f"{naming.job}-{naming.batch:012d}-{naming.task:05d}"
    with BadRecords(target.decoding, target.path, stem, target.client) as bad:
        if target.decoding:
            batches = _decoded(batches, target, bad)
        rows = list(_written(batches, target, naming, stem))
    if not rows:
        rows = [_row(naming)]
    rows[0]["bad_rows"] = bad.count
    return pa.RecordBatch.from_pylist(rows, schema=manifest_schema())


def _decoded(
    batches: Iterable[pa.RecordBatch], target: StagingTarget, bad: BadRecords
) -> Iterator[pa.RecordBatch]:
    from krust.decode.rows import Rows

    for good, apart in Rows(target.decoding).split(batches):
        if apart is not None:
            bad.take(apart)
        yield good


def _row(naming: TaskNaming) -> dict[str, Any]:
    return {
        "topic": naming.topic,
        "partition": naming.partition,
        "start_offset": naming.start,
        "end_offset": naming.end,
        "rows": 0,
        "bytes": 0,
        "bad_rows": 0,
    }


def _written(
    batches: Iterable[pa.RecordBatch], target: StagingTarget, naming: TaskNaming, stem: str
) -> Iterator[dict[str, Any]]:
    stem = f"{stem}-{secrets.token_hex(6)}"  # unique to this attempt
    made: list[Path] = []
    groups = _groups(batches)
    group = next(groups, None)
    try:
        while group is not None:
            target.staging.mkdir(parents=True, exist_ok=True)
            path = target.staging / f"{stem}-{len(made)}.parquet"
            made.append(path)
            with _File(path, group.schema, target).open() as file:
                while group is not None and not file.full():
                    file.write(group)
                    group = next(groups, None)
            yield _row(naming) | file.manifest_row()
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Collect batches into row groups."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


class _File:
    """One Parquet file and the bounds of its records."""

    def __init__(self, path: Path, schema: pa.Schema, target: StagingTarget) -> None:
        self._path, self._schema, self._target = path, schema, target
        self._rows = 0
        self._bounds: dict[str, tuple[int, int]] = {}
        self._metadata: list[Any] = []
        self._sink: Any = None

    @contextmanager
    def open(self) -> Iterator[_File]:
        """Rows are written inside the `with`. After it the file is complete and synced."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        offsets = [name for name in ("offset", "_offset") if name in self._schema.names]
        with self._path.open("xb") as raw:
            self._sink = pa.PythonFile(raw, mode="w")
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._target.codec,
                version="2.6",
                use_dictionary=[name for name in self._schema.names if name not in offsets],
                column_encoding=dict.fromkeys(offsets, "DELTA_BINARY_PACKED") or None,
                metadata_collector=self._metadata,
                write_statistics=True,
            )
            with self._writer:
                yield self
            raw.flush()
            os.fsync(raw.fileno())

    def full(self) -> bool:
        """Whether the next rows go into another file."""
        return bool(self._rows) and self._sink.tell() >= self._target.file_bytes

    def write(self, table: pa.Table) -> None:
        """Append a row group."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        for name in ("offset", "timestamp"):
            found = name if name in table.column_names else f"_{name}"
            column = table.column(found) if found in table.column_names else None
            if column is None or not (
                pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)
            ):
                continue
            bounds = pc.min_max(column.cast(pa.int64()))
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is not None:
                known = self._bounds.get(name, (low, high))
                self._bounds[name] = (min(low, known[0]), max(high, known[1]))

    def manifest_row(self) -> dict[str, Any]:
        """Its manifest row, once it is closed."""
        first, last = self._bounds.get("offset", (None, None))
        oldest, newest = self._bounds.get("timestamp", (None, None))
        return {
            "path": str(self._path),
            "first_offset": first,
            "last_offset": last,
            "rows": self._rows,
            "bytes": self._path.stat().st_size,
            "min_timestamp": oldest,
            "max_timestamp": newest,
            "stats": json.dumps(_stats(self._metadata[0], self._schema)),
        }


def _stats(metadata: Any, schema: pa.Schema) -> dict[str, Any]:
    """Delta's statistics of a file, for number columns with bounds."""
    import pyarrow as pa

    numbers = {name for name in schema.names if pa.types.is_integer(schema.field(name).type)}
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    nulls: dict[str, int] = {}
    complete = set(numbers)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name, found = column.path_in_schema, column.statistics
            if name not in numbers:
                continue
            if found is None or not found.has_null_count:
                complete.discard(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max:
                low[name] = min(low.get(name, found.min), found.min)
                high[name] = max(high.get(name, found.max), found.max)
            elif found.null_count != group.num_rows:
                complete.discard(name)
    kept = {"minValues": low, "maxValues": high, "nullCount": nulls}
    return {"numRecords": metadata.num_rows} | {
        kind: {name: value for name, value in values.items() if name in complete}
        for kind, values in kept.items()
    }


def staged_by(name: str) -> tuple[str, int] | None:
    """The job and batch of a staged file, from its name; None: it is not a staged file."""
    found = _NAME.fullmatch(name)
    return (found["job"], int(found["batch"])) if found else None
