"""The contract of a metadata store: an asynchronous tree of znodes, as in ZooKeeper.

A caller submits lists of operations with a token; a list of writes is what ZooKeeper calls a multi.
The store answers with events. The tree:

- A path is `/a/b` (`is_path`). Every node except the root has a parent. A node has data (bytes) and
  may have children. The root can be read and set, but not created or deleted.
- A multi is applied as a whole or not at all. If one write fails, its place in the answer has
  the reason, and all other places have ROLLED_BACK. Each read of a list is answered by itself.
  A list has writes (and Checks) or reads, never both. An invalid list (a bad path, a mixture, more
  than LARGEST bytes) is refused before anything else, in every place.
- Every change has a number (zxid), larger than all earlier ones. A node has the zxid of its
  creation (czxid) and of its last change (mzxid). `version` counts changes of the data, `cversion`
  changes of the children. The version -1 in an operation matches any version.
- The name of a sequential node gets ten digits, from a counter of its parent that never falls.
- An ephemeral node exists as long as the session that created it, and has no children. Its Stat has
  the number of that session. A node belongs to a store only if that is the store's session.
- A read sets a watch. The watch fires once, also for a change by its own session. Read and Exists
  watch creation, change and deletion of a node; Children watches which children exist.
- Events come in the order of the changes. A session gets the event of a watch after the answer to
  the read that set it, and before the answer to any later list. When an answer arrives, the change
  is durable (if the store is).

If there is a connection between the store and its tree:

- A new store is connected. SUSPENDED: the connection is lost, and with it all watches. Until
  CONNECTED, every list is refused with NOT_APPLIED, which means that nothing was written. After
  CONNECTED a caller that watches reads everything again and sets its watches again.
- OVERDUE: no answer for a session timeout, on the store's monotonic clock, since the last answered
  list was submitted. Another broker may have taken over; lists are refused as above. If CONNECTED
  follows, the session is alive, unless EXPIRED came before.
- EXPIRED: the ephemeral nodes of the session are deleted. The store begins a new session, with
  another number. CONNECTED follows.
- If the answer to a multi is lost, the store answers after it is connected again and has read the
  tree: with the lost answer if the multi was applied, with NOT_APPLIED if it was not, with
  UNKNOWN if the tree does not show it. A lost read is answered with NOT_APPLIED.

Threads: the policy thread calls all methods. A store's own threads only call `wake` when there is
an event.
Not promised: that a change by another session is seen at once; that a watch fires for each change.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

ANY = -1
"""Matches any version."""

LARGEST = 1_000_000
"""The most bytes of a list. ZooKeeper closes the connection above 1,048,575 (`jute.maxbuffer`)."""


_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|//|/\\.\\.?(?:/|\\Z)",
)
"""What no path has: control and private characters, surrogates, empty names, `.`, `..`."""


class Create(NamedTuple):
    """Create a node. Answered by Created."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's data. Answered by Stat."""

    path: str
    data: bytes
    version: int = ANY


class Delete(NamedTuple):
    """Delete a node without children. Answered by None."""

    path: str
    version: int = ANY


class Check(NamedTuple):
    """Make the list fail if the node has another version. Answered by None."""

    path: str
    version: int


class Read(NamedTuple):
    """Read a node's data. Answered by Node."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Ask whether a node exists. Answered by Stat or NO_NODE; a watch is set in both cases."""

    path: str
    watch: bool = False


class Children(NamedTuple):
    """Read the names of a node's children. Answered by a sorted tuple."""

    path: str
    watch: bool = False


Write = Create | SetData | Delete | Check
Query = Read | Exists | Children
Operation = Write | Query
_WITH_DATA = Create | SetData
_OF_ROOT = SetData | Check
"""Writes that the root allows."""


class Stat(NamedTuple):
    """The versions, zxids and owner of a node."""

    czxid: int
    mzxid: int
    version: int
    cversion: int
    owner: int
    """the session that an ephemeral node belongs to; 0: the node is persistent"""
    children: int

    @property
    def ephemeral(self) -> bool:
        """Whether the node is deleted when a session ends."""
        return self.owner != 0


class Node(NamedTuple):
    """A node's data and Stat."""

    data: bytes
    stat: Stat


class Created(NamedTuple):
    """The path of a new node (with the digits of a sequential node) and its czxid.

    path   empty: the answer was lost and the node is sequential
    zxid   0: not known (ZooKeeper's multi)
    """

    path: str
    zxid: int


class Refusal(Enum):
    """Why an operation was not made."""

    NO_NODE = "there is no such node"
    NODE_EXISTS = "the node is there already"
    BAD_VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"
    NO_CHILDREN_FOR_EPHEMERALS = "an ephemeral node has no children"
    BAD_ARGUMENTS = "a path is none, or the list mixes reads and writes"
    ROLLED_BACK = "another operation of the list was refused"
    TOO_LARGE = "the list is larger than the store takes"
    NOT_ALLOWED = "the node's access list does not allow it"
    FAILED = "the store failed; its log line says why"
    NOT_APPLIED = "there is no connection to the store, or the session is over: nothing was written"
    UNKNOWN = "the answer was lost; the change may have happened"


Result = Created | Stat | Node | tuple[str, ...] | None | Refusal


class MultiResult(NamedTuple):
    """The answers to one multi, or to one list of reads, in its order."""

    token: Hashable
    results: tuple[Result, ...]

    @property
    def refused(self) -> Refusal | None:
        """Why it was not applied; None: it was."""
        reason = None
        for result in self.results:
            if isinstance(result, Refusal):
                reason = result
                if result is not Refusal.ROLLED_BACK:
                    break
        return reason


class Change(Enum):
    """The change that made a watch fire."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchFired(NamedTuple):
    """A watch fired. It has to be set again to fire again."""

    change: Change
    path: str


class SessionState(Enum):
    """The state of a store's session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """no connection; ephemeral nodes may still exist; all watches are lost"""
    OVERDUE = "overdue"
    """no connection for a session timeout: another broker may have taken over"""
    EXPIRED = "expired"
    """the ephemeral nodes are deleted; the store begins a new session"""


class SessionChanged(NamedTuple):
    """The state of the session changed."""

    state: SessionState


StoreEvent = MultiResult | WatchFired | SessionChanged


class Store(Protocol):
    """One session with a tree of znodes."""

    @property
    def session(self) -> int:
        """The number of the session, never 0. It changes after EXPIRED and CONNECTED."""

    def submit(self, operations: Sequence[Operation], token: Hashable) -> None:
        """Submit operations. `events` will return exactly one MultiResult with this token."""

    def events(self) -> list[StoreEvent]:
        """The events since the last call. Never waits."""

    def close(self) -> None:
        """End the session and delete its ephemeral nodes. Waiting lists get no answer."""

    def due_s(self) -> float:
        """The seconds until `events` has to be called, even if `wake` is not called."""


def is_path(path: str, *, sequential: bool = False) -> bool:
    """Whether a path is valid. The last name of a sequential node may be empty."""
    if path == "/":
        return not sequential
    whole = sequential or not path.endswith("/")
    return whole and path.startswith("/") and _UNFIT.search(path) is None


def fault(operations: Sequence[Operation]) -> Refusal | None:
    """Why a list is invalid; None: it is valid."""
    writes = 0
    for each in operations:
        sequential = False
        if isinstance(each, Write):
            writes += 1
            sequential = isinstance(each, Create) and each.sequential
            if each.path == "/" and not isinstance(each, _OF_ROOT):
                return Refusal.BAD_ARGUMENTS
        if not is_path(each.path, sequential=sequential):
            return Refusal.BAD_ARGUMENTS
    if 0 < writes < len(operations):
        return Refusal.BAD_ARGUMENTS
    return Refusal.TOO_LARGE if size(operations) > LARGEST else None


def size(operations: Sequence[Operation]) -> int:
    """An upper bound of the bytes of a list."""
    found = 100 * len(operations)
    for each in operations:
        path = each.path
        found += len(path) if path.isascii() else len(path.encode())
        if isinstance(each, _WITH_DATA):
            found += len(each.data)
    return found
