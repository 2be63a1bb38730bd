"""Notifications of changes: numbered nodes under a path that every broker watches.

Whoever changes what all brokers know creates such a node, which names it, and every broker that
sees the node reads that again. The numbers only grow, so a broker remembers the last one it has
seen. The controller deletes a node 15 minutes after it has seen it, as Kafka's brokers do.
What nodes say: `config_changes`, `acl_changes`, `delegation_token_changes`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.controller.controller_election import RetryLaterError
from krust.errors import ServerError
from krust.metadata.store import Children, Create, Delete, Node, Read, Refusal

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult

    Notifications = list[tuple[str, Node | Refusal]]

KEEP_MS = 15 * 60 * 1000
_LATER = (Refusal.NOT_APPLIED, Refusal.UNKNOWN)
"""why a notification cannot be read now"""


class SeenNotifications:
    """The notifications under some paths that this broker has seen."""

    def __init__(self, *parents: str) -> None:
        self._last = dict.fromkeys(parents, -1)
        """parent -> the number of the last one that was taken"""
        self._since: dict[str, int] = {}
        """path -> when it was seen first"""

    def begin(self) -> Steps:
        """Watch, and take the newest ones. The caller reads all that they may name next."""
        paths = yield from self._paths()
        self._last = dict.fromkeys(self._last, -1)
        self.take(paths)

    def new(self, now_ms: int) -> Generator[Transactions, list[MultiResult], Notifications]:
        """Those that were not taken: each with its node, or why it has none. Watches for more.

        raises  RetryLaterError: one cannot be read now
        """
        paths = yield from self._paths()
        self._since = {path: self._since.get(path, now_ms) for path in paths}
        new = [path for path in paths if _number_of(path) > self._last[_parent_of(path)]]
        results = yield from store_reads.read_many_in_slices(map(Read, new))
        found: Notifications = []
        for path, node in zip(new, results, strict=True):
            if not isinstance(node, Node | Refusal) or node in _LATER:
                raise RetryLaterError(f"{path}: {node}")
            found.append((path, node))
        return found

    def take(self, paths: Iterable[str]) -> None:
        """What these name was read, or is: they are no longer new."""
        for path in paths:
            parent = _parent_of(path)
            self._last[parent] = max(self._last[parent], _number_of(path))

    def purge(self, state: ControllerState, now_ms: int) -> Steps:
        """Delete those that all brokers had the time to see."""
        for path in [each for each, since in self._since.items() if now_ms - since >= KEEP_MS]:
            yield [[state.fence(), Delete(path)]]
            self._since.pop(path, None)

    def clear(self) -> Steps:
        """Delete all, in a tree that only this broker uses: nobody else watches."""
        paths = yield from self._paths()
        yield [[Delete(path)] for path in paths]

    def due_ms(self, now_ms: int) -> float:
        """The milliseconds until `purge` has something to delete."""
        return min(self._since.values(), default=inf) + KEEP_MS - now_ms

    def _paths(self) -> Generator[Transactions, list[MultiResult], list[str]]:
        """Those that there are; watches them."""
        asked = (Children(parent, watch=True) for parent in self._last)
        results = yield from store_reads.read_many(asked)
        return [
            f"{parent}/{name}"
            for parent, result in zip(self._last, results, strict=True)
            for name in store_reads.children(parent, result)
        ]


def create_nodes(paths: Iterable[str]) -> Steps:
    """Create the nodes above notifications and what they name, parents first."""
    wanted = list(paths)
    answers = yield [[Create(path)] for path in wanted]
    for path, done in zip(wanted, answers, strict=True):
        if done.refused not in (None, Refusal.NODE_EXISTS):
            why = done.refused.value
            raise ServerError(f"{path} cannot be created: {why}", hint="look at the store")


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def _number_of(path: str) -> int:
    digits = path[-10:]
    return int(digits) if digits.isdecimal() else -1
