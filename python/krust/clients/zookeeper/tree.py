"""A session with ZooKeeper whose calls wait for answers, and the nodes of a group.

Other events (watches, changes of the session) are kept for `take_events`, in order. Without a
connection a call raises AwayError, and `take_events` tells when it is back.
Threads: one; any thread may call `wake` and `hurry`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from krust.errors import ConfigError, KrustError
from krust.metadata import znodes
from krust.metadata.json_fields import BadZnodeError, number
from krust.metadata.store import (
    Children,
    Create,
    Exists,
    MultiResult,
    Node,
    Operation,
    Read,
    Refusal,
    Result,
    SessionChanged,
    SetData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krust.coordinator.consumer_protocol import TopicPartition
    from krust.metadata.ensemble import Ensemble
    from krust.metadata.store import WatchFired

    Answer = tuple[Result, ...]

_AWAY = frozenset({Refusal.NOT_APPLIED, Refusal.UNKNOWN})


class AwayError(KrustError):
    """There is no connection to ZooKeeper now."""

    retriable = True


class GroupTree:
    """A session; see the module.

    bad     called for a node with invalid content
    raises  ConfigError: no kazoo, or no address; ServerError: no answer in time
    """

    def __init__(self, ensemble: Ensemble, bad: Callable[[str, object], None]) -> None:
        try:
            from krust.metadata.zookeeper import open_store
        except ImportError as error:
            text = f"consumers in ZooKeeper need kazoo, which is not here ({error})"
            raise ConfigError(text, hint="from the checkout: pip install '.[cluster]'") from None
        self._woken = threading.Event()
        self._events: list[WatchFired | SessionChanged] = []
        self._until: float | None = None
        self._asked = 0
        self._called = False
        self._bad = bad
        self.store = open_store(ensemble, self._woken.set)

    def wake(self) -> None:
        """Make `take_events` return."""
        self._called = True
        self._woken.set()

    def hurry(self, seconds: float) -> None:
        """Limit the time for all further answers together."""
        self._until = time.monotonic() + seconds
        self.wake()

    def take_events(self, seconds: float) -> list[WatchFired | SessionChanged]:
        """The events; waits for the first unless `wake` was called."""
        until = time.monotonic() + seconds
        while True:
            self._woken.clear()
            called, self._called = self._called, False
            self._events += [
                each for each in self.store.events() if not isinstance(each, MultiResult)
            ]
            events, self._events = self._events, []
            left_s = until - time.monotonic()
            if events or called or left_s <= 0:
                return events
            self._woken.wait(min(left_s, self.store.due_s()))

    def ask(self, *operations: Operation) -> Answer:
        """The answer to one list. AwayError: no connection."""
        return self.each([operations])[0]

    def each(self, lists: Iterable[Sequence[Operation]]) -> list[Answer]:
        """The answers to several lists, which are sent together.

        raises  AwayError: no connection, or the session has changed and `take_events` was not
                called yet
        """
        self._unchanged()
        answers: dict[int, Answer | None] = {}
        for operations in lists:
            self._asked += 1
            answers[self._asked] = None
            self.store.submit(operations, self._asked)
        while None in answers.values():
            self._woken.clear()
            events = self.store.events()
            self._events += [each for each in events if not isinstance(each, MultiResult)]
            done = {each.token: each.results for each in events if isinstance(each, MultiResult)}
            answers |= {token: done[token] for token in answers.keys() & done.keys()}
            self._unchanged()
            if not events:
                self._woken.wait(self._left_s())
        found = [answer or () for answer in answers.values()]
        if any(
            result in _AWAY for answer in found for result in answer if isinstance(result, Refusal)
        ):
            raise AwayError("there is no connection to ZooKeeper")
        return found

    def _unchanged(self) -> None:
        """Raise AwayError if the session has changed, so that no write uses old knowledge."""
        if any(isinstance(each, SessionChanged) for each in self._events):
            raise AwayError("the connection to ZooKeeper is another")

    def _left_s(self) -> float:
        if self._until is None:
            return self.store.due_s()
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise AwayError("ZooKeeper does not answer")
        return min(left_s, self.store.due_s())

    def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """The names of a node's children. A missing node has none, and is watched too."""
        while True:
            [found] = self.ask(Children(path, watch))
            if type(found) is tuple:
                return tuple(map(str, found))
            if not watch or isinstance(self.ask(Exists(path, watch=True))[0], Refusal):
                return ()

    def read(self, paths: Iterable[str], *, watch: bool = False) -> dict[str, Node]:
        """Path -> node. Missing nodes are left out, and watched too."""
        found: dict[str, Node] = {}
        open_ones = [*paths]
        while open_ones:
            answers = self.each([Read(path, watch)] for path in open_ones)
            nodes = dict(zip(open_ones, (node for [node] in answers), strict=True))
            found |= {path: node for path, node in nodes.items() if isinstance(node, Node)}
            if not watch:
                break
            missing = [path for path, node in nodes.items() if node is Refusal.NO_NODE]
            there = self.each([Exists(path, watch=True)] for path in missing)
            open_ones = [path for path, [stat] in zip(missing, there, strict=True) if _is(stat)]
        return found

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Set the data of nodes. Missing nodes and their parents are created."""
        answers = self.each([SetData(path, data)] for path, data in contents.items())
        missing = [
            path
            for path, [result] in zip(contents, answers, strict=True)
            if result is Refusal.NO_NODE
        ]
        if missing:
            self.make(path.rpartition("/")[0] for path in missing)
            made = self.each([Create(path, contents[path])] for path in missing)
            again = [p for p, [result] in zip(missing, made, strict=True) if not _is(result)]
            self.each([SetData(path, contents[path])] for path in again)

    def make(self, paths: Iterable[str]) -> None:
        """Create nodes and their parents. Existing nodes stay."""
        wanted = dict.fromkeys(
            "/".join(parts[:end])
            for parts in (path.split("/") for path in paths)
            for end in range(2, len(parts) + 1)
        )
        self.each([Create(path)] for path in wanted)

    def decoded(self, path: str, data: bytes, decode: Callable[[bytes], object]) -> object:
        """The content of a node; None: it is invalid, and `bad` was called."""
        try:
            return decode(data)
        except BadZnodeError as error:
            self._bad(path, error)
            return None

    def offsets(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of a group. Partitions without an offset are left out."""
        paths = {znodes.consumer_offset(group, *place): place for place in places}
        found = {}
        for path, node in self.read([*paths]).items():
            offset = self.decoded(path, node.data, number)
            if isinstance(offset, int) and offset >= 0:
                found[paths[path]] = offset
        return found

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group."""
        self.put(
            {
                znodes.consumer_offset(group, *place): str(offset).encode()
                for place, offset in offsets.items()
            }
        )

    def close(self) -> None:
        """End the session, which deletes its ephemeral nodes."""
        self.store.close()


def _is(result: Result) -> bool:
    """Whether a node exists."""
    return not isinstance(result, Refusal)
