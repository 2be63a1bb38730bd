"""Reports running queries: lag, rates, and commits to groups for tools that show lag.

    listener = KrustListener("localhost:9092", groups={"orders": "billing"})
    spark.streams.addListener(listener)

`groups` maps queries to groups. The option `groupId` of a source commits one micro-batch late and
never the last one; the listener commits after each progress. Spark calls a listener on one thread,
an event at a time. Any thread may call `queries` and `prometheus`.
Not promised: that a commit succeeds. A failure is logged as a warning; the checkpoint counts.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from krust.errors import KrustError
from krust.spark.errors import LOG
from krust.spark.group_commits import GroupCommitter
from krust.spark.plan import from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

    from krust.spark.plan import Offsets


@dataclass(frozen=True)
class QueryProgress:
    """The progress of a query.

    lag           partition -> offsets to read
    rows_s        rows processed a second in the last micro-batch
    input_rows_s  rows that arrived a second meanwhile
    eta_s         seconds until the lag is 0 at the current rate; None: never, or not known
    """

    query: str
    batch: int
    at: Offsets
    lag: Offsets = field(default_factory=dict)
    rows: int = 0
    rows_s: float = 0.0
    input_rows_s: float = 0.0
    eta_s: float | None = None

    def line(self) -> str:
        """One line for people."""
        waiting = sum(self.lag.values())
        left = "" if self.eta_s is None else f", {self.eta_s:.0f} s left"
        return (
            f"{self.query}: batch {self.batch}, {self.rows} rows, {self.rows_s:,.0f} rows/s, "
            f"{waiting:,} offsets behind{left}"
        )


class KrustListener(StreamingQueryListener):
    """Commits the offsets of queries, and keeps their progress.

    bootstrap  the brokers for commits
    groups     the name or id of a query -> its group; "*": all others
    show       called with the new progress of a query, e.g. `lambda s: print(s.line())`
    client     settings of the client that commits, e.g. {"client.id": "spark"}
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        groups: Mapping[str, str] | None = None,
        *,
        show: Callable[[QueryProgress], object] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._bootstrap, self._groups = bootstrap, dict(groups or {})
        self._show, self._client = show, dict(client or {})
        self._queries: dict[str, QueryProgress] = {}
        self._names: dict[str, str] = {}
        self._pending: dict[str, Offsets] = {}
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the query's name."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep and show the progress, commit the offsets."""
        progress = event.progress
        name = progress.name or str(progress.id)
        current = query_progress(progress)
        if current is None:
            return
        with self._lock:
            self._queries[name] = current
        if self._show is not None:
            self._show(current)
        self._commit(str(progress.id), name, current.at)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """The query is idle; repeat a failed commit."""
        key = str(event.id)
        if key in self._pending:
            self._commit(key, self._names.get(key, key), self._pending[key])

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended; repeat a failed commit once."""
        key = str(event.id)
        if key in self._pending:
            self._commit(key, self._names.get(key, key), self._pending[key])
        self._pending.pop(key, None)

    def queries(self) -> dict[str, QueryProgress]:
        """The last progress of each query, by name."""
        with self._lock:
            return dict(self._queries)

    def prometheus(self) -> str:
        """The progress of all queries in Prometheus' text format."""
        lines = []
        for metric, kind, words in _METRICS:
            lines += [f"# HELP {metric} {words}", f"# TYPE {metric} {kind}"]
            for current in self.queries().values():
                lines += _samples(metric, current)
        return "\n".join(lines) + "\n"

    def _commit(self, key: str, name: str, offsets: Offsets) -> None:
        group = self._groups.get(name) or self._groups.get(key) or self._groups.get("*")
        if group is None or self._bootstrap is None:
            return
        try:
            GroupCommitter(self._bootstrap, group, self._client).commit(offsets)
        except KrustError as error:
            self._pending[key] = offsets
            LOG.warning("Group '%s' was not committed for query '%s': %s", group, name, error)
        else:
            self._pending.pop(key, None)


def query_progress(progress: StreamingQueryProgress) -> QueryProgress | None:
    """The progress of a query from its report; None: it has no source of topics."""
    at: Offsets = {}
    ends: Offsets = {}
    for source in progress.sources:
        found = _offsets(source.endOffset)
        if found is None:
            continue
        at |= found
        ends |= _offsets(source.latestOffset) or {}
    if not at:
        return None
    lag = {place: max(0, ends[place] - offset) for place, offset in at.items() if place in ends}
    lag |= {place: end for place, end in ends.items() if place not in at}
    rows_s, input_s = progress.processedRowsPerSecond, progress.inputRowsPerSecond
    waiting, gain = sum(lag.values()), rows_s - (input_s if input_s < rows_s else 0)
    eta = 0.0 if not waiting else waiting / gain if gain > 0 else None
    return QueryProgress(
        query=progress.name or str(progress.id),
        batch=progress.batchId,
        at=at,
        lag=lag,
        rows=progress.numInputRows,
        rows_s=rows_s,
        input_rows_s=input_s,
        eta_s=eta,
    )


_METRICS = (
    ("krust_spark_lag", "gauge", "Offsets that a query has still to read, by partition."),
    ("krust_spark_offset", "gauge", "The next offset that a query reads, by partition."),
    ("krust_spark_rows_per_second", "gauge", "Rows processed a second in the last micro-batch."),
    ("krust_spark_batch", "counter", "The number of the last micro-batch."),
)


def _samples(metric: str, current: QueryProgress) -> list[str]:
    query = json.dumps(current.query, ensure_ascii=False)
    if metric in ("krust_spark_lag", "krust_spark_offset"):
        values = current.lag if metric == "krust_spark_lag" else current.at
        return [
            f'{metric}{{query={query},topic="{topic}",partition="{partition}"}} {value}'
            for (topic, partition), value in sorted(values.items())
        ]
    value = current.rows_s if metric == "krust_spark_rows_per_second" else current.batch
    return [f"{metric}{{query={query}}} {value}"]


def _offsets(text: str | None) -> Offsets | None:
    """The offsets of topics in a progress report; None: it is another kind of source."""
    try:
        return from_json(json.loads(text or "null")) or None
    except ValueError:
        return None
