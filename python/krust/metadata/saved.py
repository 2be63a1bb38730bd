"""A tree on disk in two copies, a database and a journal, and how a start chooses between them.

A change goes to the database first, then to each journal (`krust-metadata.journal` beside it and in
the second log directory). All are synced before the change is answered. So of two whole files the
one with the higher zxid is the tree, and they differ by at most one change, which was not answered.
A copy that cannot be written is removed, because it would be older.
A start takes the newest whole file (`choose`), makes the other files the same, and logs what it
found. It is refused if a file proves that there was a newer change than krust can read, if no file
can be read, or if all files are missing although krust served the directory. With `adopt` the start
continues with what there is. A replaced database is kept beside the new one (`.damaged`).
Threads: the tree's thread.
Not noticed: the loss of the same change in all files at once.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from krust.errors import ServerError
from krust.metadata import database, rows
from krust.metadata.database import BLANK, BadDatabaseError, Database, TreeContents, UnwritableError
from krust.metadata.journal import Journal, JournalCopy, nodes, read
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from krust.metadata.rows import Row

JOURNAL = ".journal"
_MISSING = "it is missing"
_ADOPT = """put back all of these files from a backup; or, where a ZooKeeper has the metadata, use \
`krust cluster import`; or start once with `krust serve --adopt` (krust.Broker(adopt=True)): it \
takes {}topics as their directories show them, without their settings, without quotas, and without \
partitions that have no directory"""

_log = logging.getLogger("krust.metadata")


class TreeFile(NamedTuple):
    """A file that may have the tree."""

    name: str
    zxid: int | None
    """the change up to which it is whole; None: it cannot be read"""
    total: int = 0
    newest: int = 0
    """the last change whose existence it proves"""
    fault: str | None = None
    """its damage"""
    there: bool = True

    def __str__(self) -> str:
        where = f"it is whole up to change {self.zxid}" if self.zxid is not None else ""
        return f"{self.name}: {'; '.join(filter(None, (self.fault, where)))}"


class FileChoice(NamedTuple):
    """The file that has the tree, by its index among the sources; -1: none, the tree is empty."""

    source_index: int
    doubt: str | None = None
    """why acknowledged changes may be missing in it"""


def choose(sources: Sequence[TreeFile], known: str | None) -> FileChoice:
    """Choose the file that has the tree. The database comes first.

    known   the proof that there was metadata; None: there is no proof
    """
    whole = [index for index, each in enumerate(sources) if each.zxid is not None]
    if not whole:
        there = [each for each in sources if each.there]
        if known is None and all(each.fault == BLANK for each in there):
            return FileChoice(-1)
        return FileChoice(-1, "nothing of it can be read" if there else "all of it is missing")
    best = max(whole, key=lambda index: (_zxid(sources[index]), not sources[index].fault, -index))
    chosen = sources[best]
    newest = max(each.newest for each in sources)
    if newest > _zxid(chosen):
        return FileChoice(
            best, f"there was a change {newest}, and none can be read above {chosen.zxid}"
        )
    if chosen.fault is not None:
        return FileChoice(
            best, f"it can be read up to change {chosen.zxid}, and there may be later ones"
        )
    for index in whole:
        other = sources[index]
        if other.zxid == chosen.zxid and other.total != chosen.total:
            return FileChoice(
                best, f"{chosen.name} and {other.name} differ at change {chosen.zxid}"
            )
    return FileChoice(best)


def _zxid(source: TreeFile) -> int:
    return -1 if source.zxid is None else source.zxid


class TreeFiles(NamedTuple):
    """The files of a tree, and what is known before they are read."""

    path: Path
    """the database"""
    copies: tuple[Path, ...]
    """the journals"""
    others: tuple[Path, ...] = ()
    """journals that an earlier order of the log directories may have left"""
    known: str | None = None
    """the proof that there was metadata; None: there is no proof"""
    adopt: bool = False
    """whether to continue with what there is"""


def tree_files(path: Path) -> TreeFiles:
    """A database and its journal, of which nothing is known."""
    return TreeFiles(path, (path.with_suffix(JOURNAL),))


class SavedTree:
    """The open files of a tree.

    raises  ServerError: acknowledged changes are missing, or the files cannot be written
    """

    def __init__(self, how: TreeFiles) -> None:
        self._path = how.path
        self._sums: dict[str, int] = {}
        """path -> checksum of the saved row"""
        self.zxid = self._total = 0
        self._database, contents, source = _database(how.path)
        read_too = (*how.copies, *how.others)
        found = [_copy(path) for path in read_too]
        sources = [source, *(_source(path, copy) for path, copy in found)]
        choice = choose(sources, how.known)
        if choice.doubt is not None and not how.adopt:
            self.close_database()
            raise _refusal(how, sources, choice)
        if choice.doubt is not None:
            _log.warning(
                "adopted the metadata of %s as it is, though %s; %s",
                how.path.parent,
                choice.doubt,
                _listed(sources),
            )
            _keep_copies(found)
        path, copy = found[max(choice.source_index, 1) - 1]
        if choice.source_index > 0 and copy is not None:
            contents = self._recovered(path, copy, source)
        elif choice.source_index < 0:
            contents = database.EMPTY
        self._begin(contents, None if choice.source_index == 0 else source)
        self._journals = [Journal(path) for path in how.copies]
        for journal, (_, copy) in zip(self._journals, found, strict=False):
            self._meet(journal, copy, contents)
        for path in how.others:
            path.unlink(missing_ok=True)

    def _recovered(self, path: Path, copy: JournalCopy, source: TreeFile) -> TreeContents:
        """The tree of a journal."""
        try:
            tree = nodes(path, copy.end)
        except (OSError, ValueError) as error:
            self.close_database()
            raise ServerError(
                f"the metadata in {path} cannot be read: {error}",
                hint="look at the disk, and start again",
            ) from None
        _log.warning(
            "recovered the metadata (change %d, %d nodes) from its second copy %s, because of %s",
            copy.zxid or 0,
            len(tree),
            path,
            source,
        )
        return TreeContents(copy.zxid or 0, list(tree.values()), rows.checksums(tree.values()))

    def _begin(self, contents: TreeContents, source: TreeFile | None) -> None:
        """Write the contents into a new database.

        source  the database that is replaced
        """
        if source is not None:
            self.close_database()
            try:
                if source.fault == BLANK:
                    database.remove(self._path)
                else:
                    database.rename_damaged(self._path)
                self._database = database.create(self._path, contents)
            except (UnwritableError, OSError) as error:
                raise ServerError(
                    f"the metadata in {self._path} cannot be written: {error}",
                    hint="look at the disk, and start again",
                ) from None
        self._contents = contents
        self.zxid, self._total = contents.zxid, contents.total
        self._sums = dict(contents.sums)

    def _meet(self, journal: Journal, copy: JournalCopy | None, contents: TreeContents) -> None:
        """Make a journal the same as the database."""
        if copy is None:
            if contents.zxid:
                _log.warning(
                    "made a second copy of the metadata, which was missing: %s", journal.path
                )
        elif (copy.zxid, copy.total, copy.fault) == (contents.zxid, contents.total, None):
            try:
                journal.resume(copy)
            except OSError as error:
                _log.error("%s cannot be written: %s", journal.path, error.strerror)
            return
        elif copy.fault is not None:
            _log.warning(
                "the second copy of the metadata was damaged: %s", _source(journal.path, copy)
            )
        if contents.zxid:
            self._roll(journal, contents.rows, len(contents.rows))

    def taken(self) -> TreeContents:
        """The saved tree. It can be taken once."""
        contents, self._contents = self._contents, database.EMPTY
        return contents

    def write(
        self,
        zxid: int,
        changed: Sequence[Row],
        gone: Iterable[str],
        everything: Callable[[], Iterable[Row]],
    ) -> None:
        """Make a change durable. UnwritableError: it is not durable, and must not be answered.

        gone        deleted paths, saved or not
        everything  the whole tree after this change
        """
        was = [path for path in gone if path in self._sums]
        encoded = [row.encode() for row in changed]
        sums = {row.path: rows.checksum(data) for row, data in zip(changed, encoded, strict=True)}
        whole = self._total + sum(sums.values())
        whole -= sum(self._sums.get(path, 0) for path in (*sums, *was))
        if self._database is None:
            raise UnwritableError("the file is closed")
        self._database.write(changed, was, zxid, whole)
        self._sums.update(sums)
        for path in was:
            del self._sums[path]
        self.zxid, self._total = zxid, whole
        for journal in self._journals:
            if not journal.ready or journal.long:
                self._roll(journal, everything(), len(self._sums))
                continue
            try:
                journal.append([*encoded, *map(rows.gone, was)], zxid, whole)
            except OSError as error:
                _lost(journal, error)

    def _roll(self, journal: Journal, everything: Iterable[Row], count: int) -> None:
        try:
            journal.roll(everything, self.zxid, self._total, count)
        except OSError as error:
            _lost(journal, error)

    def close_database(self) -> None:
        """Close only the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def close(self) -> None:
        """Close the files. Idempotent."""
        self.close_database()
        for journal in self._journals:
            journal.close()


def peek(path: Path) -> TreeContents | None:
    """The tree of a database that another process may have open. Writes nothing. None: there is no
    readable database.
    """
    contents, source = _read_draft(path)
    return contents if source.there and source.fault is None else None


def verify(path: Path) -> list[str]:
    """The damages of the files of a tree that no process has open. Writes nothing.

    It reads a copy of the database, because sqlite cannot read without writing.
    """
    _, source = _read_draft(path)
    journal = path.with_suffix(JOURNAL)
    copy = _source(journal, _copy(journal)[1])
    if not (source.there or copy.there):
        return []
    wrong = [str(each) for each in (source, copy) if each.fault is not None]
    if not source.there and copy.fault is None:
        return []  # only the first log directory has a database
    behind = _zxid(copy) > _zxid(source)  # the opposite happens after a kill between two writes
    if not wrong and (behind or (copy.zxid == source.zxid and copy.total != source.total)):
        wrong.append(f"{source.name} ends at change {source.zxid}, {copy.name} at {copy.zxid}")
    return wrong


def _keep_copies(found: Iterable[tuple[Path, JournalCopy | None]]) -> None:
    """Keep damaged journals under another name, for a repair by hand."""
    import shutil

    for path, copy in found:
        if copy is not None and copy.fault is not None:
            with suppress(OSError):
                shutil.copyfile(path, path.with_name(f"{path.name}{database.DAMAGED_SUFFIX}"))


def _lost(journal: Journal, error: OSError) -> None:
    _log.error(
        "the second copy of the metadata cannot be written, and is removed until it can: %s: %s",
        journal.path,
        error.strerror,
    )


def _read_draft(path: Path) -> tuple[TreeContents, TreeFile]:
    """The contents of a database, read from a copy, because sqlite cannot read without writing."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="krust-") as folder:
        draft = path.__class__(folder) / path.name
        for name in (path.name, f"{path.name}-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(name), draft.with_name(name))
        opened, contents, source = _database(draft)
        if opened is not None:
            opened.close()
    return contents, source


def _database(path: Path) -> tuple[Database | None, TreeContents, TreeFile]:
    """Open the database."""
    if not path.exists():
        return None, database.EMPTY, TreeFile(path.name, None, fault=_MISSING, there=False)
    try:
        opened, contents = database.read(path)
    except BadDatabaseError as error:
        return None, database.EMPTY, TreeFile(path.name, None, fault=str(error))
    if not contents.rows:
        opened.close()
        return None, contents, TreeFile(path.name, None, fault=BLANK)
    source = TreeFile(path.name, contents.zxid, contents.total, contents.zxid)
    return opened, contents, source


def _copy(path: Path) -> tuple[Path, JournalCopy | None]:
    """Check a journal; None: it does not exist."""
    try:
        return path, read(path)
    except FileNotFoundError:
        return path, None
    except OSError as error:
        return path, JournalCopy(None, 0, 0, 0, 0, 0, f"it cannot be read: {error.strerror}")


def _source(path: Path, copy: JournalCopy | None) -> TreeFile:
    name = str(path)
    if copy is None:
        return TreeFile(name, None, fault=_MISSING, there=False)
    return TreeFile(name, copy.zxid or None, copy.total, copy.newest, copy.fault)


def _listed(sources: Iterable[TreeFile]) -> str:
    return "; ".join(str(each) for each in sources if each.fault or each.there)


def _refusal(how: TreeFiles, sources: Sequence[TreeFile], choice: FileChoice) -> ServerError:
    """The error of a start: the damage, what would be lost, and what to do."""
    shown = sources[: 1 + len(how.copies)]
    because = f" ({how.known})" if how.known else ""
    left = ""
    if choice.source_index >= 0:
        zxid = sources[choice.source_index].zxid
        left = f"the metadata as of change {zxid} and, where that lacks them, "
    what = f"the metadata in {how.path.parent} is not whole{because}: {choice.doubt}"
    return ServerError(f"{what}; {_listed(shown)}", hint=_ADOPT.format(left))
