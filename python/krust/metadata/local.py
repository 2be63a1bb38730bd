"""The embedded store: a tree of znodes in memory and, unless it is temporary, on disk.

The disk has two copies (`saved.py`). Ephemeral nodes are not written, because their sessions have
ended when the files are read again.

Invariant: the tree in memory is the saved tree plus the ephemeral nodes. The changes of one turn
share one transaction: they are in memory at once, and durable before `events` returns them. If they
cannot be written they are answered with UNKNOWN, and the next turn tries again.
Threads: a tree and its sessions belong to one thread.
Not promised: use by two processes. The lock of the data directory prevents it.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from math import inf
from typing import TYPE_CHECKING, cast

from krust.metadata.store import (
    ANY,
    Change,
    Check,
    Children,
    Create,
    Created,
    Delete,
    Exists,
    MultiResult,
    Node,
    Operation,
    Query,
    Refusal,
    Result,
    Stat,
    StoreEvent,
    WatchFired,
    Write,
    fault,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

    from krust.metadata.rows import Row
    from krust.metadata.saved import SavedTree, TreeFiles

_log = logging.getLogger("krust.metadata")


class _Znode:
    """A node in memory. `children` is sorted; `owner` None: the node is persistent."""

    __slots__ = ("children", "cversion", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes, zxid: int, owner: LocalStore | None = None) -> None:
        self.data = data
        self.czxid = self.mzxid = zxid
        self.version = self.cversion = 0
        self.owner = owner
        self.children: list[str] = []

    def stat(self) -> Stat:
        return Stat(
            self.czxid,
            self.mzxid,
            self.version,
            self.cversion,
            self.owner.session if self.owner is not None else 0,
            len(self.children),
        )


class _RefusedError(Exception):
    """An operation is refused; the list is rolled back."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason


class Tree:
    """A tree of znodes that sessions share. `path`: its file; None: memory only.

    raises  ServerError: the files are not whole (`saved.SavedTree`)
    """

    def __init__(self, path: Path | TreeFiles | None = None) -> None:
        self.zxid = 0
        self._nodes = {"/": _Znode(b"", 0)}
        self._sessions: list[LocalStore] = []
        self._number = 0
        self._dirty: dict[str, None] = {}
        self._held = False
        self._saved = _opened(path) if path is not None else None
        if self._saved is not None:
            self._load(self._saved)

    def session(self) -> LocalStore:
        """Begin a session."""
        self._number += 1
        session = LocalStore(self, self._number)
        self._sessions.append(session)
        return session

    def close(self) -> None:
        """Commit, and close the files."""
        self.release()
        if self._saved is not None:
            self._saved.close()
            self._saved = None

    def hold(self) -> None:
        """Commit nothing until `release`. The changes of a start need no commit one by one."""
        self._held = True

    def release(self) -> bool:
        """Commit the changes since `hold`. False: that failed."""
        self._held = False
        return self.commit()

    def commit(self) -> bool:
        """Make the changes since the last call durable. False: the next call has to try again."""
        if self._saved is None:
            self._dirty.clear()
        if not self._dirty or self._saved is None or self._held:
            return True
        from krust.metadata.database import UnwritableError

        rows, gone = [], []
        for path in self._dirty:
            row = self._row(path)
            if row is None:
                gone.append(path)
            else:
                rows.append(row)
        try:
            self._saved.write(self.zxid, rows, gone, self._rows)
        except UnwritableError as error:
            _log.error("the metadata cannot be written: %s", error)
            return False
        self._dirty.clear()
        return True

    def _row(self, path: str) -> Row | None:
        """The row of a node; None: it does not exist or is ephemeral."""
        from krust.metadata.rows import Row

        node = self._nodes.get(path)
        if node is None or node.owner is not None:
            return None
        return Row(path, node.data, node.czxid, node.mzxid, node.version, node.cversion)

    def _rows(self) -> Iterator[Row]:
        return (row for row in map(self._row, self._nodes) if row is not None)

    def end(self, session: LocalStore) -> None:
        """End a session and delete its ephemeral nodes."""
        if session not in self._sessions:
            return
        self._sessions.remove(session)
        own = [path for path, node in self._nodes.items() if node.owner is session]
        if own:
            self.write([Delete(path) for path in own], session)
        self.commit()

    def write(self, operations: Sequence[Write], session: LocalStore) -> tuple[Result, ...]:
        """Make all writes or none, as change `zxid + 1`, and fire the watches."""
        undo: list[Callable[[], None]] = []
        seen: list[tuple[Change, str]] = []
        results: list[Result] = []
        touched: list[str] = []
        self.zxid += 1
        for operation in operations:
            try:
                results.append(self._step(operation, session, _Trace(undo, seen, touched)))
            except _RefusedError as refused:
                for step in reversed(undo):
                    step()
                self.zxid -= 1
                rest: list[Result] = [Refusal.ROLLED_BACK] * len(operations)
                rest[len(results)] = refused.reason
                return tuple(rest)
        self._dirty.update(dict.fromkeys(touched))
        for change, path in seen:
            for each in self._sessions:
                each.saw(change, path)
        return tuple(results)

    def query(self, operation: Query) -> Result:
        """Answer one read."""
        node = self._nodes.get(operation.path)
        if node is None:
            return Refusal.NO_NODE
        if isinstance(operation, Children):
            return tuple(node.children)
        return node.stat() if isinstance(operation, Exists) else Node(node.data, node.stat())

    def _step(self, operation: Write, session: LocalStore, trace: _Trace) -> Result:
        if isinstance(operation, Create):
            return self._create(operation, session, trace)
        node = self._nodes.get(operation.path)
        if node is None:
            raise _RefusedError(Refusal.NO_NODE)
        if operation.version not in (ANY, node.version):
            raise _RefusedError(Refusal.BAD_VERSION)
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Delete):
            self._delete(operation.path, node, trace)
            return None
        before = (node.data, node.version, node.mzxid)
        node.data, node.version, node.mzxid = operation.data, node.version + 1, self.zxid

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        trace.add(undo, operation.path)
        trace.seen.append((Change.CHANGED, operation.path))
        return node.stat()

    def _create(self, operation: Create, session: LocalStore, trace: _Trace) -> Result:
        path = operation.path
        above, _, name = path.rpartition("/")
        above = above or "/"
        parent = self._nodes.get(above)
        if parent is None:
            raise _RefusedError(Refusal.NO_NODE)
        if parent.owner is not None:
            raise _RefusedError(Refusal.NO_CHILDREN_FOR_EPHEMERALS)
        if operation.sequential:
            made = (parent.cversion + len(parent.children)) // 2  # all children ever created
            path, name = (f"{each}{made:010d}" for each in (path, name))
        if path in self._nodes:
            raise _RefusedError(Refusal.NODE_EXISTS)
        owner = session if operation.ephemeral else None
        self._nodes[path] = _Znode(operation.data, self.zxid, owner)
        insort(parent.children, name)
        parent.cversion += 1

        def undo() -> None:
            del self._nodes[path]
            parent.children.remove(name)
            parent.cversion -= 1

        trace.add(undo, path, above)
        trace.seen += [(Change.CREATED, path), (Change.CHILDREN, above)]
        return Created(path, self.zxid)

    def _delete(self, path: str, node: _Znode, trace: _Trace) -> None:
        if node.children:
            raise _RefusedError(Refusal.NOT_EMPTY)
        above, _, name = path.rpartition("/")
        above = above or "/"
        parent = self._nodes[above]
        del self._nodes[path]
        del parent.children[bisect_left(parent.children, name)]
        parent.cversion += 1

        def undo() -> None:
            self._nodes[path] = node
            insort(parent.children, name)
            parent.cversion -= 1

        trace.add(undo, path, above)
        trace.seen += [(Change.DELETED, path), (Change.CHILDREN, above)]

    def _load(self, saved: SavedTree) -> None:
        """Load the saved tree."""
        contents, self.zxid = saved.taken(), saved.zxid
        for row in sorted(contents.rows):  # parents sort before their children
            node = self._nodes.setdefault(row.path, _Znode(b"", 0))
            node.data, node.czxid, node.mzxid = row.data, row.czxid, row.mzxid
            node.version, node.cversion = row.version, row.cversion
            above, _, name = row.path.rpartition("/")
            if name:
                self._nodes[above or "/"].children.append(name)
        for node in self._nodes.values():
            node.children.sort()


class _Trace:
    """The progress of a list of writes: how to roll it back, fired watches, changed rows."""

    __slots__ = ("_touched", "_undo", "seen")

    def __init__(
        self,
        undo: list[Callable[[], None]],
        seen: list[tuple[Change, str]],
        touched: list[str],
    ) -> None:
        self._undo = undo
        self.seen = seen
        self._touched = touched

    def add(self, undo: Callable[[], None], *paths: str) -> None:
        self._undo.append(undo)
        self._touched.extend(paths)


class LocalStore:
    """One session with a Tree (the contract is `store.Store`)."""

    def __init__(self, tree: Tree, number: int) -> None:
        self.session = number
        self._tree = tree
        self._events: list[StoreEvent] = []
        self._unsaved: list[int] = []
        self._nodes: set[str] = set()
        self._children: set[str] = set()
        self._open = True

    def submit(self, operations: Sequence[Operation], token: Hashable) -> None:
        """Make the operations now. `events` returns their answer."""
        wrong = Refusal.NOT_APPLIED if not self._open else fault(operations)
        results: tuple[Result, ...]
        if wrong is not None:
            results = (wrong,) * len(operations)
        elif operations and isinstance(operations[0], Write):
            results = self._tree.write(cast("Sequence[Write]", operations), self)
            self._unsaved.append(len(self._events))
        else:
            results = tuple(map(self._query, cast("Sequence[Query]", operations)))
        self._events.append(MultiResult(token, results))

    def events(self) -> list[StoreEvent]:
        """Commit, then return the events. After a failed commit the outcome is UNKNOWN."""
        saved = self._tree.commit()
        unsaved, self._unsaved = self._unsaved, []
        events, self._events = self._events, []
        for place in [] if saved else unsaved:
            done = events[place]
            if isinstance(done, MultiResult) and done.refused is None:
                events[place] = MultiResult(done.token, (Refusal.UNKNOWN,) * len(done.results))
        return events

    @property
    def has_events(self) -> bool:
        """Whether `events` would return any."""
        return bool(self._events)

    def due_s(self) -> float:
        """Never: the store has no timers."""
        return inf

    def close(self) -> None:
        """End the session."""
        self._open = False
        self._tree.end(self)

    def saw(self, change: Change, path: str) -> None:
        """Fire the watch on a changed node, if there is one."""
        watches = self._children if change is Change.CHILDREN else self._nodes
        if path in watches:
            watches.remove(path)
            self._events.append(WatchFired(change, path))
        if change is Change.DELETED and path in self._children:
            self._children.remove(path)
            self._events.append(WatchFired(change, path))

    def _query(self, operation: Query) -> Result:
        result = self._tree.query(operation)
        if operation.watch and (isinstance(operation, Exists) or result is not Refusal.NO_NODE):
            watches = self._children if isinstance(operation, Children) else self._nodes
            watches.add(operation.path)
        return result


def _opened(path: Path | TreeFiles) -> SavedTree:
    """The files of a tree. Their modules are not loaded for a temporary tree."""
    from krust.metadata.saved import SavedTree, TreeFiles, tree_files

    return SavedTree(path if isinstance(path, TreeFiles) else tree_files(path))
