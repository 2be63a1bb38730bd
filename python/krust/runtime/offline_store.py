"""The metadata of brokers that do not run, opened by a command: a data directory or a ZooKeeper.

The caller holds the lock of the data directory. Threads: one.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from krust.controller.state import chunks
from krust.errors import ServerError
from krust.metadata import transfer, znodes
from krust.metadata.cluster_tree import ClusterTree
from krust.metadata.store import (
    ANY,
    Check,
    Children,
    MultiResult,
    Node,
    Read,
    Refusal,
    SessionChanged,
    SessionState,
)
from krust.runtime import metadata

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import TypeVar

    from krust.config import Config
    from krust.controller.state import Transactions
    from krust.metadata.store import Operation, Store, Write

    _Result = TypeVar("_Result")

_MAX_PENDING = 500
"""how many lists may wait for their answer"""


class OpenStore:
    """A store with calls that wait for their answer."""

    def __init__(self, store: Store, name: str, woken: threading.Event) -> None:
        self._store, self._name, self._woken = store, name, woken

    def side(self) -> ClusterTree:
        """Read the tree."""
        nodes: dict[str, bytes] = {}
        alive: list[str] = []
        (top,) = self.ask([[Children("/")]])
        level = [
            f"/{name}" for name in _child_names(top) if name in transfer.ROOTS | {"controller"}
        ]
        while level:
            read = self.ask([[Read(path), Children(path)] for path in level])
            deeper = []
            for path, done in zip(level, read, strict=True):
                node = done.results[0]
                if not isinstance(node, Node):
                    if node is Refusal.NO_NODE:
                        continue
                    raise ServerError(f"{path} in {self._name}: {done.refused}", hint=_HINT)
                if node.stat.owner:
                    if path.startswith((znodes.CONTROLLER, znodes.BROKERS)):
                        alive.append(path)
                    continue
                nodes[path] = node.data
                if path not in transfer.NOTIFICATION_PARENTS:
                    deeper += [f"{path}/{name}" for name in _child_names(done, 1)]
            level = deeper
        return ClusterTree(self._name, nodes, tuple(alive))

    def write(self, operations: Sequence[Write]) -> None:
        """Make all writes, in order."""
        whole: list[Operation] = list(operations)
        for transaction in chunks(Check("/", ANY), whole):
            (done,) = self.ask([transaction])
            if done.refused is not None:
                raise ServerError(
                    f"{self._name} refuses the metadata: {done.refused.value}",
                    hint="stop the programs that use it, and repeat this",
                )

    def run(self, steps: Generator[Transactions, list[MultiResult], _Result]) -> _Result:
        """Run a decision of the controller to its end."""
        answers: list[MultiResult] = []
        try:
            asked = next(steps)
            while True:
                answers = self.ask(asked)
                asked = steps.send(answers)
        except StopIteration as done:
            return cast("_Result", done.value)

    def ask(self, lists: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        """Submit lists. Returns their answers, in their order."""
        found: list[MultiResult] = []
        for begin in range(0, len(lists), _MAX_PENDING):
            found += self._answers(lists[begin : begin + _MAX_PENDING])
        return found

    def _answers(self, lists: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        for token, operations in enumerate(lists):
            self._store.submit(operations, token)
        found: dict[object, MultiResult] = {}
        while len(found) < len(lists):
            self._woken.clear()
            for event in self._store.events():
                if isinstance(event, MultiResult):
                    found[event.token] = event
                elif isinstance(event, SessionChanged) and event.state in _GONE:
                    raise ServerError(f"{self._name} does not answer any more", hint=_HINT)
            if len(found) < len(lists):
                self._woken.wait(min(self._store.due_s(), 1.0))
        return [found[token] for token in range(len(lists))]


_GONE = (SessionState.OVERDUE, SessionState.EXPIRED)
_HINT = "look at the store, and do this again"


def _child_names(done: MultiResult, place: int = 0) -> tuple[str, ...]:
    """The children in an answer; empty: there is no such node."""
    found = done.results[place]
    return () if isinstance(found, Refusal) else cast("tuple[str, ...]", found)


@contextmanager
def open_files(config: Config, *, replaced: bool = False) -> Iterator[OpenStore]:
    """Open the metadata of a data directory.

    replaced  it will be replaced, so it need not be whole
    """
    from krust.metadata.local import Tree

    kept = metadata.tree_files(config.log_dirs())
    tree = Tree(kept._replace(known=None, adopt=True) if replaced else kept)
    try:
        yield OpenStore(tree.session(), str(kept.path), threading.Event())
    finally:
        tree.close()


@contextmanager
def open_zookeeper(config: Config) -> Iterator[OpenStore]:
    """Open the metadata in the ZooKeeper that the settings name."""
    woken = threading.Event()
    opened = metadata.open_metadata(config, (), woken.set)
    try:
        yield OpenStore(opened.store, opened.name, woken)
    finally:
        opened.close()
