"""ACLs in the tree: every broker with an authorizer reads all at its start, and then each change.

Whoever changes the ACLs of a pattern creates a node in `/kafka-acl-changes` (literal patterns) or
`/kafka-acl-extended-changes` (prefixed ones) that names the pattern. Every broker that sees it
reads that pattern's node again. The numbers of those nodes only grow, so a broker remembers the
last one it has seen. The controller deletes one 15 minutes after it has seen it, as Kafka's brokers
do.
What a broker reads in one step holds from that step on, so what it read last holds. After a lost
session, and after a change that cannot be told, it reads all again. Until then the ACLs that it
knows hold.

A node that cannot be read costs its own pattern: what it denies is unknown, so the pattern denies
everybody everything (super users excepted) until the node is repaired, or deleted by DeleteAcls.
If the names of the nodes cannot be read, the broker does not start.
Not promised: that a change is noticed whose author creates no such node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import acl_nodes, store_reads
from krust.controller.acl_nodes import AclEntry
from krust.controller.acls import ALL, DENY, EVERYONE, WILDCARD, ResourcePattern
from krust.controller.controller_election import RetryLaterError
from krust.controller.pace import PAUSE
from krust.errors import ServerError
from krust.metadata.contents import BadZnodeError
from krust.metadata.store import Children, Create, Delete, Node, Read, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable

    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult, Query, Result

KEEP_MS = 15 * 60 * 1000
CLOSED = frozenset({AclEntry(EVERYONE, WILDCARD, ALL, DENY)})
"""The entries of a pattern whose node cannot be read."""

_BATCH = 100
"""so many nodes are read in one slice"""


class AclChangeNotifications:
    """The notifications of changed ACLs that this broker has seen."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(acl_nodes.CHANGES, -1)
        """pattern type -> the number of the last one seen"""
        self._since: dict[str, int] = {}
        """path -> when it was seen first"""

    def follow(self, state: ControllerState) -> Steps:
        """Read all ACLs, and watch for changes from now on. Without an authorizer: nothing."""
        if not state.has_authorizer:
            return
        yield from create_nodes()
        found = yield from _notifications()
        for kind, names in found.items():
            self._last[kind] = max(map(_number_of, names), default=-1)
        yield from load(state)

    def read_new(self, state: ControllerState, now_ms: int) -> Steps:
        """Read new notifications, and the ACLs of the patterns that they name."""
        if not state.has_authorizer:
            return
        found = yield from _notifications()
        paths = {
            f"{acl_nodes.CHANGES[kind]}/{name}": kind
            for kind, names in found.items()
            for name in names
        }
        self._since = {path: self._since.get(path, now_ms) for path in paths}
        new = [path for path, kind in paths.items() if _number_of(path) > self._last[kind]]
        patterns: set[ResourcePattern] = set()
        results = yield from store_reads.read_many_in_slices(map(Read, new))
        is_known = True
        for path, node in zip(new, results, strict=True):
            if not isinstance(node, Node | Refusal) or node in _LATER:
                raise RetryLaterError(f"{path}: {node}")
            try:
                data = node.data if isinstance(node, Node) else None
                patterns.add(acl_nodes.decode_change(paths[path], data))
            except BadZnodeError as error:
                is_known = False
                state.fault(path, error)
        yield from reread(state, patterns) if is_known else load(state)
        for path in new:
            kind = paths[path]
            self._last[kind] = max(self._last[kind], _number_of(path))

    def purge(self, state: ControllerState, now_ms: int) -> Steps:
        """Delete notifications that all brokers had the time to see."""
        for path in [each for each, since in self._since.items() if now_ms - since >= KEEP_MS]:
            yield [[state.fence(), Delete(path)]]
            self._since.pop(path, None)

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until a notification has to be deleted."""
        return min(self._since.values(), default=float("inf")) + KEEP_MS - now_ms


def load_alone(state: ControllerState) -> Steps:
    """Read all ACLs of a tree that only this broker uses, if it has an authorizer.

    Nobody else watches, so the notifications of its last run are deleted.
    """
    if not state.has_authorizer:
        return
    yield from create_nodes()
    for kind, names in (yield from _notifications()).items():
        yield [[Delete(f"{acl_nodes.CHANGES[kind]}/{name}")] for name in names]
    yield from load(state)


def create_nodes() -> Steps:
    """Create the nodes above those of ACLs and their changes."""
    answers = yield [[Create(path)] for path in acl_nodes.PERSISTENT]
    for path, done in zip(acl_nodes.PERSISTENT, answers, strict=True):
        if done.refused not in (None, Refusal.NODE_EXISTS):
            why = done.refused.value
            raise ServerError(f"{path} cannot be created: {why}", hint="look at the store")


def load(state: ControllerState) -> Steps:
    """Read all ACLs. ServerError: the tree cannot be read."""
    known = set(state.acls)
    folders = acl_nodes.FOLDERS
    (done,) = yield [[Children(path) for path in folders]]
    there: dict[ResourcePattern, None] = {}
    for (path, kinds), result in zip(folders.items(), done.results, strict=True):
        names = () if result is Refusal.NO_NODE else store_reads.children(path, result)
        there |= {ResourcePattern(*kinds, name): None for name in names}
    yield from reread(state, [*there, *(known - there.keys())])
    state.changes.acls = True


def reread(state: ControllerState, patterns: Collection[ResourcePattern]) -> Steps:
    """Read the ACLs of these patterns. ServerError: the tree cannot be read."""
    left = [each for each in patterns if acl_nodes.is_storable(each)]
    for start in range(0, len(left), _BATCH):
        if start:
            yield PAUSE
        some = left[start : start + _BATCH]
        results = yield from store_reads.read_many(Read(acl_nodes.path(each)) for each in some)
        for pattern, result in zip(some, results, strict=True):
            state.set_acls(pattern, _entries_of(state, pattern, result))


def entries_in(node: Node | None) -> frozenset[AclEntry]:
    """The entries in a pattern's node, if there is one. BadZnodeError: they cannot be read."""
    return acl_nodes.decode(node.data) if node is not None else frozenset()


def _entries_of(
    state: ControllerState, pattern: ResourcePattern, result: Result
) -> frozenset[AclEntry]:
    path = acl_nodes.path(pattern)
    try:
        return entries_in(store_reads.node(path, result))
    except (BadZnodeError, store_reads.UnreadableError) as error:
        state.fault(path, f"{error}; until it is repaired, everybody is denied everything there")
        return CLOSED


def _notifications() -> Generator[Transactions, list[MultiResult], dict[int, tuple[str, ...]]]:
    """The names of the notifications, by the type of their patterns; watches them."""
    asked: Iterable[Query] = (Children(path, watch=True) for path in acl_nodes.CHANGES.values())
    results = yield from store_reads.read_many(asked)
    return {
        kind: store_reads.children(path, result)
        for (kind, path), result in zip(acl_nodes.CHANGES.items(), results, strict=True)
    }


_LATER = (Refusal.NOT_APPLIED, Refusal.UNKNOWN)
"""why a notification cannot be read now"""


def _number_of(name: str) -> int:
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
