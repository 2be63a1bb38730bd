"""Reads of nodes from the store, their results, and the errors of those that failed.

A store takes no list of reads or writes above `LARGEST` bytes. `read_many` splits a
list of reads, such as one read for each partition of a topic.
ServerError: the store is not available; the caller stops reading. UnreadableError: only this node
cannot be read, and the caller may continue without it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krust.controller.pace import PAUSE, SLICE
from krust.errors import ServerError
from krust.metadata.store import LARGEST, Created, Node, Refusal, Stat, size

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from krust.controller.state import Transactions
    from krust.metadata.store import MultiResult, Query, Result

_STORE_UNAVAILABLE = (Refusal.NOT_APPLIED, Refusal.UNKNOWN)
"""Refusals that concern the whole store, and not the node that was read."""


class UnreadableError(ServerError):
    """The store refuses to read this node; it reads others."""


def read_many(queries: Iterable[Query]) -> Generator[Transactions, list[MultiResult], list[Result]]:
    """Read any number of nodes. Returns the answers, in the order of the queries."""
    asked: Transactions = []
    room = 0
    for each in queries:
        need = size([each])
        if need > room:
            asked.append([])
            room = LARGEST // 2
        asked[-1].append(each)
        room -= need
    answers = (yield asked) if asked else []
    return [result for done in answers for result in done.results]


def read_many_in_slices(
    queries: Iterable[Query],
) -> Generator[Transactions, list[MultiResult], list[Result]]:
    """The same as `read_many`, with a pause after each slice of reads."""
    left = iter(queries)
    results: list[Result] = []
    while slice_of := list(islice(left, SLICE // 2)):
        if results:
            yield PAUSE
        results += yield from read_many(slice_of)
    return results


def children(path: str, result: Result) -> tuple[str, ...]:
    """A node's children, from the result of a read. ServerError: the read failed."""
    if isinstance(result, tuple) and not isinstance(result, Node | Stat | Created):
        return result
    raise _unreadable(path, result)


def node(path: str, result: Result) -> Node | None:
    """A node, from the result of a read; None: it does not exist.

    raises  ServerError, UnreadableError: the read failed
    """
    if isinstance(result, Node):
        return result
    if result is Refusal.NO_NODE:
        return None
    raise _unreadable(path, result)


def _unreadable(path: str, result: Result) -> ServerError:
    why = result.value if isinstance(result, Refusal) else "it answers something else"
    kind = ServerError if result in _STORE_UNAVAILABLE else UnreadableError
    return kind(f"the metadata cannot be read: {path}: {why}", hint="look at the store")
