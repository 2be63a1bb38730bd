"""The embedded store for several brokers of one process: one tree, a session for each thread.

Threads: any; a session belongs to one thread. A thread that changes the tree calls the `wake` of
the sessions whose watches fired.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from krust.metadata.local import Tree
from krust.metadata.store import SessionChanged, SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

    from krust.metadata.saved import TreeFiles
    from krust.metadata.store import Operation, StoreEvent


_EXPIRY = (SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED)


class SharedTree:
    """A `Tree` behind a lock. `path`: its file; None: memory only."""

    def __init__(self, path: Path | TreeFiles | None = None) -> None:
        self.lasting = path is not None
        self._tree = Tree(path)
        self._lock = threading.RLock()
        self._stores: list[SharedStore] = []

    def session(self, wake: Callable[[], None] = lambda: None) -> SharedStore:
        """Begin a session. Another thread calls `wake` when its watches fire."""
        with self._lock:
            store = SharedStore(self, wake)
            self._stores.append(store)
            return store

    def close(self) -> None:
        """Close the file, after all sessions have ended."""
        with self._lock:
            self._tree.close()

    @contextmanager
    def held(self, by: SharedStore) -> Iterator[Tree]:
        """Lock the tree for one thread. Then wake the sessions whose watches fired."""
        with self._lock:
            yield self._tree
            fired = [each for each in self._stores if each is not by and each.core.has_events]
        for each in fired:
            each.wake()

    def leave(self, store: SharedStore) -> None:
        """Forget a session."""
        with self._lock:
            if store in self._stores:
                self._stores.remove(store)


class SharedStore:
    """One session with a SharedTree (the contract is `store.Store`)."""

    def __init__(self, tree: SharedTree, wake: Callable[[], None]) -> None:
        self._shared, self.wake = tree, wake
        with tree.held(self) as inner:
            self.core = inner.session()
        self.session = self.core.session
        self._events: list[StoreEvent] = []

    def submit(self, operations: Sequence[Operation], token: Hashable) -> None:
        """Make the operations now. `events` returns their answer."""
        with self._shared.held(self):
            self.core.submit(operations, token)

    def events(self) -> list[StoreEvent]:
        """Commit, then return the events."""
        with self._shared.held(self):
            events, self._events = self._events, []
            return [*events, *self.core.events()]

    def expire(self) -> None:
        """End the session as if it had timed out, and begin a new one.

        Any thread may call it while the session's thread waits.
        """
        with self._shared.held(self) as inner:
            self._events += self.core.events()
            self.core.close()
            self.core = inner.session()
            self.session = self.core.session
            self._events += map(SessionChanged, _EXPIRY)
        self.wake()

    def due_s(self) -> float:
        """Never: a thread that changes the tree wakes the others."""
        return self.core.due_s()

    def close(self) -> None:
        """End the session."""
        self._shared.leave(self)
        with self._shared.held(self):
            self.core.close()
