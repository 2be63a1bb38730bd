"""Topics as dataframes: `krust.scan` reads a topic as Arrow, `krust.append` writes a table to one.

    orders = krust.scan("orders", since="-1h", bootstrap="localhost:9092")
    orders.arrow(), orders.pl(), orders.df()          # pyarrow, polars, pandas
    for row in orders: row["offset"], row["value"]    # a dict a record
    polars.DataFrame(orders), duckdb.sql("select count(*) from orders")   # no pyarrow needed
    krust.append("copy", orders, key="key", value="value", bootstrap="localhost:9092")

Columns are those of Spark's Kafka source: key and value (binary), topic, partition, offset,
timestamp (microseconds, UTC), timestampType, headers. A scan ends where the topic ended when the
reading began. Each use of a Scan reads again. With `data_dir` it reads the segment files, with or
without a running broker.
Not promised: an order between partitions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from krust import _krust, offset_range
from krust.clients import options
from krust.clients.consumer import COLUMNS
from krust.clients.keywords import ScanSettings, keys
from krust.clients.producer import Producer
from krust.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from krust.clients.keywords import ProducerSettings

SETTINGS = options.FETCH | keys(ScanSettings)
UNKNOWN_TOPIC = 3

When: TypeAlias = str | int | datetime
"""A position of `krust.offset_range`. A time need not have its @. A number is an offset."""


def scan(
    topic: str,
    since: When = "start",
    until: When | None = None,
    *,
    partitions: Iterable[int] | None = None,
    columns: Iterable[str] = COLUMNS,
    bootstrap: str | None = None,
    data_dir: str | Path | Iterable[str | Path] | None = None,
    isolation_level: str = "read_uncommitted",
    lost: str = "fail",
    **settings: Unpack[ScanSettings],
) -> Scan:
    """Describe a reading of a topic. Nothing is read yet.

    since, until  begin and end: SPEC of `krust.offset_range` ("start", 10, "-3", "-1h",
                  "2026-11-01T10:30", a datetime); `since` may be a range ("10:20", "-1h:+100")
    partitions    the partitions; default: all
    columns       the columns, in this order; others are not decoded
    bootstrap     the brokers to read from, with `settings` of clients (`fetch_max_bytes=...`); or
    data_dir      the log directory or directories to read from
    lost          for deleted offsets: "fail" or "skip"
    raises        ConfigError: an invalid argument
    """
    if (bootstrap is None) == (data_dir is None):
        raise ConfigError("give bootstrap= or data_dir=, one of the two")
    more: dict[str, object] = {**settings, "isolation_level": isolation_level}
    if lost not in ("fail", "skip"):
        raise ConfigError(f"lost: {lost!r} is neither fail nor skip")
    if bootstrap is None:
        if settings:
            raise ConfigError("files have no such settings", hint=", ".join(settings))
        given: dict[str, object] = {"isolation.level": isolation_level}
    else:
        given = options.read(SETTINGS, {options.BOOTSTRAP: bootstrap}, more)
    options.choice(given, "isolation.level", "read_uncommitted", "read_committed")
    wanted = list(columns)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown or len(set(wanted)) < len(wanted):
        raise ConfigError(f"columns: {wanted} are not of {', '.join(COLUMNS)}, each once")
    return Scan(
        topic,
        _range(since, until),
        wanted,
        None if partitions is None else sorted(set(partitions)),
        given,
        _directories(data_dir),
        lost,
    )


def append(
    topic: str | None,
    table: object,
    *,
    value: str | None = "value",
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    topics: str | None = None,
    bootstrap: str,
    **settings: Unpack[ProducerSettings],
) -> int:
    """Write each row of a table as a record. Returns the number of records, all acknowledged.

    topic     the topic of all rows; None: the column that `topics` names has it
    table     anything with `__arrow_c_stream__` or `__arrow_c_array__`: of pyarrow, polars,
              pandas, duckdb, a `Scan` ...
    value ..  the columns: key and value binary or text, headers a list of {key, value} or a map,
              partition any integer, timestamp a timestamp or milliseconds
    settings  of `krust.Producer`: `compression_type="zstd"`
    raises    ConfigError: a column is missing or has a wrong type, or a row is no valid record;
              KafkaError, UnreachableError: not all rows were written
    """
    roles = {
        "value": value,
        "key": key,
        "headers": headers,
        "partition": partition,
        "timestamp": timestamp,
        "topic": topics,
    }
    columns = {role: column for role, column in roles.items() if column is not None}
    with Producer({options.BOOTSTRAP: bootstrap}, **settings) as producer:
        return producer.append(table, columns=columns, topic=topic)


@dataclass(frozen=True)
class Scan:
    """A topic, or a part of it, as a table for any reader of Arrow's PyCapsule interface."""

    topic: str
    extent: offset_range.OffsetRange
    columns: list[str]
    partitions: list[int] | None
    _given: Mapping[str, object] = field(repr=False)
    _directories: list[Path] = field(repr=False)
    _lost: str = field(repr=False, default="fail")

    def arrow(self) -> pa.Table:
        """All of it, as a pyarrow.Table."""
        import pyarrow

        table: pa.Table = self._read(pyarrow.table)
        return table

    def pl(self) -> pl.DataFrame:
        """All of it, as a polars.DataFrame."""
        import polars

        frame: pl.DataFrame = self._read(polars.DataFrame)
        return frame

    def df(self) -> pd.DataFrame:
        """All of it, as a pandas.DataFrame."""
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each record as a dict by column, read a batch at a time; needs pyarrow."""
        import pyarrow

        stream = self.stream()
        batches = self._call_reader(stream, pyarrow.RecordBatchReader.from_stream)
        while (batch := self._call_reader(stream, lambda _: next(batches, None))) is not None:
            yield from batch.to_pylist()

    def ranges(self) -> list[tuple[str, int, int, int]]:
        """The ranges to read: (topic, partition, first offset, end offset)."""
        bounds = self._bounds()
        if self.partitions is not None:
            missing = sorted(set(self.partitions) - bounds.keys())
            if missing:
                what = f"{self.topic}:{missing[0]}: UNKNOWN_TOPIC_OR_PARTITION"
                raise KafkaError(what, code=UNKNOWN_TOPIC, name="UNKNOWN_TOPIC_OR_PARTITION")
            bounds = {number: bounds[number] for number in self.partitions}
        times = self._times(list(bounds))
        found = []
        for number, (start, end) in bounds.items():
            first, last = self.extent.resolve(start, end, times.get(number))
            found.append((self.topic, number, first, end if last is None else min(last, end)))
        return found

    def stream(self) -> _krust.ArrowStream:
        """Begin one reading, with its `positions`, `skipped` and `failure`."""
        place: dict[str, Any] = {"data_dirs": self._directories}
        given = dict(self._given)
        if not self._directories:
            place = {"bootstrap": given.pop(options.BOOTSTRAP)}
        chosen = options.core(given, SETTINGS)
        return _krust.scan(self.ranges(), self.columns, options=chosen, lost=self._lost, **place)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Begin to read, by the Arrow PyCapsule interface."""
        return self.stream().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The columns' types, by the Arrow PyCapsule interface."""
        return _krust.scan([], self.columns, data_dirs=[]).__arrow_c_schema__()

    def _read(self, reader: Any) -> Any:
        return self._call_reader(self.stream(), reader)

    @staticmethod
    def _call_reader(stream: _krust.ArrowStream, reader: Any) -> Any:
        """Call a reader of a stream. Raises the stream's own error if there is one."""
        try:
            return reader(stream)
        except Exception as error:
            failure = stream.failure()
            if failure is None:
                raise
            raise failure from error

    def _bounds(self) -> dict[int, tuple[int, int]]:
        """First and next offset of each partition."""
        committed = self._given.get("isolation.level") == "read_committed"
        if self._directories:
            found = _krust.partitions(self._directories, self.topic, read_committed=committed)
            return {number: (start, end) for number, start, end in found}
        client = self._client()
        body = {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False}
        [topic] = client.request("Metadata", body)["topics"]
        if topic["error_code"]:
            code = topic["error_code"]
            name, _ = _krust.error_info(code)
            raise KafkaError(f"topic {self.topic!r}: {name}", code=code, name=name)
        numbers = sorted(one["partition_index"] for one in topic["partitions"])
        starts = self._offsets(client, numbers, _krust.EARLIEST)
        ends = self._offsets(client, numbers, _krust.LATEST, committed=committed)
        return {number: (starts[number], ends[number]) for number in numbers}

    def _times(self, numbers: list[int]) -> dict[int, dict[int, int]]:
        """Partition -> the offsets of the times that the spec names."""
        times = self.extent.times()
        if not times or not numbers:
            return {}
        client = None if self._directories else self._client()
        found: dict[int, dict[int, int]] = {number: {} for number in numbers}
        for at in times:
            if client is not None:
                offsets = self._offsets(client, numbers, at)
            else:
                place = (self._directories, self.topic)
                offsets = {number: _krust.offset_at(*place, number, at) for number in numbers}
            for number in numbers:
                found[number][at] = offsets[number]
        return found

    def _offsets(
        self, client: _krust.Client, numbers: list[int], when: int, *, committed: bool = False
    ) -> dict[int, int]:
        """Partition -> the offset of a time. A request names a partition once."""
        moments = [(self.topic, number, when) for number in numbers]
        found = client.list_offsets(moments, read_committed=committed)
        return {number: offset for _, number, _, offset, _ in found}

    def _client(self) -> _krust.Client:
        common = options.core(dict(self._given), options.COMMON)
        return _krust.Client(str(self._given[options.BOOTSTRAP]), common)


def _directories(given: str | Path | Iterable[str | Path] | None) -> list[Path]:
    if given is None:
        return []
    return [Path(given)] if isinstance(given, (str, Path)) else [Path(one) for one in given]


def _range(since: When, until: When | None) -> offset_range.OffsetRange:
    begin = _position(since)
    if until is None:
        return begin
    if begin.end is not None:
        raise ConfigError(f"since={since!r} says already where the reading ends")
    if isinstance(until, str) and until.strip().startswith("+"):
        length = offset_range.parse(f":{until.strip()}", 0).end
        return offset_range.OffsetRange(begin.begin, length)
    end = _position(until)
    if end.end is not None:
        raise ConfigError(f"until={until!r} is not a place in a log")
    return offset_range.OffsetRange(begin.begin, end.begin)


def _position(when: When) -> offset_range.OffsetRange:
    if isinstance(when, datetime):
        return offset_range.OffsetRange(
            offset_range.RangePosition(
                offset_range.PositionKind.TIME, max(0, round(when.timestamp() * 1000))
            )
        )
    now_ms = int(time.time() * 1000)
    text = str(when)
    try:
        return offset_range.parse(text, now_ms)
    except offset_range.SpecError as error:
        try:
            return offset_range.parse(f"@{text}", now_ms)
        except offset_range.SpecError:
            raise ConfigError(f"{error}") from None
