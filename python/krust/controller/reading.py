"""What the store answers to a read, or the ServerError that it cannot be known now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import ServerError
from krust.metadata.store import Created, Node, Refusal, Stat

if TYPE_CHECKING:
    from krust.metadata.store import Result


def children(path: str, result: Result) -> tuple[str, ...]:
    """A node's children. ServerError: nobody knows."""
    if isinstance(result, tuple) and not isinstance(result, Node | Stat | Created):
        return result
    raise _unreadable(path, result)


def node(path: str, result: Result) -> Node | None:
    """A node; None: there is none. ServerError: nobody knows."""
    if isinstance(result, Node):
        return result
    if result is Refusal.NO_NODE:
        return None
    raise _unreadable(path, result)


def _unreadable(path: str, result: Result) -> ServerError:
    why = result.value if isinstance(result, Refusal) else "it answers something else"
    return ServerError(f"the metadata cannot be read: {path}: {why}", hint="look at the store")
