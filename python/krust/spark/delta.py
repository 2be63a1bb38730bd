"""Delta tables by delta-rs: no jar, no JVM.

A batch is one commit: its files, a `txn` with (job, batch), and the offsets in `commitInfo`. By
Delta's rule only one commit of a batch succeeds: of two commits with the same `txn` the later
fails.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from krust.spark.moving_table import PUBLISH, MovingTable
from krust.spark.table import Commit, Offsets, TableState, merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_PAGES = (20, 1000, None)
_TRIES = 5
"""attempts of one commit, while other writers create or change the table"""


class DeltaLakeTable(MovingTable):
    """A Delta table in a folder. The first batch creates it."""

    kind = "delta"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._table: Any = None

    @property
    def folder(self) -> Path:
        """The folder of the table, because Delta names files relative to it."""
        return self.path

    def _open(self) -> Any:
        """Open the table; None: it does not exist yet."""
        from deltalake import DeltaTable

        if self._table is None:
            if not DeltaTable.is_deltatable(str(self.path)):
                return None
            self._table = DeltaTable(str(self.path))
        else:
            self._table.update_incremental()
        return self._table

    def committed(self, job: str) -> int:
        """By Delta's application transactions."""
        table = self._open()
        version = table.transaction_version(job) if table is not None else None
        return -1 if version is None else int(version)

    def _history(self) -> Iterator[dict[str, Any]]:
        """The commits in the log, newest first."""
        table = self._open()
        if table is None:
            return
        seen = 0
        for limit in _PAGES:
            page = table.history(limit)
            yield from page[seen:]
            if limit is None or len(page) < limit:
                return
            seen = len(page)

    def offsets(self, pipeline: str) -> Offsets:
        """The offsets of the newest commit that has them."""
        found = self._last(pipeline)
        return json.loads(found["krust.offsets"]) if found else {}

    def _last(self, pipeline: str) -> dict[str, Any] | None:
        return next((one for one in self._history() if one.get("krust.pipeline") == pipeline), None)

    def published(self, ids: set[str]) -> dict[str, bool | None]:
        """Read from the history; unknown if it does not reach back to the table's begin."""
        found: dict[str, bool | None] = {}
        first = None
        for one in self._history():
            first = one.get("version")
            if one.get(PUBLISH) in ids:
                found[one[PUBLISH]] = True
            if len(found) == len(ids):
                return found
        missing = False if first == 0 else None
        return dict.fromkeys(ids, missing) | found

    def state(self, pipeline: str) -> TableState:
        """Counted from the log."""
        import pyarrow as pa

        table = self._open()
        if table is None:
            return TableState(0, 0, 0, {})
        adds = pa.table(table.get_add_actions(flatten=True))
        last = self._last(pipeline) or {}
        return TableState(
            files=adds.num_rows,
            rows=sum(adds.column("num_records").to_pylist()),
            bytes=sum(adds.column("size_bytes").to_pylist()),
            offsets=json.loads(last.get("krust.offsets", "{}")),
            job=last.get("krust.job", ""),
            batch=int(last.get("krust.batch", -1)),
            time_ms=last.get("timestamp", -1),
        )

    def files(self) -> list[str]:
        """The files in the log."""
        table = self._open()
        return [] if table is None else list(table.file_uris())

    def _logged(self, commit: Commit, files: Sequence[Path], metadata: dict[str, str]) -> bool:
        from deltalake.exceptions import CommitFailedError

        for attempt in range(_TRIES):
            try:
                return self._tried(commit, files, metadata)
            except CommitFailedError:  # the batch exists, or others created or changed the table
                if self.committed(commit.job) < commit.batch and attempt == _TRIES - 1:
                    raise
        return False

    def _tried(self, commit: Commit, files: Sequence[Path], metadata: dict[str, str]) -> bool:
        schema = self._evolved(files)
        if schema is None:  # the first batch has no records
            return True
        offsets = json.dumps(merged(self.offsets(commit.pipeline), commit.offsets))
        if self.committed(commit.job) >= commit.batch:  # check again with the opened version
            return False
        self._append(commit, files, {**metadata, "krust.offsets": offsets}, schema)
        return True

    def _append(
        self, commit: Commit, files: Sequence[Path], metadata: dict[str, str], schema: Any
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        adds = [
            AddAction(place.name, row["bytes"], {}, now, True, row["stats"])
            for row, place in zip(commit.files, files, strict=True)
        ]
        properties = CommitProperties(
            custom_metadata=metadata,
            app_transactions=[Transaction(commit.job, commit.batch, now)],
        )
        self._table.create_write_transaction(
            adds, "append", schema, None, commit_properties=properties
        )

    def _changed(self, schema: Any) -> list[tuple[str, str, str]]:
        from deltalake import Schema

        table = self._open()
        if table is None:
            return []
        known = {one.name: one.type for one in table.schema().fields}
        return [
            (one.name, str(known[one.name]), str(one.type))
            for one in Schema.from_arrow(schema).fields
            if one.name in known and known[one.name] != one.type
        ]

    def _evolved(self, files: Sequence[Path]) -> Any:
        """The table's schema after the files' columns are added. ConfigError: a type differs."""
        import pyarrow.parquet as pq
        from deltalake import DeltaTable, Schema

        found = [pq.read_schema(path).remove_metadata() for path in files[:1]]
        table = self._open()
        if table is None:
            if not found:
                return None
            DeltaTable.create(str(self.path), found[0], mode="ignore")
            table = self._open()
        if found:
            self.refuse_changed(found[0])  # other writers may have added columns meanwhile
            known = {one.name for one in table.schema().fields}
            fresh = [one for one in Schema.from_arrow(found[0]).fields if one.name not in known]
            if fresh:
                table.alter.add_columns(fresh)
                table = self._open()
        return table.schema()

    def compact(self, file_bytes: int) -> tuple[int, int]:
        """Compact with delta-rs. Old files stay until `vacuum` for readers of older versions."""
        table = self._open()
        if table is None:
            return 0, 0
        done = table.optimize.compact(target_size=file_bytes)
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])
