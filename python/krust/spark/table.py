"""A table of a pipeline: one commit makes the staged files of a batch visible, exactly once.

A commit has the key (job, batch): the id of the query, which is in its checkpoint, and the number
of the micro-batch. Publishing the same batch again changes nothing. Each commit has the table's new
offsets by the pipeline's name, so a lost checkpoint duplicates no row.

    tasks: materialize -> manifest rows -> driver: publish(Commit) -> True, or False: was there

A crash, or another driver of the same checkpoint, may come between any two lines of `publish`. In
each case a batch is in the table whole or not at all, and once.
Not promised: object stores. The folder is on one file system that all workers share.
"""

from __future__ import annotations

import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krust.errors import ConfigError, KrustError
from krust.spark.files import STAGING, staged_by

if TYPE_CHECKING:
    from pathlib import Path

Offsets = Mapping[str, Mapping[str, int]]
"""{"topic": {"0": 123}}, the official connector's form: the first offset that is not in the table.
"""
ORPHAN_S = 7 * 86_400
"""Unpublished files of this age are deleted, of any job."""
_JOB = re.compile(r"[\w.]+(?:-[\w.]+)*")


class NoTableError(ConfigError):
    """The table does not exist, and its columns are not known."""


class OverlapError(KrustError):
    """A commit would write records that the table already has."""


@dataclass(frozen=True)
class Commit:
    """One micro-batch.

    rows     the manifest rows of its tasks
    starts   the offsets of its start; offsets: those of its end
    """

    job: str
    batch: int
    rows: Sequence[Mapping[str, Any]]
    offsets: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    pipeline: str = ""

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """The rows that have a file."""
        return [row for row in self.rows if row["path"]]

    @property
    def records(self) -> int:
        """The number of its records."""
        return sum(row["rows"] for row in self.rows)

    def metadata(self) -> dict[str, str]:
        """The metadata in the table's log."""
        return {
            "krust.job": self.job,
            "krust.batch": str(self.batch),
            "krust.pipeline": self.pipeline,
            "krust.offsets": json.dumps(self.offsets),
            "krust.bad": str(sum(row.get("bad_rows") or 0 for row in self.rows)),
        }


@dataclass(frozen=True)
class TableState:
    """The state of a table. `offsets` are those of one pipeline."""

    files: int
    rows: int
    bytes: int
    offsets: Offsets
    job: str = ""
    batch: int = -1
    time_ms: int = -1


class Table(ABC):
    """A table in a folder."""

    kind: str

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def staging(self) -> Path:
        """The folder for files of tasks."""
        return self.path / STAGING

    def publish(self, commit: Commit) -> bool:
        """Make a batch's files visible at once. False: they are visible already.

        raises  OverlapError: the table has some of its offsets from another job
        """
        if not _JOB.fullmatch(commit.job):
            raise ConfigError(f"job {commit.job!r}: it may have letters, digits, _ . and -")
        fresh = self.committed(commit.job) < commit.batch
        if fresh:
            fresh = self._published(commit)
        self._swept(commit.job, self.committed(commit.job))
        return fresh

    def refuse_changed(self, schema: Any) -> None:
        """Raise ConfigError if a column has another type in the table.

        schema  the Arrow schema to write; new columns are allowed
        """
        for name, there, now in self._changed(schema):
            raise ConfigError(
                f"column {name!r} of {self.path} is {there}, now it would be {now}",
                hint="write into a new table, or give the column another name",
            )

    def _published(self, commit: Commit) -> bool:
        try:
            if commit.files:
                self.refuse_changed(file_schema(commit.files[0]["path"]))
            _continues(commit, self.offsets(commit.pipeline))
            return self._commit(commit)
        except (FileNotFoundError, OverlapError):
            if self.committed(commit.job) < commit.batch:
                raise
            return False  # another driver was faster, and deleted our files

    def _swept(self, job: str, batch: int) -> None:
        """Delete the files of a job's tasks for published batches."""
        for path in listed(self.staging):
            made = staged_by(path.name)
            if made is not None and made[0] == job and made[1] <= batch:
                path.unlink(missing_ok=True)

    def sweep(self, older_s: float = ORPHAN_S) -> list[str]:
        """Delete old files in staging, which no driver will publish. Returns their names."""
        end = time.time() - older_s
        gone = []
        for path in listed(self.staging):
            ours = staged_by(path.name) is not None or path.name.startswith(".")
            if ours and path.stat().st_mtime < end:
                path.unlink(missing_ok=True)
                gone.append(path.name)
        return gone

    @abstractmethod
    def committed(self, job: str) -> int:
        """The newest published batch of a job; -1: none."""

    @abstractmethod
    def offsets(self, pipeline: str) -> Offsets:
        """The offsets that a pipeline has reached in the table; {}: it has written nothing."""

    @abstractmethod
    def state(self, pipeline: str) -> TableState:
        """The state of the table and of a pipeline."""

    @abstractmethod
    def files(self) -> list[str]:
        """The Parquet files of the table."""

    @abstractmethod
    def compact(self, file_bytes: int) -> tuple[int, int]:
        """Merge small files to about this size. Returns (files removed, files added)."""

    @abstractmethod
    def _changed(self, schema: Any) -> list[tuple[str, str, str]]:
        """Columns with another type in the table: name, type there, type in `schema`."""

    @abstractmethod
    def _commit(self, commit: Commit) -> bool: ...


def _continues(commit: Commit, known: Offsets) -> None:
    """Raise OverlapError if a batch begins before the table's offsets."""
    begins = {topic: dict(partitions) for topic, partitions in commit.starts.items()}
    for row in commit.rows:
        if row["topic"] and (row["start_offset"] or 0) >= 0:
            places = begins.setdefault(row["topic"], {})
            place = str(row["partition"])
            places[place] = min(places.get(place, row["start_offset"]), row["start_offset"])
    for topic, partitions in begins.items():
        for partition, start in partitions.items():
            end = known.get(topic, {}).get(partition, 0)
            if start < end and commit.offsets.get(topic, {}).get(partition, end) > start:
                raise OverlapError(
                    f"the table has {topic}/{partition} up to offset {end}, and this batch "
                    f"begins at {start}: it would be there twice",
                    hint="a new checkpoint goes on at the table's offsets "
                    "(krust pipeline status shows them); a recreated topic needs a new name",
                )


def file_schema(path: str) -> Any:
    """The Arrow schema of a Parquet file."""
    import pyarrow.parquet as pq

    return pq.read_schema(path).remove_metadata()


def merged(known: Offsets, more: Offsets) -> dict[str, dict[str, int]]:
    """The larger of two offsets for each partition. A first batch without records has its start."""
    made = {topic: dict(partitions) for topic, partitions in known.items()}
    for topic, partitions in more.items():
        held = made.setdefault(topic, {})
        for partition, offset in partitions.items():
            held[partition] = max(offset, held.get(partition, offset))
    return made


def listed(folder: Path) -> list[Path]:
    """The files in a folder; empty: there is no folder."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its names survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_once(path: Path, text: str) -> bool:
    """Create a file with a text, whole or not at all. False: it exists already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with draft.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    sync_folder(path.parent)
    return True


def grouped(sizes: Mapping[str, int], file_bytes: int) -> list[list[str]]:
    """Groups of small files to merge, in order, each of about `file_bytes`.

    A file above half that size stays, and so does a small file between large ones.
    """
    groups: list[list[str]] = [[]]
    held = 0
    for name, size in sizes.items():
        if size * 2 > file_bytes:
            continue
        if held + size > file_bytes:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    return [group for group in groups if len(group) > 1]
