"""The contract of a metadata store: a tree of znodes, as ZooKeeper has it, asked asynchronously.

A store takes lists of operations under a token and answers with events. Rules of the tree:

- A path is `/a/b` (`is_path`); every node but the root has a parent, holds bytes, and may have
  children. The root is read and set, never made or deleted.
- A list of writes happens as a whole or not at all; where one fails, its place in the answer holds
  the reason and all other places ROLLED_BACK. Reads in one list are answered each for itself.
  A list holds writes (and Checks) or reads, never both. What is wrong with a list in itself (a bad
  path, a mixture, more than LARGEST bytes) is told before anything else, in every place.
- Every change has a number (zxid), larger than all before: a node remembers that of its making
  (czxid) and of its last change (mzxid). `version` counts changes of the data, `cversion` those of
  the children. A version of -1 in an operation matches any.
- A sequential node's name gets ten digits, from a counter of its parent that never goes back.
- An ephemeral node lives as long as the session that made it, and has no children. Its Stat has
  the number of that session; it is a store's own only if that is the number of the store's session.
- A watch is set by a read, fires once, and fires for changes by its own session too. Read and
  Exists watch a node's making, change and end; Children the coming and going of children.
- Events come in the order of changes: a session sees a watch fire before the answer to anything
  it submits afterwards, and after the answer to the read that set it. When an answer is seen, the
  change is durable (if the store is).

Where a connection lies between the store and its tree:

- A store is handed over connected. SUSPENDED: the connection is gone, and with it every watch.
  Until CONNECTED says that it is back, every list is refused with NO_SESSION, which means that it
  did not happen. After CONNECTED whoever watches reads everything again, with watches.
- OVERDUE: no answer for as long as a session lasts, counted by the store's own monotonic clock from
  when the last answered list was submitted. Others may have taken over; lists are refused as
  above. CONNECTED after it: the session lives, or EXPIRED has told before that it does not.
- EXPIRED: the session's ephemerals are gone. The store makes a new session by itself, with another
  number; CONNECTED tells when.
- A list of writes whose answer is lost is not answered until the store is connected again and has
  looked what became of it: it happened (then its answer is what it would have been), it did not
  (NO_SESSION), or the tree shows neither (UNKNOWN). A lost read is answered NO_SESSION.

Threads: one; all methods belong to the policy thread. A store that has threads of its own calls
the `wake` it was made with from them when an event is there, and that is all they do.
Not promised: that a change by others is seen at once; that a missed change fires twice.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

ANY = -1
"""The version that matches any."""

LARGEST = 1_000_000
"""bytes of a list; ZooKeeper takes 1,048,575 (`jute.maxbuffer`) and hangs up on more"""


_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|//|/\\.\\.?(?:/|\\Z)",
)
"""No path has: controls, surrogates, private letters, specials, empty names, `.`, `..`."""


class Create(NamedTuple):
    """Make a node; answered by Created."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's data; answered by Stat."""

    path: str
    data: bytes
    version: int = ANY


class Delete(NamedTuple):
    """Take a childless node away; answered by None."""

    path: str
    version: int = ANY


class Check(NamedTuple):
    """Make the list fail if the node's version is another; answered by None."""

    path: str
    version: int


class Read(NamedTuple):
    """Ask for a node's data; answered by Node."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Ask whether a node is there; answered by Stat, or NO_NODE, and watched either way."""

    path: str
    watch: bool = False


class Children(NamedTuple):
    """Ask for the names of a node's children; answered by a sorted tuple."""

    path: str
    watch: bool = False


Write = Create | SetData | Delete | Check
Query = Read | Exists | Children
Operation = Write | Query
_WITH_DATA = Create | SetData
_OF_ROOT = SetData | Check
"""Writes that the root takes."""


class Stat(NamedTuple):
    """What a node remembers beside its data."""

    czxid: int
    mzxid: int
    version: int
    cversion: int
    owner: int
    """the session that an ephemeral node belongs to; 0: the node is persistent"""
    children: int

    @property
    def ephemeral(self) -> bool:
        """Whether the node goes with a session."""
        return self.owner != 0


class Node(NamedTuple):
    """A node's data and Stat."""

    data: bytes
    stat: Stat


class Created(NamedTuple):
    """The path of a new node (with its digits, where it is sequential) and its czxid.

    path   empty where the answer was lost and the node is sequential
    zxid   0 where the store cannot tell it (ZooKeeper's multi)
    """

    path: str
    zxid: int


class Refusal(Enum):
    """Why an operation did not happen."""

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
    NO_SESSION = "there is no connection to the store, or the session is over; nothing happened"
    UNKNOWN = "the answer was lost; the change may have happened"


Result = Created | Stat | Node | tuple[str, ...] | None | Refusal


class Done(NamedTuple):
    """The answers to one list of operations, in its order."""

    token: Hashable
    results: tuple[Result, ...]

    @property
    def refused(self) -> Refusal | None:
        """The reason why the list did not happen; None: it did."""
        reason = None
        for result in self.results:
            if isinstance(result, Refusal):
                reason = result
                if result is not Refusal.ROLLED_BACK:
                    break
        return reason


class Change(Enum):
    """What a watch saw."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class Watched(NamedTuple):
    """A watch fired; it must be set anew to fire again."""

    change: Change
    path: str


class SessionState(Enum):
    """How a store stands to its tree."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """no answers now; ephemerals may or may not live; every watch is gone"""
    OVERDUE = "overdue"
    """so for as long as a session lasts: others may have taken over"""
    EXPIRED = "expired"
    """the ephemerals are gone; the store makes a new session"""


class SessionChanged(NamedTuple):
    """The session's state is another."""

    state: SessionState


StoreEvent = Done | Watched | SessionChanged


class Store(Protocol):
    """One session with a tree of znodes."""

    @property
    def session(self) -> int:
        """The number of the session, never 0; another one after EXPIRED and CONNECTED."""

    def submit(self, operations: Sequence[Operation], token: Hashable) -> None:
        """Ask for operations; `events` will hold a Done with this token, exactly one."""

    def events(self) -> list[StoreEvent]:
        """Take what has happened since the last call; never waits."""

    def close(self) -> None:
        """End the session: its ephemerals go. Lists that wait are not answered any more."""

    def due_s(self) -> float:
        """In how many seconds `events` has to be called, even where nothing wakes."""


def is_path(path: str, *, sequential: bool = False) -> bool:
    """Whether a node can be called so; a sequential one's own name may be empty."""
    if path == "/":
        return not sequential
    whole = sequential or not path.endswith("/")
    return whole and path.startswith("/") and _UNFIT.search(path) is None


def fault(operations: Sequence[Operation]) -> Refusal | None:
    """What is wrong with a list in itself."""
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
    """How many bytes a list takes, or a few more."""
    found = 100 * len(operations)
    for each in operations:
        path = each.path
        found += len(path) if path.isascii() else len(path.encode())
        if isinstance(each, _WITH_DATA):
            found += len(each.data)
    return found
