"""A table that topics are written into: staged files become visible in one commit, exactly once.

A commit is known by (job, batch): the query's id, which its checkpoint has, and the number of its
micro-batch. Publishing the same batch again changes nothing. Each commit holds the offsets that the
table has then, by the pipeline's name, so that a lost checkpoint costs no row twice.

    tasks: materialize -> manifest rows -> driver: publish(Commit) -> True, or False: was there

What may happen between two lines of `publish` is a crash, and another driver of the same checkpoint
that believes to be the only one. Either way a batch is in the table whole or not
at all, and once.
Not promised: object stores. The folder is one file system that all workers see.
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
"""{"topic": {"0": 123}}, the official connector's form: the first offset that is not in it."""
ORPHAN_S = 7 * 86_400
"""Files that nobody published are swept when they are this old, whosever they are."""
_JOB = re.compile(r"[\w.]+(?:-[\w.]+)*")


class NoTableError(ConfigError):
    """There is no such table, and its columns are not known here."""


class OverlapError(KrustError):
    """A commit would write records that the table has."""


@dataclass(frozen=True)
class Commit:
    """One micro-batch.

    rows     manifest rows of its tasks
    starts   the offsets at which it begins; offsets: those at which the next one begins
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
        """How many records it brings."""
        return sum(row["rows"] for row in self.rows)

    def metadata(self) -> dict[str, str]:
        """What the table's own log keeps of it."""
        return {
            "krust.job": self.job,
            "krust.batch": str(self.batch),
            "krust.pipeline": self.pipeline,
            "krust.offsets": json.dumps(self.offsets),
            "krust.bad": str(sum(row.get("bad_rows") or 0 for row in self.rows)),
        }


@dataclass(frozen=True)
class State:
    """What a table has. `offsets` are those of one pipeline."""

    files: int
    rows: int
    bytes: int
    offsets: Offsets
    job: str = ""
    batch: int = -1
    time_ms: int = -1


class Table(ABC):
    """A table in a folder, of one kind."""

    kind: str

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def staging(self) -> Path:
        """Where tasks leave their files."""
        return self.path / STAGING

    def publish(self, commit: Commit) -> bool:
        """Make a batch's files visible, all at once. False: they were already.

        raises  OverlapError: the table has some of its offsets, by another job
        """
        if not _JOB.fullmatch(commit.job):
            raise ConfigError(f"job {commit.job!r}: it may have letters, digits, _ . and -")
        fresh = self.committed(commit.job) < commit.batch
        if fresh:
            fresh = self._published(commit)
        self._swept(commit.job, self.committed(commit.job))
        return fresh

    def refuse_changed(self, schema: Any) -> None:
        """Refuse columns that have another type in the table. ConfigError.

        schema  what would be written, as Arrow has it; columns that are new may join
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
            return False  # another driver was faster, and swept what was ours

    def _swept(self, job: str, batch: int) -> None:
        """Remove what tasks of a job left behind for batches that are decided."""
        for path in listed(self.staging):
            made = staged_by(path.name)
            if made is not None and made[0] == job and made[1] <= batch:
                path.unlink(missing_ok=True)

    def sweep(self, older_s: float = ORPHAN_S) -> list[str]:
        """Remove what lies in staging for so long that nobody will publish it; its names."""
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
        """The newest batch of a job that is in the table; -1: none."""

    @abstractmethod
    def offsets(self, pipeline: str) -> Offsets:
        """Where the next record of a pipeline belongs; {}: it has written nothing."""

    @abstractmethod
    def state(self, pipeline: str) -> State:
        """What is in the table, and how far a pipeline has come."""

    @abstractmethod
    def files(self) -> list[str]:
        """The Parquet files that make up the table now."""

    @abstractmethod
    def compact(self, file_bytes: int) -> tuple[int, int]:
        """Write small files together into ones of about this size: (files gone, files new)."""

    @abstractmethod
    def _changed(self, schema: Any) -> list[tuple[str, str, str]]:
        """Columns that the table has with another type: name, type there, type in `schema`."""

    @abstractmethod
    def _commit(self, commit: Commit) -> bool: ...


def _continues(commit: Commit, known: Offsets) -> None:
    """Refuse a batch that begins before where the table ends."""
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
                    "(krust pipeline status shows them); a topic made anew needs a new name",
                )


def file_schema(path: str) -> Any:
    """The columns of a Parquet file, as Arrow has them."""
    import pyarrow.parquet as pq

    return pq.read_schema(path).remove_metadata()


def merged(known: Offsets, more: Offsets) -> dict[str, dict[str, int]]:
    """The further of two offsets everywhere: a first batch without records says where it begins."""
    made = {topic: dict(partitions) for topic, partitions in known.items()}
    for topic, partitions in more.items():
        held = made.setdefault(topic, {})
        for partition, offset in partitions.items():
            held[partition] = max(offset, held.get(partition, offset))
    return made


def listed(folder: Path) -> list[Path]:
    """What is in a folder; nothing where there is none."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_once(path: Path, text: str) -> bool:
    """Make a file with a text, whole or not at all. False: it is there already."""
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
    """Which small files to write together, in their order: groups of about `file_bytes`.

    A file of more than half that is left alone, and so is one that nothing small stands beside.
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
