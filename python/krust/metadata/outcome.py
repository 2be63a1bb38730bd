"""Whether a list of writes happened whose answer was lost: read off the tree, afterwards.

Who asks has waited until no such list can be under way any more: the connection is back (a server
that takes a session over fences the one before), and a `sync` went before the reading.

Each write is a witness. Because a list happens as a whole, one that shows `it did` or `it did not`
speaks for all; two that contradict each other, or none that knows, leave it open. What a witness
may lean on: changes since the list was submitted have a zxid larger than `before`; an ephemeral
node names its session; a version is never given twice.
Not promised: to tell our change from the same change that another made at the same time; where the
list checks a version that only one may hold (`/controller_epoch`), there is no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krust.metadata.store import (
    ANY,
    Check,
    Create,
    Created,
    Delete,
    Node,
    Refusal,
    Result,
    SetData,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Lost(NamedTuple):
    """A list of writes without an answer."""

    operations: Sequence[Write]
    before: int
    """the largest zxid that had been seen when it was submitted"""
    session: int
    """that submitted it; 0: it is over"""


def answer(lost: Lost, now: Mapping[str, Result]) -> tuple[Result, ...]:
    """The answer that was lost, or NO_SESSION for `it did not`, or UNKNOWN.

    now   by path: Node or NO_NODE, as they are read now
    """
    count = len(lost.operations)
    said = [_said(lost, place, now) for place in range(count)]
    known = {each for each in said if each is not None}
    if known == {True}:
        return tuple(_result(each, now.get(each.path)) for each in lost.operations)
    if known == {False} or all(isinstance(each, Check) for each in lost.operations):
        return (Refusal.NO_SESSION,) * count
    return (Refusal.UNKNOWN,) * count


def _said(lost: Lost, place: int, now: Mapping[str, Result]) -> bool | None:
    """What one write shows; None: nothing."""
    operation = lost.operations[place]
    found = now.get(operation.path)
    later = [each for each in lost.operations[place + 1 :] if each.path == operation.path]
    if isinstance(operation, Check) or not (isinstance(found, Node) or found is Refusal.NO_NODE):
        return None
    node = found if isinstance(found, Node) else None
    if isinstance(operation, Create):
        return None if operation.sequential else _made(operation, lost, node, later)
    if later:
        return None
    if isinstance(operation, Delete):
        if node is None:
            return True
        return False if node.stat.czxid <= lost.before else None
    return _set(operation, lost, node)


def _made(operation: Create, lost: Lost, node: Node | None, later: list[Write]) -> bool | None:
    if operation.ephemeral and not lost.session:
        return None
    if node is None:
        return None if any(isinstance(each, Delete) for each in later) else False
    if node.stat.czxid <= lost.before:
        return False
    if operation.ephemeral:
        return node.stat.owner == lost.session
    if later or node.stat.version > 0:
        return None
    return node.data == operation.data and not node.stat.ephemeral


def _set(operation: SetData, lost: Lost, node: Node | None) -> bool | None:
    if node is None:
        return None
    if node.stat.mzxid <= lost.before:
        return False
    if operation.version == ANY:
        return True if node.data == operation.data else None
    if node.stat.version > operation.version + 1:
        return None
    return node.stat.version == operation.version + 1 and node.data == operation.data


def _result(operation: Write, found: Result) -> Result:
    """What the store would have answered."""
    if isinstance(operation, Create):
        if operation.sequential:
            return Created("", 0)
        return Created(operation.path, found.stat.czxid if isinstance(found, Node) else 0)
    return found.stat if isinstance(operation, SetData) and isinstance(found, Node) else None
