"""Members of a group in ZooKeeper under any order of faults, from a seed: the real connectors on
the tree in memory, one step at a time.

KRUST_ZOOKEEPER_SEEDS: how many runs (100); KRUST_ZOOKEEPER_SEED: the first, as a failure says.

In a run members join, leave and lose their connection or session, topics grow, and records are
read. At every step one member with a live session reads a partition, no record is skipped, and a
record is read twice only if its reader lost its session. When all is quiet, `share` says who owns
each partition; after all members left, no node is left.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import krust.metadata.zookeeper
from krust.clients.zookeeper import ConsumerConnector, owners, sharing, tree
from krust.clients.zookeeper.stream import KafkaStream
from krust.coordinator.consumer_protocol import TopicPartition
from krust.metadata import znodes
from krust.metadata.contents import ConsumerRegistration, TopicAssignment
from krust.metadata.local import LocalStore, Tree
from krust.metadata.store import (
    Create,
    Delete,
    MultiResult,
    Operation,
    Refusal,
    SessionChanged,
    SessionState,
    SetData,
    StoreEvent,
    Write,
)

SEEDS = int(os.environ.get("KRUST_ZOOKEEPER_SEEDS", "100"))
FIRST = int(os.environ.get("KRUST_ZOOKEEPER_SEED", "0"))
STEPS, QUIET_STEPS, WAIT_S = 400, 20_000, 20.0
GROUP = "g"


class OverError(BaseException):
    """The run is over."""


class Session:
    """A member's store: the run decides when its writes happen, or that they are lost."""

    def __init__(self, simulation: SimulationRun) -> None:
        self.simulation = simulation
        self.real: LocalStore = simulation.tree.session()
        self.waiting: list[tuple[list[Operation], object]] = []
        self.pending_events: list[StoreEvent] = []
        self.connected = True
        self.expired = False

    @property
    def session(self) -> int:
        return self.real.session

    def submit(self, operations: Any, token: object) -> None:
        if self.connected:
            self.waiting.append((list(operations), token))
        else:
            self.pending_events.append(MultiResult(token, (Refusal.NOT_APPLIED,) * len(operations)))

    def events(self) -> list[StoreEvent]:
        self.simulation.pause()
        if self.waiting:
            self.real.submit(*self.waiting.pop(0))
        if self.connected:
            self.pending_events += self.real.events()
        pending_events, self.pending_events = self.pending_events, []
        return pending_events

    def idle(self) -> bool:
        return not (self.waiting or self.pending_events or self.real._events) and self.connected

    def due_s(self) -> float:
        return 0.0

    def close(self) -> None:
        self.real.close()

    def lose(self, rng: random.Random) -> None:
        """Cut the connection; some writes in flight happen, without an answer."""
        self.pending_events += self.real.events()
        for operations, token in self.waiting[: rng.randint(0, len(self.waiting))]:
            self.real.submit(operations, token)
        self.real._nodes.clear()
        self.real._children.clear()
        self.lost = [*self.waiting]
        self.waiting.clear()
        self.real.events()
        self.connected = False
        self.pending_events.append(SessionChanged(SessionState.SUSPENDED))

    def expire(self) -> None:
        """The server ends the session; the member learns of it when it reconnects."""
        self.real.close()
        self.expired = True

    def back(self) -> None:
        """Reconnect."""
        if self.expired:
            self.pending_events.append(SessionChanged(SessionState.EXPIRED))
            self.real, self.expired = self.simulation.tree.session(), False
        self.connected = True
        self.pending_events.append(SessionChanged(SessionState.CONNECTED))
        for operations, token in self.lost:
            kind = Refusal.UNKNOWN if isinstance(operations[0], Write) else Refusal.NOT_APPLIED
            self.pending_events.append(MultiResult(token, (kind,) * len(operations)))


class Actor:
    """A member: the run decides when its connector's thread works."""

    def __init__(
        self, simulation: SimulationRun, number: int, subscription: dict[str, int], pattern: str
    ) -> None:
        self.simulation = simulation
        self.go = threading.Semaphore(0)
        self.done = False
        self.name = f"{number}"
        self.connector = ConsumerConnector(
            zookeeper_connect="simulated:1",
            group_id=GROUP,
            consumer_id=self.name,
            bootstrap_servers="127.0.0.1:1",
            rebalance_backoff_ms=0,
            auto_commit_interval_ms=3_600_000,
        )
        made = self.connector
        made._member = ConsumerRegistration(subscription, pattern, 0)
        self.streams: list[KafkaStream] = []
        for topic, count in subscription.items():
            for thread in range(count):
                stream = made._stream()
                self.streams.append(stream)
                key = (
                    topic if pattern == sharing.STATIC else None,
                    f"{made._config.member}-{thread}",
                )
                made._streams[key] = stream
        self.store: Session = made._tree.store  # type: ignore[assignment]
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        assert self.go.acquire(timeout=WAIT_S)
        if not self.simulation.over:
            self.connector._run()
        self.done = True
        self.simulation.baton.release()

    @property
    def quiet(self) -> bool:
        made = self.connector
        return self.store.idle() and not made._stale and not made._away and made._registered


class SimulationRun:
    """One run from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tree = Tree()
        self.baton = threading.Semaphore(0)
        self.current: Actor | None = None
        self.over = False
        self.actors: list[Actor] = []
        self.number = 0
        self.topics = {"a": 3, "b": 2}
        self.next: dict[TopicPartition, int] = {}
        self.rough: set[TopicPartition] = set()
        self.admin = self.tree.session()
        for path in ("/brokers", "/brokers/ids", "/brokers/topics", "/consumers"):
            self.act(Create(path))
        for topic, count in self.topics.items():
            self.act(Create(znodes.topic(topic), self.assignment(count)))
        for path in ("", "/offsets", "/offsets/a", "/offsets/b"):
            self.act(Create(f"/consumers/{GROUP}{path}"))
        for topic in self.topics:
            for partition in range(20):
                path = znodes.consumer_offset(GROUP, topic, partition)
                self.act(Create(path, b"0"))

    def act(self, operation: Operation) -> None:
        self.admin.submit([operation], 0)
        [done] = self.admin.events()
        assert isinstance(done, MultiResult)
        assert done.refused is None, operation

    @staticmethod
    def assignment(count: int) -> bytes:
        return TopicAssignment(((1,),) * count).encode()

    def pause(self) -> None:
        """Called by a member's thread: gives the turn to another."""
        actor = self.current
        assert actor is not None
        self.baton.release()
        assert actor.go.acquire(timeout=WAIT_S)
        if self.over:
            raise OverError

    def end(self) -> None:
        """End all threads."""
        self.over = True
        for actor in self.actors:
            actor.go.release()
            actor.thread.join(WAIT_S)

    def run(self, actor: Actor) -> None:
        self.current = actor
        actor.go.release()
        assert self.baton.acquire(timeout=WAIT_S)
        if actor.done:
            self.actors.remove(actor)

    def join(self) -> None:
        if len(self.actors) >= 4:
            return
        self.number += 1
        kinds = ({"a": self.rng.randint(1, 3)}, {"a": 1, "b": 2}, {"a|b": self.rng.randint(1, 2)})
        subscription = self.rng.choice(kinds)
        pattern = sharing.WHITE if "a|b" in subscription else sharing.STATIC
        self.actors.append(Actor(self, self.number, subscription, pattern))

    def leave(self, actor: Actor) -> None:
        actor.connector._ended = True
        actor.connector._tree.hurry(WAIT_S)
        if not actor.store.connected:
            self.spoil(actor)

    def spoil(self, actor: Actor) -> None:
        """From now on this member's records may be read again."""
        for stream in actor.streams:
            self.rough |= stream.places
        self.rough |= actor.connector._unstored.keys()

    def lose(self, actor: Actor) -> None:
        if actor.store.connected and not actor.connector._ended:
            actor.store.lose(self.rng)

    def expire(self, actor: Actor) -> None:
        if not actor.connector._ended:
            self.spoil(actor)
            if actor.store.connected:
                actor.store.lose(self.rng)
            actor.store.expire()

    def back(self, actor: Actor) -> None:
        if not actor.store.connected:
            actor.store.back()

    def grow(self) -> None:
        topic = self.rng.choice([*self.topics])
        if self.topics[topic] < 8:
            self.topics[topic] += 1
            self.act(SetData(znodes.topic(topic), self.assignment(self.topics[topic])))

    def read(self, actor: Actor) -> None:
        """Note a record that was handed out."""
        for stream in actor.streams:
            for place in [*stream._positions]:
                if stream._halted or stream._closed or self.rng.random() < 0.5:
                    continue
                at = stream._positions[place]
                expected = self.next.get(place, 0)
                assert at <= expected, f"{place} skips from {expected} to {at}"
                if at < expected:
                    assert place in self.rough, f"{place} is read twice at {at}"
                stream._positions[place] = at + 1
                self.next[place] = max(expected, at + 1)
                if actor.store.expired:
                    self.rough.add(place)

    def check(self) -> None:
        """No two members with live sessions read one partition."""
        readers: dict[TopicPartition, str] = {}
        for actor in self.actors:
            events = [*actor.store.pending_events, *actor.connector._tree._events]
            if actor.store.expired or SessionChanged(SessionState.EXPIRED) in events:
                continue
            for stream in actor.streams:
                for place in stream._positions:
                    other = readers.setdefault(place, actor.name)
                    assert other == actor.name, f"{place} is read by {other} and {actor.name}"

    def step(self) -> None:
        rng = self.rng
        if not self.actors:
            self.join()
        actor = rng.choice(self.actors)
        roll = rng.random()
        letting = any(isinstance(each, Delete) for ops, _ in actor.store.waiting for each in ops)
        acts: list[tuple[float, Callable[[], None]]] = [
            (0.02, self.join),
            (0.012, lambda: self.leave(actor)),
            (0.2 if letting else 0.015, lambda: self.lose(actor)),
            (0.006, lambda: self.expire(actor)),
            (0.08, lambda: self.back(actor)),
            (0.005, self.grow),
            (0.1, lambda: self.read(actor)),
        ]
        for chance, act in acts:
            if roll < chance:
                act()
                break
            roll -= chance
        else:
            self.run(actor)
        self.check()

    def settle(self) -> None:
        """Run without faults until no member has work left."""
        for actor in [*self.actors]:
            self.back(actor)
        calm = 0
        for step in range(QUIET_STEPS):
            calm = calm + 1 if all(actor.quiet for actor in self.actors) else 0
            if calm > 4 * len(self.actors):  # each was asked several times and wants nothing
                return
            self.run(self.actors[step % len(self.actors)])
            self.check()
        raise AssertionError("it never comes to rest")

    def play(self) -> None:
        for _ in range(STEPS):
            self.step()
        if not self.actors:
            self.join()
        self.settle()
        while any(actor.connector._ended for actor in self.actors):
            self.run(self.rng.choice([a for a in self.actors if a.connector._ended]))
        if not self.actors:
            self.join()
        self.settle()
        self.shared()
        for actor in [*self.actors]:
            self.read(actor)
            self.leave(actor)
        while self.actors:
            self.run(self.rng.choice(self.actors))
        self.gone()

    def shared(self) -> None:
        members = {a.connector._config.member: a.connector._member for a in self.actors}
        readers = [
            sharing.threads(name, each, self.topics) for name, each in members.items() if each
        ]
        topics = {name: range(count) for name, count in self.topics.items()}
        found: dict[TopicPartition, str] = {}
        for actor in self.actors:
            assert not found.keys() & actor.connector._owned.keys()
            found |= actor.connector._owned
            assert {place for s in actor.streams for place in s.places} == {*actor.connector._owned}
        assert found == sharing.share(readers, topics)

    def gone(self) -> None:
        own = [path for path, node in self.tree._nodes.items() if node.owner is not None]
        assert own == []
        for (topic, partition), at in self.next.items():
            stored = int(self.tree._nodes[znodes.consumer_offset(GROUP, topic, partition)].data)
            assert stored == at or TopicPartition(topic, partition) in self.rough
            assert stored <= at


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Plays the run of a seed."""

    def play(seed: int) -> None:
        simulation = SimulationRun(seed)
        monkeypatch.setattr(krust.metadata.zookeeper, "open_store", lambda *_: Session(simulation))
        monkeypatch.setattr(KafkaStream, "connect", lambda *_: None)
        try:
            simulation.play()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            simulation.end()

    return play


def test_each_partition_has_one_owner_under_any_faults(simulation: Callable[[int], None]) -> None:
    _play(simulation, range(FIRST, FIRST + SEEDS))


def _play(simulation: Callable[[int], None], seeds: range) -> None:
    for seed in seeds:
        simulation(seed)


def _forgets_to_commit(self: Any) -> None:
    self._unstored.clear()
    self._owners.let_go()


def _frees_before_it_commits(self: Any) -> None:
    self._owners.let_go()
    self._offsets.commit(self._unstored)
    self._offsets.forget([*self._unstored])
    self._unstored.clear()


def _takes_anybodys(self: Any, wanted: Any) -> set[TopicPartition]:
    self._claim(wanted)
    return {*wanted}


def _watches_nothing(self: Any, path: str, *, watch: bool = False) -> tuple[str, ...]:
    return CHILDREN(self, path, watch=watch and not path.endswith("/ids"))


def _does_not_hear_of_the_end(self: Any, state: SessionState) -> None:
    if state is not SessionState.EXPIRED:
        TURNED(self, state)


def _does_not_look_again(self: Any, state: SessionState) -> None:
    TURNED(self, state)
    self._stale = state is SessionState.EXPIRED


def _begins_before_it_claims(self: Any) -> None:
    self._known_before = self._offsets.fetch(
        {TopicPartition(topic, n) for topic in ("a", "b") for n in range(8)}
    )
    stored = self._known_before
    self._offsets.fetch, fetch = lambda _: stored, self._offsets.fetch
    try:
        REBALANCE(self)
    finally:
        self._offsets.fetch = fetch


def _forgets_what_it_let_go(self: Any) -> None:
    leaving, self._leaving = self._leaving, set()
    self._tree.each([Delete(self._path(place))] for place in leaving)


CHILDREN, TURNED = tree.GroupTree.children, ConsumerConnector._turned
REBALANCE = ConsumerConnector._rebalance
BUGS: dict[str, tuple[type, str, Any]] = {
    "forgets to commit": (ConsumerConnector, "_let_go", _forgets_to_commit),
    "frees before it commits": (ConsumerConnector, "_let_go", _frees_before_it_commits),
    "takes anybody's": (owners.PartitionOwners, "claim", _takes_anybodys),
    "watches no members": (tree.GroupTree, "children", _watches_nothing),
    "does not hear of the end": (ConsumerConnector, "_turned", _does_not_hear_of_the_end),
    "does not look again": (ConsumerConnector, "_turned", _does_not_look_again),
    "begins before it claims": (ConsumerConnector, "_rebalance", _begins_before_it_claims),
    "forgets what it let go": (owners.PartitionOwners, "let_go", _forgets_what_it_let_go),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(
    simulation: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(AssertionError):
        _play(simulation, range(100))
