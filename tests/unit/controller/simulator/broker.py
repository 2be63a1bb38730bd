"""A model of a broker around the real controller: its process, its disk, and what it asks others.

It does what `krust.runtime` does. The start is one run of steps; if it fails, the process starts
again. The controller gets the events of the store. After CONNECTED, and after a write whose outcome
is unknown, the broker recovers its session, and requests wait for that. Requests to another broker
leave in order, one at a time. Each is repeated until it is answered, or until that broker has
another registration.
The disk survives the process: directories of replicas, with the topic's id and the records.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from krust.config import load
from krust.controller import adoption, ids, registration
from krust.controller.controller import Controller, ControllerOutcome
from krust.controller.session_recovery import SessionRecovery
from krust.controller.state import NO_TOPIC_ID, BrokerRequest, ControllerState, Request
from krust.errors import ServerError
from krust.messages import Message, RequestContext
from krust.metadata.store import MultiResult, Refusal, SessionChanged, SessionState, StoreEvent
from tests.unit.controller.simulator.replicas import Replicas
from tests.unit.controller.simulator.zookeeper import SimulatedSession

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.unit.controller.simulator.simulation import ControllerSimulation

CONFIG = load(options={"offsets.topic.num.partitions": 2, "num.partitions": 2})
CLUSTER = "fUc4e5toQ_utsAZFiqE2qQ"
RETRY_MS = 60
"""between two tries to reach a broker"""
ORDERS = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
VERSIONS = {"CreateTopics": 4}
"""Later ones are answered with all settings of each topic, which nobody looks at here."""
BOOT = 1
"""the ticket of the start"""


class SimulatedBroker:
    """A broker's id, its disk and its current process."""

    def __init__(self, simulation: ControllerSimulation, node_id: int) -> None:
        self.simulation = simulation
        self.id = node_id
        self.disk: dict[tuple[str, int], str] = {}
        """topic and partition -> topic id"""
        self.logs: dict[tuple[str, int], list[int]] = {}
        """topic and partition -> records"""
        self.kept_epoch = -1
        """what its last process registered about them"""
        self.process: BrokerProcess | None = None
        self.left: SimulatedSession | None = None
        self.lives = 0

    def start(self) -> None:
        if self.process is None:
            if self.left is not None and self.simulation.rng.random() < 0.7:
                self.left.end_by_next()
            self.lives += 1
            self.process = BrokerProcess(self, self.simulation)

    def kill(self) -> None:
        if self.process is not None:
            self.left = self.process.store
            self.left.abandon()
            self.process.alive = False
            self.kept_epoch = self.process.state.kept_epoch
            self.process = None

    def cut_power(self) -> None:
        """The machine stops: of each log some of the last records are lost."""
        if self.process is not None:
            self.kill()
            self.kept_epoch = -1
            for key, log in sorted(self.logs.items()):
                kept = self.simulation.rng.randint(0, len(log))
                self.simulation.checks.cut.setdefault(key, set()).add(self.id)
                del log[kept:]


class BrokerProcess:
    """One life of a broker."""

    def __init__(self, broker: SimulatedBroker, simulation: ControllerSimulation) -> None:
        self.broker, self.simulation = broker, simulation
        self.alive, self.asleep_since = True, -1.0
        self.ready = self.overdue = False
        self.life = broker.lives
        self.key = (broker.id, broker.lives)
        self._backlog: list[Callable[[], None]] = []
        self._tickets = BOOT
        self._answers: dict[int, Callable[[Any], None]] = {}
        self._recovery = SessionRecovery()
        self._delayed: list[tuple[str, Message, Callable[[Any], None], int]] = []
        self._out: dict[int, deque[BrokerRequest]] = {}
        self._lines: dict[int, int] = {}
        """broker -> the number of the connection to it"""
        self._lateness: dict[int, float] = {}
        self._cut = False
        self._due = -1.0
        self.store = SimulatedSession(simulation.zookeeper, self._take_event)
        self.state = ControllerState(CONFIG, simulation.new_id, broker.id)
        self.state.session = self.store.session
        self.state.kept_epoch = broker.kept_epoch
        self.replicas = Replicas(self)
        self.controller = Controller(self.state)
        self.cluster = self.controller.share()
        where = [("PLAINTEXT", f"host{broker.id}", 9092)]
        self._registration = registration.Registration(where, None, int(simulation.now))
        self._answers[BOOT] = self._booted
        self.perform(self.controller.run(BOOT, self._boot()))

    def _boot(self) -> Generator[Any, Any, None]:
        state, disk = self.state, self.broker.disk
        yield from registration.create_cluster(state, CLUSTER)
        yield from registration.check_id_free(state)
        yield from self.cluster.claim(int(self.simulation.now))
        found = [
            adoption.LogOnDisk(name, index, topic_id or NO_TOPIC_ID, -1, clean=False)
            for (name, index), topic_id in disk.items()
        ]
        yield from adoption.adopt_at_start(state, found)
        yield from self.cluster.register(self._registration)

    def _booted(self, answer: Any) -> None:
        if isinstance(answer, ServerError):
            self.simulation.note(f"broker {self.broker.id} does not start: {answer}")
            self.broker.kill()
            self.simulation.at(self.simulation.now + 150, self.broker.start)
        elif isinstance(answer, Exception):
            raise answer
        else:
            self.ready = True
            if self._cut:
                self._recover_if_due()
            for name in self.state.topics:
                self.simulation.checks.topic(self, name)
            self.replicas.changed(self.state.topics)

    # Pauses.

    @property
    def is_awake(self) -> bool:
        return self.alive and self.ready and self.asleep_since < 0

    def sleep(self) -> None:
        if self.asleep_since < 0:
            self.asleep_since = self.simulation.now
            self.store.silence()

    def wake(self) -> None:
        if self.asleep_since < 0 or not self.alive:
            return
        slept, self.asleep_since = self.simulation.now - self.asleep_since, -1.0
        backlog, self._backlog = self._backlog, []
        if self.simulation.rng.random() < 0.5:
            self.store.woke(slept)
            slept = 0
        for each in backlog:
            if self.alive:
                each()
        if slept and self.alive:
            self.store.woke(slept)

    def when_awake(self, act: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.asleep_since >= 0:
            self._backlog.append(act)
        else:
            act()

    # What happens to it.

    def ask(
        self, api: str, message: Message, answer: Callable[[Any], None], connection: int = 0
    ) -> None:
        """A request of a client (0) or another broker, on a numbered connection."""
        if self.asleep_since >= 0:
            self._backlog.append(lambda: self._late(api, message, answer, connection))
        else:
            self._asked(api, message, answer, connection)

    def _late(
        self, api: str, message: Message, answer: Callable[[Any], None], connection: int
    ) -> None:
        """After sleep connections are looked at in any order, each in its own."""
        wait = self.simulation.rng.choice((0.0, 0.0, 10.0, 40.0))
        if connection:
            wait = self._lateness.setdefault(connection, wait)
        at = self.simulation.now + wait
        self.simulation.at(at, lambda: self.ask(api, message, answer, connection))

    def _asked(
        self, api: str, message: Message, answer: Callable[[Any], None], connection: int
    ) -> None:
        if not self.alive:
            return
        if self._recovery.is_running:
            self._delayed.append((api, message, answer, connection))
            return
        self._tickets += 1
        self._answers[self._tickets] = answer
        client: RequestContext = {"connection": connection}
        request = Request(api, VERSIONS.get(api, 99), message, client, int(self.simulation.now))
        self.perform(self.controller.request(self._tickets, request))

    def _take_event(self, event: StoreEvent) -> None:
        if self.asleep_since >= 0:
            self.when_awake(lambda: self._handle_event(event))
        else:
            self._handle_event(event)

    def _handle_event(self, event: StoreEvent) -> None:
        if not self.alive:
            return
        now_ms = int(self.simulation.now)
        if isinstance(event, MultiResult):
            self.perform(self.controller.on_transaction_done(event))
            if self.alive and Refusal.UNKNOWN in event.results and self.ready:
                self._recovery.outcome_unknown()
                self._recover_if_due()
            return
        if isinstance(event, SessionChanged):
            self.state.session = self.store.session
            self.overdue = event.state is SessionState.OVERDUE
        self.perform(self.controller.on_store_event(event, now_ms))
        if isinstance(event, SessionChanged):
            self._recovery.session_changed(event.state)
            self._cut |= not self.ready
            if self.ready:
                self._recover_if_due()

    def _recover_if_due(self) -> None:
        if not self.alive or self._recovery.wait_s(self.simulation.now / 1000) > 0:
            return
        self._tickets += 1
        if not self._recovery.begin(self._tickets):
            return
        self._answers[self._tickets] = self._on_recovered
        self._registration = self._registration._replace(now_ms=int(self.simulation.now))
        steps = self.controller.recover(self._registration)
        self.perform(self.controller.run(self._tickets, steps))

    def _on_recovered(self, answer: Any) -> None:
        now_s = self.simulation.now / 1000
        self._recovery.end(now_s, failed=isinstance(answer, Exception))
        if isinstance(answer, Exception) and not isinstance(answer, ServerError):
            raise answer
        wait_ms = self._recovery.wait_s(now_s) * 1000
        if wait_ms < inf:
            at = self.simulation.now + wait_ms + 1  # later by more than the error of a float
            self.simulation.at(at, lambda: self.when_awake(self._recover_if_due))
        self.replicas.changed(self.state.topics)
        delayed, self._delayed = self._delayed, []
        for each in delayed:
            self._asked(*each)

    # What it does.

    def perform(self, outcome: ControllerOutcome) -> None:
        for token, operations in outcome.submits:
            self.store.submit(operations, token)
        self.simulation.checks.process(self, outcome)
        self._apply(outcome)
        self.replicas.changed(outcome.changes.topics)
        for asked in outcome.requests:
            queue = self._out.setdefault(asked.broker, deque())
            queue.append(asked)
            if len(queue) == 1:
                self._send(asked.broker)
        for ticket, reply in outcome.replies:
            tell = self._answers.pop(ticket)
            tell(reply)
        self._arm()

    def _arm(self) -> None:
        """Schedule `tick` for its time."""
        due = self.controller.due_ms(int(self.simulation.now))
        at = self.simulation.now + due + 1
        if due < 10_000 and (self._due <= self.simulation.now or at < self._due):
            self._due = at
            self.simulation.at(at, lambda: self.when_awake(self._tick))

    def _tick(self) -> None:
        self.perform(self.controller.tick(int(self.simulation.now)))

    def _apply(self, outcome: ControllerOutcome) -> None:
        """Apply changes to the directories, as the core would."""
        disk, changes = self.broker.disk, outcome.changes
        for name, topic in changes.topics.items():
            parts = topic.partitions if topic is not None else ()
            own_logs = {
                (name, index) for index, each in enumerate(parts) if self.broker.id in each.replicas
            }
            topic_id = topic.id if topic is not None else ""
            for key in [each for each in disk if each[0] == name]:
                if key not in own_logs or disk[key] != topic_id:
                    kept = key in changes.strays
                    self.broker.logs.pop(key, None)
                    self.simulation.checks.removed(self, key, disk.pop(key), kept=kept)
            for key in own_logs:
                disk.setdefault(key, topic_id)
                self.broker.logs.setdefault(key, [])
        for key in changes.strays:
            if key[0] not in changes.topics and key in disk:
                self.broker.logs.pop(key, None)
                self.simulation.checks.removed(self, key, disk.pop(key), kept=True)

    def _send(self, broker: int) -> None:
        """Send what is first in a broker's queue."""
        if not self.alive or not self._out[broker]:
            return
        asked, simulation = self._out[broker][0], self.simulation
        if asked.api in ORDERS and broker not in self.state.brokers:
            self._out[broker].popleft()
            self.perform(self.controller.on_peer_answer(asked, None, int(simulation.now)))
            self._send(broker)
            return
        connection = self._lines.setdefault(broker, simulation.connection())
        first_answer: list[bool] = []

        def answered(message: Message | None) -> None:
            """Take the first answer; later ones belong to repeated sends."""
            if first_answer or not self.alive or not self._out[broker]:
                return
            first_answer.append(True)
            if message is not None and message.get("error_code") == 7:
                simulation.at(
                    simulation.now + RETRY_MS, lambda: self.when_awake(lambda: self._send(broker))
                )
                return
            if message is not None and message.get("error_code") == 77:
                message = None
            self._out[broker].popleft()
            self.perform(self.controller.on_peer_answer(asked, message, int(simulation.now)))
            self._send(broker)

        def again() -> None:
            if first_answer:
                return
            live = self.state.brokers.get(broker)
            epoch = asked.message.get("broker_epoch", -1)
            if live is None or (asked.api in ORDERS and live.epoch > epoch):
                answered(None)
            elif simulation.reachable(broker):
                first_answer.append(True)
                self._lines[broker] = simulation.connection()
                self._send(broker)
            else:
                simulation.at(simulation.now + RETRY_MS, lambda: self.when_awake(again))

        simulation.at(simulation.now + 300, lambda: self.when_awake(again))
        simulation.deliver(
            asked, connection, lambda message: self.when_awake(lambda: answered(message))
        )


def fresh_id(number: int) -> str:
    return ids.from_random(number.to_bytes(16, "big"))
