"""Finds out from the tree whether a multi was applied, if the answer was lost.

The caller has waited until the multi can no longer arrive: the connection is back (a server that
takes over a session fences the one before), and the tree was read after a `sync`.

Each write gives evidence. The store applies a multi as a whole, so one write that shows that it was
made, or that it was not, decides for all. If two writes contradict each other, or if no write shows
anything, the outcome is unknown. The evidence: changes since its submission have a zxid
larger than `before`; an ephemeral node names its session; a node never has the same version twice.
Limit: another client may have made the same change at the same time, and then this module takes
that change for ours. A multi that checks a version which only one broker can have
(`/controller_epoch`) has no such rival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class UnansweredWrites(NamedTuple):
    """A multi without an answer."""

    operations: Sequence[Write]
    before: int
    """the largest zxid that had been seen when it was submitted"""
    session: int
    """the session that submitted it; 0: it has ended"""


def find_answer(lost: UnansweredWrites, now: Mapping[str, Result]) -> tuple[Result, ...]:
    """The lost answer; NOT_APPLIED: nothing was written; UNKNOWN: the tree does not show it.

    now   path -> Node or NO_NODE, as read now
    """
    count = len(lost.operations)
    evidence = [_evidence(lost, index, now) for index in range(count)]
    known = {each for each in evidence if each is not None}
    if known == {True}:
        return tuple(_result(each, now.get(each.path)) for each in lost.operations)
    if known == {False} or all(isinstance(each, Check) for each in lost.operations):
        return (Refusal.NOT_APPLIED,) * count
    return (Refusal.UNKNOWN,) * count


def _evidence(lost: UnansweredWrites, index: int, now: Mapping[str, Result]) -> bool | None:
    """Whether one write shows that the multi was applied; None: it shows nothing."""
    operation = lost.operations[index]
    found = now.get(operation.path)
    later = [each for each in lost.operations[index + 1 :] if each.path == operation.path]
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


def _made(
    operation: Create, lost: UnansweredWrites, node: Node | None, later: list[Write]
) -> bool | None:
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


def _set(operation: SetData, lost: UnansweredWrites, node: Node | None) -> bool | None:
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
    """The answer that the store would have given."""
    if isinstance(operation, Create):
        if operation.sequential:
            return Created("", 0)
        return Created(operation.path, found.stat.czxid if isinstance(found, Node) else 0)
    return found.stat if isinstance(operation, SetData) and isinstance(found, Node) else None
