"""Iceberg tables by pyiceberg, with any of its catalogs.

A batch is one snapshot of `add_files`, with its offsets in the snapshot's summary; in the same
commit the table's properties get `krust.job.<job>` = batch and `krust.offsets.<pipeline>`, which
outlive expired snapshots. pyiceberg would repeat a commit that lost a race. Here it must not, since
the winner may have written the same batch, so the properties are checked before each commit.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from krust.errors import ConfigError, KrustError
from krust.spark.files import local_path
from krust.spark.moving_table import PUBLISH, MovingTable
from krust.spark.parquet import rewrite
from krust.spark.table import Commit, NoTableError, Offsets, TableState, grouped, merged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TRIES = 10
_JOB, _OFFSETS = "krust.job.", "krust.offsets."


class IcebergTable(MovingTable):
    """A table of a catalog. It is created when it is opened, if its columns are known.

    name     `namespace.table`
    options  properties of the catalog; `catalog`: its name in pyiceberg's own settings
    """

    kind = "iceberg"

    def __init__(self, name: str, options: dict[str, str], schema: Any = None) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        if name.count(".") < 1:
            raise ConfigError(
                f"Iceberg: {name!r} is not a table's name", hint="write namespace.table"
            )
        self._name = name
        named = options.pop("catalog", "default")
        try:
            self._catalog = load_catalog(named, **options)
        except ValueError as error:
            if "uri" in options:
                raise
            raise ConfigError(
                "Iceberg needs [sink] catalog = { uri = .. }",
                hint='such as { uri = "sqlite:////data/catalog.db", warehouse = "/data" }',
            ) from error
        self._loaded: Any = None
        try:
            self._loaded = self._catalog.load_table(name)
        except NoSuchTableError:
            if schema is None:
                raise NoTableError(
                    f"the catalog has no table {name!r}, and its columns are not known here",
                    hint="it is made when a pipeline first runs",
                ) from None
            self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            self._loaded = self._catalog.create_table_if_not_exists(name, schema)
        super().__init__(local_path(self._loaded.location()))

    @property
    def folder(self) -> Path:
        """The folder of Iceberg's data."""
        return self.path / "data"

    def _open(self) -> Any:
        self._loaded = self._loaded.refresh()
        return self._loaded

    def _changed(self, schema: Any) -> list[tuple[str, str, str]]:
        known = {one.name: _plain(one.type) for one in self._open().schema().as_arrow()}
        return [
            (one.name, str(known[one.name]), str(_plain(one.type)))
            for one in schema
            if one.name in known and known[one.name] != _plain(one.type)
        ]

    def committed(self, job: str) -> int:
        """Read from the table's properties."""
        return int(self._open().properties.get(_JOB + job, -1))

    def offsets(self, pipeline: str) -> Offsets:
        """Read from the table's properties."""
        self._open()
        return self._known(pipeline)

    def _known(self, pipeline: str) -> Offsets:
        found: Offsets = json.loads(self._loaded.properties.get(_OFFSETS + pipeline, "{}"))
        return found

    def published(self, ids: set[str]) -> dict[str, bool | None]:
        """Read from the summaries of snapshots; unknown if one has expired."""
        table = self._open()
        summaries = [snapshot.summary for snapshot in table.snapshots()]
        found = {summary.get(PUBLISH) for summary in summaries if summary is not None}
        whole = all(
            snapshot.parent_snapshot_id is None
            or table.snapshot_by_id(snapshot.parent_snapshot_id) is not None
            for snapshot in table.snapshots()
        )
        return {one: True if one in found else (False if whole else None) for one in ids}

    def state(self, pipeline: str) -> TableState:
        """Read from the newest snapshot's summary."""
        table = self._open()
        now = table.current_snapshot()
        held = now.summary.additional_properties if now and now.summary else {}
        last: Any = None
        for snapshot in table.snapshots():
            if snapshot.summary and snapshot.summary.get("krust.pipeline") == pipeline:
                last = snapshot
        return TableState(
            files=int(held.get("total-data-files", 0)),
            rows=int(held.get("total-records", 0)),
            bytes=int(held.get("total-files-size", 0)),
            offsets=self._known(pipeline),
            job=last.summary.get("krust.job") if last else "",
            batch=int(last.summary.get("krust.batch")) if last else -1,
            time_ms=last.timestamp_ms if last else -1,
        )

    def files(self) -> list[str]:
        """The files of the newest snapshot."""
        tasks = self._open().scan().plan_files()
        return [str(local_path(task.file.file_path)) for task in tasks]

    def _logged(self, commit: Commit, files: Sequence[Path], metadata: dict[str, str]) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(TRIES):
            table = self._once(files)
            if int(table.properties.get(_JOB + commit.job, -1)) >= commit.batch:
                return False
            known = merged(self._known(commit.pipeline), commit.offsets)
            properties = {
                _JOB + commit.job: str(commit.batch),
                _OFFSETS + commit.pipeline: json.dumps(known),
            }
            try:
                with table.transaction() as change:
                    change.set_properties(properties)
                    if files:
                        change.add_files(
                            [path.as_uri() for path in files], metadata, check_duplicate_files=False
                        )
            except CommitFailedException:
                continue
            return True
        raise KrustError(f"{self._name} was changed by others {TRIES} times while a batch waited")

    def _once(self, files: Sequence[Path] = ()) -> Any:
        """The table with the files' columns, which makes one attempt for each commit."""
        table = self._open()
        if files:
            import pyarrow.parquet as pq

            found = pq.read_schema(files[0]).remove_metadata()
            names = {column.name for column in table.schema().columns}
            if set(found.names) - names:
                with table.update_schema() as change:
                    change.union_by_name(found)
                table = self._open()
        table.metadata.properties["commit.retry.num-retries"] = "0"  # only of this object
        return table

    def compact(self, file_bytes: int) -> tuple[int, int]:
        """Rewrite small files without deletes in one snapshot. Old snapshots keep the old files."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        table = self._once()
        tasks = [task for task in table.scan().plan_files() if not task.delete_files]
        held = {task.file.file_path: task.file for task in tasks}
        groups = grouped({name: one.file_size_in_bytes for name, one in held.items()}, file_bytes)
        if not groups:
            return 0, 0
        made = [self._rewritten(group) for group in groups]
        gone = [held[name] for group in groups for name in group]
        try:
            with table.transaction() as change:
                uris = iter([path.as_uri() for path in made])
                fresh = list(parquet_files_to_data_files(table.io, change.table_metadata, uris))
                producer = change.update_snapshot({"krust.compacted": str(len(gone))})
                with producer.overwrite() as rewritten:
                    for one in gone:
                        rewritten.delete_data_file(one)
                    for one in fresh:
                        rewritten.append_data_file(one)
        except CommitFailedException:
            for path in made:
                path.unlink(missing_ok=True)
            return 0, 0
        return len(gone), len(made)

    def _rewritten(self, names: list[str]) -> Path:
        target = self.folder / f"compacted-{secrets.token_hex(12)}.parquet"
        rewrite([local_path(name) for name in names], target)
        return target


def _plain(kind: Any) -> Any:
    """The Arrow type of which Iceberg stores this type."""
    import pyarrow as pa
    import pyarrow.types as of

    if of.is_large_string(kind):
        return pa.string()
    if of.is_large_binary(kind):
        return pa.binary()
    if of.is_int8(kind) or of.is_int16(kind):
        return pa.int32()
    if of.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if of.is_list(kind) or of.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if of.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if of.is_struct(kind):
        return pa.struct([pa.field(part.name, _plain(part.type)) for part in kind])
    return kind
