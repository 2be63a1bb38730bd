"""ACLs in the tree: every broker with an authorizer reads all at its start, and then each change.

Whoever changes the ACLs of a pattern names it in `/kafka-acl-changes` (literal patterns) or
`/kafka-acl-extended-changes` (prefixed ones; `change_notifications`), and every broker reads that
pattern's node again.
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
from krust.controller.change_notifications import SeenNotifications, create_nodes
from krust.controller.pace import PAUSE
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Children, Node, Read, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection

    from krust.controller.state import ControllerState, Steps
    from krust.metadata.store import Result

CLOSED = frozenset({AclEntry(EVERYONE, WILDCARD, ALL, DENY)})
"""The entries of a pattern whose node cannot be read."""

_BATCH = 100
"""so many nodes are read in one slice"""
_KINDS = {parent: kind for kind, parent in acl_nodes.CHANGES.items()}
"""parent of notifications -> the type of the patterns that they name"""


class AclChangeNotifications(SeenNotifications):
    """The notifications of changed ACLs that this broker has seen."""

    def __init__(self) -> None:
        super().__init__(*acl_nodes.CHANGES.values())

    def follow(self, state: ControllerState) -> Steps:
        """Read all ACLs, and watch for changes from now on. Without an authorizer: nothing."""
        if not state.has_authorizer:
            return
        yield from create_nodes(acl_nodes.PERSISTENT)
        yield from self.begin()
        yield from load(state)

    def read_new(self, state: ControllerState, now_ms: int) -> Steps:
        """Read new notifications, and the ACLs of the patterns that they name."""
        if not state.has_authorizer:
            return
        new = yield from self.new(now_ms)
        patterns: set[ResourcePattern] = set()
        is_known = True
        for path, node in new:
            try:
                data = node.data if isinstance(node, Node) else None
                patterns.add(acl_nodes.decode_change(_KINDS[path.rpartition("/")[0]], data))
            except BadZnodeError as error:
                is_known = False
                state.fault(path, error)
        yield from reread(state, patterns) if is_known else load(state)
        self.take(path for path, _ in new)


def load_alone(state: ControllerState) -> Steps:
    """Read all ACLs of a tree that only this broker uses, if it has an authorizer."""
    if not state.has_authorizer:
        return
    yield from create_nodes(acl_nodes.PERSISTENT)
    yield from AclChangeNotifications().clear()
    yield from load(state)


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
