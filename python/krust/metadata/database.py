"""`krust-metadata.db`: the sqlite file of a tree.

Format 2: table `node(path, data, czxid, mzxid, version, cversion)`, one row a persistent node, and
`meta(name, value)` with `format`, `zxid` (the last change), `total` (`rows.total`) and `seal`
(`rows.seal`). sqlite's pages have no checksum: the total finds damaged pages. sqlite silently drops
the rest of a damaged write-ahead file: the journal (`journal.py`) finds that. Format 1 had neither
total nor seal. It is read, and becomes format 2 with the first change.
Invariant: nodes and meta belong to the same change. One transaction writes them and is synced (WAL,
synchronous FULL) before `write` returns.
Threads: one.
Not promised: use by two processes.
"""

from __future__ import annotations

import os
import struct
from contextlib import closing
from typing import TYPE_CHECKING

from krust.metadata import rows
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from krust.metadata.rows import Row

FORMAT = 2
_FIRST = 1
_META = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER)"
_NODE = """CREATE TABLE IF NOT EXISTS node (path TEXT PRIMARY KEY, data BLOB, czxid INTEGER,
    mzxid INTEGER, version INTEGER, cversion INTEGER) WITHOUT ROWID"""
_SIDE_FILES = ("", "-wal", "-shm")
DAMAGED_SUFFIX = ".damaged"
BLANK = "it is empty"


class TreeContents(NamedTuple):
    """A whole tree."""

    zxid: int
    rows: Sequence[Row]
    sums: dict[str, int]
    """path -> checksum of the row"""

    @property
    def total(self) -> int:
        """The sum of the checksums."""
        return sum(self.sums.values())


EMPTY = TreeContents(0, (), {})


class BadDatabaseError(Exception):
    """The file is damaged."""


class UnwritableError(Exception):
    """A change could not be made durable."""


class Database:
    """An open database."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self.file = file

    def write(self, changed: Iterable[Row], gone: Iterable[str], zxid: int, whole: int) -> None:
        """Make one change durable. UnwritableError: that failed."""
        import sqlite3

        meta = {
            "format": FORMAT,
            "zxid": zxid,
            "total": whole,
            "seal": rows.seal(FORMAT, zxid, whole),
        }
        try:
            with self.file:
                self.file.executemany("DELETE FROM node WHERE path = ?", ((p,) for p in gone))
                self.file.executemany(
                    "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?)", changed
                )
                self.file.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
        except sqlite3.Error as error:
            raise UnwritableError(str(error)) from None

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def create(path: Path, contents: TreeContents) -> Database:
    """Create the file. It is complete and synced before it gets its name.

    raises  UnwritableError: it cannot be created
    """
    import sqlite3

    draft = path.with_name(f"{path.name}.tmp")
    try:
        remove(draft)
        file = sqlite3.connect(draft)
        with closing(file):
            file.execute("PRAGMA journal_mode = OFF")
            file.execute("PRAGMA synchronous = OFF")
            file.execute("BEGIN IMMEDIATE")
            file.execute(_META)
            file.execute(_NODE)
            Database(file).write(contents.rows, (), contents.zxid, contents.total)
            file.execute("PRAGMA journal_mode = WAL")
        for place in (draft, path.parent):
            handle = os.open(place, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if place is draft:
                draft.replace(path)
        return Database(_connect(path))
    except (sqlite3.Error, OSError) as error:
        raise UnwritableError(str(error)) from None


def read(path: Path) -> tuple[Database, TreeContents]:
    """Open the file and read all of it. BadDatabaseError: it is damaged."""
    import sqlite3

    file = None
    try:
        file = _connect(path)
        if not file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise BadDatabaseError(BLANK)
        (problem,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise BadDatabaseError(f"it is damaged: {problem.splitlines()[-1]}")
        return Database(file), _contents(file)
    except BadDatabaseError:
        if file is not None:
            file.close()
        raise
    except (sqlite3.Error, UnicodeError, ValueError, OverflowError) as error:
        if file is not None:
            file.close()
        raise BadDatabaseError(f"it cannot be read: {error}") from None


def rename_damaged(path: Path) -> None:
    """Rename the file and sqlite's files beside it. They replace earlier ones of that name."""
    for end in _SIDE_FILES:
        part = path.with_name(f"{path.name}{end}")
        if part.exists():
            part.replace(path.with_name(f"{path.name}{DAMAGED_SUFFIX}{end}"))


def remove(path: Path) -> None:
    """Remove an empty file and sqlite's files beside it."""
    for end in _SIDE_FILES:
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def _contents(file: sqlite3.Connection) -> TreeContents:
    meta = dict(file.execute("SELECT name, value FROM meta"))
    form, zxid = meta.get("format"), meta.get("zxid")
    if form not in (_FIRST, FORMAT):
        raise BadDatabaseError(f"it has format {form}, this krust reads format {FORMAT}")
    found = [
        rows.Row(*row)
        for row in file.execute(
            "SELECT path, data, czxid, mzxid, version, cversion FROM node ORDER BY path"
        )
    ]
    try:
        sums = rows.checksums(found)
    except (struct.error, TypeError, AttributeError):
        raise BadDatabaseError("a row is no node") from None
    if not isinstance(zxid, int):
        raise BadDatabaseError("it does not say which change was its last")
    whole = sum(sums.values())
    if form == FORMAT and (
        meta.get("total") != whole or meta.get("seal") != rows.seal(form, zxid, whole)
    ):
        raise BadDatabaseError("it is damaged: its checksum is that of other contents")
    return TreeContents(zxid, found, sums)


def _connect(path: Path) -> sqlite3.Connection:
    import sqlite3

    file = sqlite3.connect(path, check_same_thread=False)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = FULL")
    return file
