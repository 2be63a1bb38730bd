"""A model of ZooKeeper, over the real contract: sessions that expire, answers that get lost.

The tree is krust's own (`metadata/local.py`). This module models the connection between the tree
and a broker. The broker and the server may see a `session` differently. Lists and answers travel in
order. A cut connection loses all that are under way, whether the server has executed them or not.
The server ends a session that sends nothing for its timeout; the broker learns that when it is
connected again. While the server is down no session ends. A broker measures its own deadline, and
gets OVERDUE before the server can have ended the session.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from krust.metadata.local import Tree
from krust.metadata.store import (
    Create,
    MultiResult,
    Refusal,
    SessionChanged,
    SessionState,
    StoreEvent,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from krust.metadata.local import LocalStore
    from krust.metadata.store import Operation
    from tests.unit.controller.simulator.simulation import ControllerSimulation

TIMEOUT_MS = 400
"""of a session"""


class _PendingList:
    """A list in flight."""

    __slots__ = ("operations", "results", "session", "token")

    def __init__(self, operations: Sequence[Operation], token: Any, session: int) -> None:
        self.operations = operations
        self.token = token
        self.session = session
        self.results: tuple[Any, ...] | None = None

    @property
    def writes(self) -> bool:
        """A list has only reads, or only writes."""
        return isinstance(self.operations[0], Write)


class SimulatedZooKeeper:
    """The server and its connections."""

    def __init__(self, simulation: ControllerSimulation) -> None:
        self.simulation = simulation
        self.tree = Tree()
        self.links: list[SimulatedSession] = []
        self.down = False
        self.elected_sessions: dict[int, int] = {}
        """controller epoch -> the session that was elected"""

    def deliver_events(self) -> None:
        """Deliver fired watches and answers to the sessions that wait for them."""
        for link in self.links:
            if link.server._events:
                link.collect()

    def stop(self) -> None:
        """Stop the server; sessions are frozen."""
        self.down = True
        for link in list(self.links):
            link.cut(back=False)

    def start(self) -> None:
        self.down = False
        for link in list(self.links):
            link.reconnect_soon()


class SimulatedSession:
    """One broker's connection to the tree (the contract is `store.Store`)."""

    def __init__(
        self, zookeeper: SimulatedZooKeeper, deliver: Callable[[StoreEvent], None]
    ) -> None:
        self._zk = zookeeper
        self._world = zookeeper.simulation
        self._deliver = deliver
        self.server: LocalStore = zookeeper.tree.session()
        self.session = self.server.session
        self._alive = True
        """the server still has the session"""
        self._open = True
        self._up = True
        self._reported_up = True
        self.overdue = False
        self._generation = 0
        self._waiting: list[_PendingList] = []
        self._arrives = self._done = 0.0
        zookeeper.links.append(self)

    # What the broker does.

    def submit(self, operations: Sequence[Operation], token: Any) -> None:
        asked = _PendingList(operations, token, self.session)
        if not self._reported_up or self.overdue or not operations:
            refused = (Refusal.NOT_APPLIED,) * len(operations)
            self._world.at(self._next(), lambda: self._deliver(MultiResult(token, refused)))
            return
        self._waiting.append(asked)
        generation = self._generation
        at = max(self._done, self._world.now + self._world.short())
        self._done = at
        self._world.at(at, lambda: self._execute(asked, generation))

    def close(self) -> None:
        """The process ended in order: its session ends."""
        self._leave()
        self._end()

    def abandon(self) -> None:
        """The process was killed: the server waits for it until the timeout."""
        self._leave()
        self._end_at_timeout()

    def end_by_next(self) -> None:
        """The next process of that broker ends what this one left."""
        self._end()

    def _leave(self) -> None:
        self._open = self._up = False
        self._generation += 1
        if self in self._zk.links:
            self._zk.links.remove(self)

    # What the network and the server do.

    def cut(self, *, back: bool = True) -> None:
        """Cut the connection; the broker learns of it a little later."""
        if not self._up or not self._open:
            return
        self._up = False
        self._generation += 1
        self._forget_watches()
        self._change_state_later(SessionState.SUSPENDED)
        now, generation = self._world.now, self._generation
        self._world.at(now + TIMEOUT_MS - 20, lambda: self._deadline(generation))
        self._world.at(now + TIMEOUT_MS + self._world.short(), lambda: self._missed(generation))
        if back:
            self._world.at(now + self._world.pause(), self.reconnect)

    def reconnect_soon(self) -> None:
        if not self._up and self._open:
            self._world.at(self._world.now + self._world.short(), self.reconnect)

    def reconnect(self) -> None:
        """The connection is back, with the same session or a new one."""
        if self._up or not self._open or self._zk.down:
            return
        if self._world.asleep_since(self) >= 0:
            self._world.at(self._world.now + 50, self.reconnect)
            return
        self._up = True
        self._generation += 1
        if not self._alive:
            self._change_state_later(SessionState.EXPIRED)
            self.server = self._zk.tree.session()
            self._alive = True
        self._change_state_later(SessionState.CONNECTED)

    def silence(self) -> None:
        """The broker hangs: the server hears nothing from it."""
        since, generation = self._world.now, self._generation

        def missed() -> None:
            if self._world.asleep_since(self) == since:
                self._missed(generation)

        self._world.at(self._world.now + TIMEOUT_MS, missed)

    def woke(self, slept_ms: float) -> None:
        """The broker continues; it first checks its own deadline."""
        if slept_ms > TIMEOUT_MS - 20 and self._open:
            self.overdue = True
            self._deliver(SessionChanged(SessionState.OVERDUE))
            if self._up and self._alive:
                self._up = False
                self._generation += 1
                self._forget_watches()
                self._change_state_later(SessionState.SUSPENDED)
            self.reconnect_soon()

    def _missed(self, generation: int) -> None:
        """The server has not heard of the session for its timeout."""
        if generation != self._generation or not self._open:
            return
        if self._up:
            self._up = False
            self._generation += 1
            self._change_state_later(SessionState.SUSPENDED)
            self._world.at(self._world.now + self._world.pause(), self.reconnect)
        self._end_unless_down(self._generation)

    def _deadline(self, generation: int) -> None:
        if generation == self._generation and not self.overdue and self._open:
            self.overdue = True
            self._deliver(SessionChanged(SessionState.OVERDUE))

    def _end_at_timeout(self) -> None:
        at, generation = self._world.now + TIMEOUT_MS, self._generation
        self._world.at(at, lambda: self._end_unless_down(generation))

    def _end_unless_down(self, generation: int) -> None:
        """End the session, unless the broker is connected again; a server that is down waits."""
        if generation != self._generation:
            return
        if self._zk.down:
            self._end_at_timeout()
        else:
            self._end()

    def _end(self) -> None:
        if self._alive:
            self._alive = False
            self._zk.tree.end(self.server)
            self._zk.deliver_events()

    def _execute(self, asked: _PendingList, generation: int) -> None:
        if generation != self._generation or not self._alive:
            return
        self.server.submit(asked.operations, asked)
        self._zk.deliver_events()

    def collect(self) -> None:
        """Send the server's messages to the broker."""
        for event in self.server.events():
            if isinstance(event, MultiResult):
                asked = event.token
                assert isinstance(asked, _PendingList)
                asked.results = event.results
                if asked.writes:
                    self._world.executed(self.server.session, asked.operations, event)
                if self._up:
                    self._deliver_in_order(partial(self._answer, asked))
            elif self._up:
                self._send_event(event)

    def _answer(self, asked: _PendingList) -> None:
        if asked in self._waiting:
            self._waiting.remove(asked)
            assert asked.results is not None
            self._deliver(MultiResult(asked.token, asked.results))

    def _forget_watches(self) -> None:
        self.server._nodes.clear()
        self.server._children.clear()

    # The answer keeps its order, and uses the connection of the request.

    def _send_event(self, event: StoreEvent) -> None:
        self._deliver_in_order(lambda: self._deliver(event))

    def _deliver_in_order(self, tell: Callable[[], None]) -> None:
        generation = self._generation
        self._world.at(self._next(), lambda: tell() if generation == self._generation else None)

    def _change_state_later(self, state: SessionState) -> None:
        self._world.at(self._next(), lambda: self._turn(state))

    def _next(self) -> float:
        """The arrival time of a message sent now, after all earlier ones."""
        at = self._world.now + self._world.short()
        if at > self._arrives:
            self._arrives = at
        return self._arrives

    def _turn(self, state: SessionState) -> None:
        """The broker learns its session's state, and then the fate of its earlier requests."""
        if not self._open:
            return
        self._reported_up = state is SessionState.CONNECTED
        if state is not SessionState.SUSPENDED:
            self.overdue = False
        if self._reported_up:
            self.session = self.server.session
        lost = [each for each in self._waiting if self._reported_up or not each.writes]
        self._waiting = [each for each in self._waiting if each not in lost]
        self._deliver(SessionChanged(state))
        for asked in lost:
            self._deliver(MultiResult(asked.token, self._became(asked)))

    def _became(self, asked: _PendingList) -> tuple[Any, ...]:
        """The fate of a list whose answer was lost."""
        none: tuple[Any, ...] = (Refusal.NOT_APPLIED,) * len(asked.operations)
        if asked.results is None or not asked.writes:
            return none
        refused = MultiResult(None, asked.results).refused
        if refused is not None:
            return none
        creates = [each for each in asked.operations if isinstance(each, Create)]
        gone = asked.session != self.session and any(each.ephemeral for each in creates)
        if gone or any(each.sequential for each in creates) or self._world.rng.random() < 0.2:
            return (Refusal.UNKNOWN,) * len(asked.operations)
        return asked.results
