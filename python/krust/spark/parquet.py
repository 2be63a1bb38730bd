"""Plain Parquet in a folder. A reader that uses its manifests reads each record once.

    <table>/_krust_manifest/<job>-<batch>.json     the commit: it exists or it does not
    <table>/_krust_manifest/folded-<n>-<hex>.json   all earlier manifests, after a compaction
    <table>/<name>.parquet

A manifest is created by linking a complete file to its name, so one of two drivers wins. Then the
files leave staging. So a reader of the folder never sees an unpublished file; for a moment it may
miss a published one. `files()` misses none. If a driver dies between, its manifest lists files in
staging; the next publication or compaction moves them. Compaction writes new files, then a folded
manifest without the old files, then removes the old ones.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from krust.spark.table import (
    Commit,
    Offsets,
    Table,
    TableState,
    file_schema,
    grouped,
    listed,
    merged,
    sync_folder,
    write_once,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFESTS = "_krust_manifest"
FOLDED = "folded"
_KEPT = ("rows", "bytes", "topic", "partition", "first_offset", "last_offset")


class ParquetTable(Table):
    """Parquet files and their manifests."""

    kind = "parquet"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._read: dict[str, Any] = {}

    def committed(self, job: str) -> int:
        """Read from the names of manifests and from folded manifests."""
        return max((int(one["jobs"].get(job, -1)) for one in self._manifests()), default=-1)

    def offsets(self, pipeline: str) -> Offsets:
        """Read from all manifests; a newer one wins."""
        found: Offsets = {}
        for one in self._manifests():
            found = merged(found, one["offsets"].get(pipeline, {}))
        return found

    def state(self, pipeline: str) -> TableState:
        """Counted from the manifests."""
        held = list(self._held().values())
        last: Any = next((m for m in reversed(self._manifests()) if pipeline in m["offsets"]), {})
        jobs = last.get("jobs") or {"": -1}
        job, batch = max(jobs.items(), key=lambda item: item[1])
        return TableState(
            files=len(held),
            rows=sum(one["rows"] for one in held),
            bytes=sum(one["bytes"] for one in held),
            offsets=self.offsets(pipeline),
            job=job,
            batch=batch,
            time_ms=last.get("time_ms", -1),
        )

    def files(self) -> list[str]:
        """The current place of each published file."""
        return [str(self._place(name)) for name in self._held()]

    def _place(self, name: str) -> Path:
        final = self.path / name
        staged = self.staging / name
        return staged if not final.exists() and staged.exists() else final

    def columns(self) -> dict[str, str]:
        """Columns and their types, from manifests, or from the files of older manifests."""
        found: dict[str, str] = {}
        for manifest in self._manifests():
            columns = manifest.get("columns")
            if columns is None and manifest["files"]:
                columns = _columns(file_schema(str(self._place(manifest["files"][0]["name"]))))
            found |= columns or {}
        return found

    def _changed(self, schema: Any) -> list[tuple[str, str, str]]:
        known, wanted = self.columns(), _columns(schema)
        return [
            (name, known[name], kind)
            for name, kind in wanted.items()
            if known.get(name, kind) != kind
        ]

    def _held(self) -> dict[str, Any]:
        return {one["name"]: one for manifest in self._manifests() for one in manifest["files"]}

    def _manifests(self) -> list[Any]:
        """The valid manifests, oldest first: the newest folded one and those after it."""
        folder = self.path / MANIFESTS
        while True:
            names = {path.name for path in folder.glob("*.json")} if folder.is_dir() else set()
            try:
                found = {name: self._manifest(folder / name) for name in names}
            except FileNotFoundError:  # it was folded meanwhile
                continue
            break
        self._read = found
        folded = max((name for name in names if name.startswith(FOLDED)), default=None)
        covered = set(found[folded]["covers"]) if folded else set()
        left = [name for name in names - covered if not name.startswith(FOLDED)]
        left.sort(key=lambda name: (found[name]["time_ms"], name))
        return [found[name] for name in ([folded] if folded else []) + left]

    def _manifest(self, path: Path) -> Any:
        known = self._read.get(path.name)
        return json.loads(path.read_text()) if known is None else known

    def _commit(self, commit: Commit) -> bool:
        files = [
            {"name": row["path"].rpartition("/")[2]} | {name: row[name] for name in _KEPT}
            for row in commit.files
        ]
        manifest = {
            "version": 1,
            "time_ms": int(time.time() * 1000),
            "jobs": {commit.job: commit.batch},
            "offsets": {commit.pipeline: commit.offsets},
            "bad_rows": sum(row.get("bad_rows") or 0 for row in commit.rows),
            "columns": _columns(file_schema(commit.files[0]["path"])) if files else {},
            "files": files,
        }
        name = f"{commit.job}-{commit.batch:012d}.json"
        return write_once(self.path / MANIFESTS / name, json.dumps(manifest, indent=1))

    def _swept(self, job: str, batch: int) -> None:
        self._settle()
        super()._swept(job, batch)

    def _settle(self) -> None:
        """Move published files out of staging."""
        staged = {path.name for path in listed(self.staging)}
        moved = staged & self._held().keys() if staged else set()
        for name in moved:
            with suppress(FileNotFoundError):  # another driver has moved it
                (self.staging / name).rename(self.path / name)
        if moved:
            sync_folder(self.path)

    def compact(self, file_bytes: int) -> tuple[int, int]:
        """Merge small files, and fold manifests into one.

        One compaction at a time: of two at once, the later fold would restore old files.
        """
        self._settle()
        manifests = self._manifests()
        names = list(self._read)
        held = self._held()
        columns = self.columns()
        groups = grouped({name: one["bytes"] for name, one in held.items()}, file_bytes)
        gone = [name for group in groups for name in group]
        if not groups and len(manifests) < 2:
            return 0, 0
        made = [self._rewritten([held[name] for name in group]) for group in groups]
        sync_folder(self.path)
        kept = [one for name, one in held.items() if name not in set(gone)]
        fold = _folded(manifests, names, kept + made) | {"columns": columns}
        write_once(self._next_fold(), json.dumps(fold))
        for name in gone:
            (self.path / name).unlink(missing_ok=True)
        for name in names:
            (self.path / MANIFESTS / name).unlink(missing_ok=True)
        return len(gone), len(made)

    def _next_fold(self) -> Path:
        stamp = time.time_ns() // 1000
        return self.path / MANIFESTS / f"{FOLDED}-{stamp:020d}-{secrets.token_hex(3)}.json"

    def _rewritten(self, held: list[Any]) -> dict[str, Any]:
        name = f"compacted-{secrets.token_hex(12)}.parquet"
        rows = rewrite([self.path / one["name"] for one in held], self.path / name)
        size = (self.path / name).stat().st_size
        return dict.fromkeys(_KEPT) | {"name": name, "rows": rows, "bytes": size}


def _columns(schema: Any) -> dict[str, str]:
    """Columns and their types as texts that can be compared."""
    return {column.name: str(column.type) for column in schema}


def _folded(manifests: list[Any], names: list[str], files: list[Any]) -> dict[str, Any]:
    jobs: dict[str, int] = {}
    offsets: dict[str, Offsets] = {}
    for one in manifests:
        for job, batch in one["jobs"].items():
            jobs[job] = max(batch, jobs.get(job, -1))
        for pipeline, found in one["offsets"].items():
            offsets[pipeline] = merged(offsets.get(pipeline, {}), found)
    return {
        "version": 1,
        "time_ms": max(one["time_ms"] for one in manifests),
        "jobs": jobs,
        "offsets": offsets,
        "covers": names,
        "files": files,
    }


def rewrite(sources: list[Path], target: Path, codec: str = "zstd") -> int:
    """Merge Parquet files in order, columns by name. Returns the number of rows."""
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.unify_schemas([pq.read_schema(source) for source in reversed(sources)])
    rows = 0
    with target.open("xb") as raw, pq.ParquetWriter(raw, schema, compression=codec) as writer:
        for table in _row_groups(sources, schema):
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            rows += table.num_rows
    with target.open("rb") as done:
        os.fsync(done.fileno())
    return rows


def _row_groups(sources: list[Path], schema: Any) -> Iterator[Any]:
    """Collect rows into row groups with all columns of the schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from krust.spark.files import GROUP_BYTES

    held: list[Any] = []
    for source in sources:
        with pq.ParquetFile(source) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number)
                empty = pa.schema([one for one in schema if one.name not in table.column_names])
                for column in empty:
                    table = table.append_column(column, pa.nulls(len(table), column.type))
                held.append(table.select(schema.names))
                if sum(one.nbytes for one in held) >= GROUP_BYTES:
                    yield pa.concat_tables(held)
                    held = []
    if held:
        yield pa.concat_tables(held)
