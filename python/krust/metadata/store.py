"""The contract of a metadata store: a tree of znodes, as ZooKeeper has it, asked asynchronously.

A store takes lists of operations under a token and answers with events. Rules of the tree:

- A path is `/a/b`; every node but the root has a parent, holds bytes, and may have children.
- A list of writes happens as a whole or not at all; where one fails, its place in the answer holds
  the reason and all other places ROLLED_BACK. Reads in one list are answered each for itself.
  A list holds writes (and Checks) or reads, never both.
- Every change has a number (zxid), larger than all before: a node remembers that of its making
  (czxid) and of its last change (mzxid). `version` counts changes of the data, `cversion` those of
  the children. A version of -1 in an operation matches any.
- A sequential node's name gets ten digits, from a counter of its parent that never goes back.
- An ephemeral node lives as long as the session that made it, and has no children.
- A watch is set by a read, fires once, and fires for changes by its own session too. Read and
  Exists watch a node's making, change and end; Children the coming and going of children.
- Events come in the order of changes: a session sees a watch fire before the answer to anything
  it submits afterwards. When an answer is seen, the change is durable (if the store is).

Threads: one; `submit`, `events` and `close` belong to the policy thread. A store that has threads
of its own calls `wake` from them when an event is there, and that is all they do.
Not promised: that a change by others is seen at once; that a missed change fires twice.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

ANY = -1
"""The version that matches any."""


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


class Stat(NamedTuple):
    """What a node remembers beside its data."""

    czxid: int
    mzxid: int
    version: int
    cversion: int
    ephemeral: bool
    children: int


class Node(NamedTuple):
    """A node's data and Stat."""

    data: bytes
    stat: Stat


class Created(NamedTuple):
    """The path of a new node (with its digits, where it is sequential) and its czxid.

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
    BAD_ARGUMENTS = "that is no path, or the list mixes reads and writes"
    ROLLED_BACK = "another operation of the list was refused"
    NO_SESSION = "the session is over, or the answer was lost: the change may have happened"


Result = Created | Stat | Node | tuple[str, ...] | None | Refusal


class Done(NamedTuple):
    """The answers to one list of operations, in its order."""

    token: Hashable
    results: tuple[Result, ...]

    @property
    def refused(self) -> Refusal | None:
        """The reason why the list did not happen; None: it did."""
        reasons = [result for result in self.results if isinstance(result, Refusal)]
        real = [reason for reason in reasons if reason is not Refusal.ROLLED_BACK]
        return (real or reasons or [None])[0]


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
    EXPIRED = "expired"
    """the ephemerals are gone; the store makes a new session"""


class SessionChanged(NamedTuple):
    """The session's state is another."""

    state: SessionState


StoreEvent = Done | Watched | SessionChanged


class Store(Protocol):
    """One session with a tree of znodes."""

    def submit(self, operations: Sequence[Operation], token: Hashable) -> None:
        """Ask for operations; `events` will hold a Done with this token, exactly one."""

    def events(self) -> list[StoreEvent]:
        """Take what has happened since the last call; never waits."""

    def close(self) -> None:
        """End the session: its ephemerals go. Lists that wait are not answered any more."""
