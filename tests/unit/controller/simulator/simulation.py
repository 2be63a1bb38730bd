"""A simulation run from a seed: brokers, a ZooKeeper, clients and faults; then final checks.

Time is virtual: each event is a function and the time at which it runs. Three brokers start and
create a few topics. Then clients send requests, tools write into the tree, and faults happen:
processes are killed and started, pause, or lose their connection; requests and answers between
brokers get lost; ZooKeeper stops. At the end all faults end, and the simulation runs until nothing
is pending.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Any
from unittest.mock import patch

from krust.controller import registration
from krust.controller.state import BrokerRequest
from krust.messages import Message
from krust.metadata import contents, znodes
from krust.metadata.admin_contents import Partitions, Reassignment
from krust.metadata.contents import ClusterId, Features
from krust.metadata.store import Create, Delete, MultiResult, Node, Operation, Read
from tests.unit.controller.simulator.broker import CLUSTER, SimulatedBroker, fresh_id
from tests.unit.controller.simulator.checks import ControllerChecks
from tests.unit.controller.simulator.zookeeper import SimulatedSession, SimulatedZooKeeper

BROKERS = 3
STEPS = 12
REST_MS = 6_000
DECODERS: tuple[tuple[Any, str], ...] = (
    (contents.TopicAssignment, "parse"),
    (contents.BrokerRegistration, "decode"),
    (contents.ClusterId, "decode"),
    (contents.ConfigChange, "decode"),
    (contents.ControllerRegistration, "decode"),
    (contents.EntityConfig, "decode"),
    (contents.PartitionState, "decode"),
)
WAYS_MS = (0.5, 1.0, 1.0, 2.0, 5.0)


class ControllerSimulation:
    """The simulated brokers, ZooKeeper, clients and faults."""

    def __init__(self, seed: int, favoured: str = "") -> None:
        self.rng = random.Random(seed)
        self._random = self.rng.random
        self._acts = [*ACTS, *([getattr(ControllerSimulation, favoured)] * 20 if favoured else ())]
        self._lossy = bool(favoured)
        self.now = 0.0
        self.log: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ids = count(1)
        self._names = count(1)
        self._records = count(1)
        self._connections = count(1)
        self.loss_probability = 0.0
        self.tool_is_writing = False
        self.zookeeper = SimulatedZooKeeper(self)
        self.checks = ControllerChecks(self)
        self._tool = self.zookeeper.tree.session()
        self._create_cluster()
        self.made: dict[str, str] = {}
        self.gone: dict[str, str] = {}
        self.settings: dict[str, tuple[str, str]] = {}
        self._latest: dict[str, str] = {}
        self._asking: Counter[str] = Counter()
        """how many requests for a topic's settings are not answered"""
        self.brokers = [SimulatedBroker(self, node_id) for node_id in range(1, BROKERS + 1)]

    def _create_cluster(self) -> None:
        """A cluster that was founded before: founding takes a simulated minute."""
        fields = (ClusterId(CLUSTER).encode(), Features({}).encode())
        made = [Create(path) for path in znodes.PERSISTENT]
        made += [Create("/cluster/id", fields[0]), Create("/feature", fields[1])]
        self._tool.submit([*made, Create("/controller_epoch", b"0")], "found")
        self._tool.events()

    # What the others need.

    def at(self, when: float, act: Callable[[], Any]) -> None:
        heappush(self._queue, (when, next(self._order), act))

    def short(self) -> float:
        """How long a message travels."""
        return WAYS_MS[int(self._random() * len(WAYS_MS))]

    def pause(self) -> float:
        """How long something is away: sometimes longer than a session."""
        return self.rng.choice((10.0, 60.0, 200.0, 450.0, 900.0))

    def lost(self) -> bool:
        return self.rng.random() < self.loss_probability

    def new_id(self) -> str:
        return fresh_id(next(self._ids))

    def connection(self) -> int:
        """The number of a new connection."""
        return next(self._connections)

    def note(self, text: str) -> None:
        self.log.append(f"{self.now:8.1f} {text}")

    def asleep_since(self, link: SimulatedSession) -> float:
        """When the broker of a session began to sleep; -1: it is awake."""
        processes = (each.process for each in self.brokers if each.process is not None)
        return next((each.asleep_since for each in processes if each.store is link), -1.0)

    def reachable(self, broker: int) -> bool:
        return self.brokers[broker - 1].process is not None

    def by_tool(self, session: int) -> bool:
        return session == self._tool.session

    def executed(self, session: int, operations: Any, done: MultiResult) -> None:
        self.checks.executed(session, operations, done)

    def epoch(self) -> int:
        node = self.zookeeper.tree.query(Read("/controller_epoch"))
        return int(node.data) if isinstance(node, Node) else 0

    def deliver(
        self, asked: BrokerRequest, connection: int, answer: Callable[[Message], None]
    ) -> None:
        """A request between brokers; it may arrive too late, and its answer may be lost."""

        def arrive() -> None:
            process = self.brokers[asked.broker - 1].process
            if process is not None and process.ready:
                process.ask(asked.api, asked.message, back, connection)

        def back(message: Any) -> None:
            if not self.lost() and isinstance(message, dict):
                self.at(self.now + self.short(), lambda: answer(message))

        late = self.lost()
        self.at(self.now + (self.rng.choice((310, 500, 900)) if late else self.short()), arrive)

    # The run.

    def run(self, ms: float) -> None:
        end = self.now + ms
        while self._queue and self._queue[0][0] <= end:
            self.now, _, act = heappop(self._queue)
            act()
        self.now = end

    def play(self) -> None:
        for broker in self.brokers:
            self.at(self.rng.choice((0, 0, 3, 40)), broker.start)
        self.run(40)
        for _ in range(2):
            self._create()
        self.run(40)
        self.loss_probability = 0.3 if self._lossy else self.rng.choice((0.0, 0.0, 0.05, 0.3))
        for _ in range(STEPS):
            act = self.rng.choice(self._acts)
            self.note(act.__name__)
            act(self)
            self._produce()
            self.run(self.rng.choice((0, 1, 3, 10, 50, 300)))

    def rest(self) -> None:
        """End all faults and run until nothing is pending."""
        self.loss_probability = 0.0
        if self.zookeeper.down:
            self.zookeeper.start()
        for broker in self.brokers:
            if broker.process is not None:
                broker.process.wake()
        self.run(1_000)
        for broker in self.brokers:
            broker.start()
        self.run(REST_MS)

    # What happens in it.

    def _process(self) -> Any:
        able = [each.process for each in self.brokers if each.process and each.process.ready]
        return self.rng.choice(able) if able else None

    def _leader(self) -> Any:
        able = [each.process for each in self.brokers if each.process and each.process.ready]
        first = [each for each in able if each and each.state.is_controller]
        return next(iter(first or able), None)

    def _topic(self) -> str | None:
        return self.rng.choice(sorted(self.made)) if self.made else None

    def _create(self) -> None:
        name = self._name()
        process = self._leader()
        if self.rng.random() < 0.2 or process is None:
            self._tool_creates(name)
            return
        count_, factor = self.rng.choice((1, 1, 2)), self.rng.choice((1, 2, 3, 3))
        fields = {"num_partitions": count_, "replication_factor": factor, "assignments": []}
        configs = [{"name": "min.insync.replicas", "value": str(self.rng.choice((1, 2, 2)))}]
        topic = {"name": name, **fields, "configs": configs}

        def answer(message: Any) -> None:
            (result,) = message["topics"]
            if result["error_code"] == 0:
                self.made[name] = result["topic_id"]

        process.ask("CreateTopics", {"topics": [topic], "validate_only": False}, answer)

    def _name(self) -> str:
        old = sorted(self.gone)
        return self.rng.choice(old) if old and self.rng.random() < 0.5 else f"t{next(self._names)}"

    def _tool_creates(self, name: str) -> None:
        """A topic of two replicas, as another controller would have made it."""
        replicas = self.rng.sample(range(1, BROKERS + 1), 2)
        topic_id = self.new_id()
        fields = {"partitions": {"0": replicas}, "topic_id": topic_id, "version": 3}
        done = self._write(
            Create(f"/config/topics/{name}", b'{"version":1,"config":{}}'),
            Create(f"/brokers/topics/{name}", json.dumps(fields).encode()),
        )
        if done.refused is None:
            self.made[name] = topic_id

    def _write(self, *operations: Operation) -> MultiResult:
        self._tool.submit(list(operations), "tool")
        (done,) = [each for each in self._tool.events() if isinstance(each, MultiResult)]
        self.tool_is_writing = True
        self.checks.executed(self._tool.session, operations, done)
        self.tool_is_writing = False
        self.zookeeper.deliver_events()
        return done

    def _delete(self) -> None:
        name, process = self._topic(), self._leader()
        if name is None or process is None:
            return
        self._may_be_deleted(name)

        def answer(message: Any) -> None:
            (result,) = message["responses"]
            if result["error_code"] == 0 and topic_id is not None:
                self.gone[name] = topic_id
                if self.made.get(name) == topic_id:
                    del self.made[name]

        topic_id = self._id_of(name)
        if self.rng.random() < 0.3:
            self._write(Create(f"/admin/delete_topics/{name}"))
        process.ask("DeleteTopics", {"topic_names": [name], "timeout_ms": 500}, answer)

    def _id_of(self, name: str) -> str | None:
        node = self.zookeeper.tree.query(Read(f"/brokers/topics/{name}"))
        if not isinstance(node, Node):
            return None
        found: str = json.loads(node.data)["topic_id"]
        return found

    def _may_be_deleted(self, name: str) -> None:
        """From now on every topic that ever had that name may be deleted."""
        for topic_id, known in self.checks.names.items():
            if known == name:
                self.checks.may_be_deleted.add(topic_id)

    def _grow(self) -> None:
        name, process = self._topic(), self._leader()
        if name is not None and process is not None:
            wanted = {"name": name, "count": self.rng.choice((2, 3, 4))}
            process.ask("CreatePartitions", {"topics": [wanted]}, lambda _: None)

    def _configure(self) -> None:
        name, process = self._topic(), self._process()
        if name is None or process is None:
            return
        value, topic_id = str(self.rng.randrange(1000, 9999)), self._id_of(name)
        pair = {"name": "retention.ms", "config_operation": 0, "value": value}
        resource = {"resource_type": 2, "resource_name": name, "configs": [pair]}
        self.settings.pop(name, None)
        self._asking[name] += 1
        self._latest[name] = value
        alone = self._asking[name] == 1

        def answer(message: Any) -> None:
            (result,) = message["responses"]
            alone_still = alone and self._latest[name] == value
            self._asking[name] -= 1
            if result["error_code"] == 0 and topic_id is not None and alone_still:
                self.settings[name] = (topic_id, value)

        message = {"resources": [resource], "validate_only": False}
        process.ask("IncrementalAlterConfigs", message, answer)

    def _auto_create(self) -> None:
        process = self._process()
        if process is not None:
            process.ask("AutoCreate", {"topics": ["auto-created"]}, lambda _: None)

    def _producer(self) -> None:
        process = self._process()

        def answer(message: Any) -> None:
            if message["error_code"] == 0:
                self.checks.block(message["producer_id_start"])

        if process is not None:
            process.ask("AllocateProducerIds", {"broker_id": process.broker.id}, answer)

    def _produce(self) -> None:
        """Producers send a record to each partition, to the broker that believes it leads it."""
        for broker in self.brokers:
            process = broker.process
            if process is not None and process.is_awake:
                for key in sorted(process.replicas.led):
                    process.replicas.append(key, next(self._records))

    def min_isr(self, name: str) -> int:
        """The setting min.insync.replicas of a topic, from the tree."""
        node = self.zookeeper.tree.query(Read(f"/config/topics/{name}"))
        config = json.loads(node.data)["config"] if isinstance(node, Node) else {}
        return int(config.get("min.insync.replicas", 1))

    def _ask_leader(self, api: str, message: Message) -> None:
        process = self._leader()
        if process is not None:
            process.ask(api, message, lambda _: None)

    def _reassign(self) -> None:
        name = self._topic()
        if name is None:
            return
        chosen = self.rng.sample(range(1, BROKERS + 1), self.rng.choice((1, 2, 2, 3)))
        replicas = None if self.rng.random() < 0.3 else chosen
        self.checks.may_be_moved.add(name)
        rows = [{"partition_index": index, "replicas": replicas} for index in (0, 1)]
        topics = [{"name": name, "partitions": rows}]
        self._ask_leader("AlterPartitionReassignments", {"topics": topics})

    def _elect(self) -> None:
        name, kind = self._topic(), int(self.rng.random() < 0.2)
        if name is not None:
            if kind:
                self.checks.may_be_unclean.add(name)
            places = [{"topic": name, "partitions": [0, 1]}]
            message = {"topic_partitions": places, "election_type": kind}
            self._ask_leader("ElectLeaders", message)

    def _need(self) -> None:
        """Another min.insync.replicas."""
        name = self._topic()
        if name is None:
            return
        value = str(self.rng.choice((1, 2)))
        pair = {"name": "min.insync.replicas", "config_operation": 0, "value": value}
        resource = {"resource_type": 2, "resource_name": name, "configs": [pair]}
        self._ask_leader("IncrementalAlterConfigs", {"resources": [resource]})

    def _cut_power(self) -> None:
        broker = self.rng.choice(self.brokers)
        broker.cut_power()
        self.at(self.now + self.rng.choice((0, 5, 100, 700)), broker.start)

    def _tool_asks(self) -> None:
        name = self._topic() or "nothing"
        if self.rng.random() < 0.5:
            path, data = "/admin/preferred_replica_election", Partitions(((name, 0),)).encode()
        else:
            replicas = tuple(self.rng.sample(range(1, BROKERS + 1), self.rng.choice((1, 2, 3))))
            path, data = "/admin/reassign_partitions", Reassignment(((name, 0, replicas),)).encode()
            self.checks.may_be_moved.add(name)
        self._write(Create(path, data))

    def _delete_controller_node(self) -> None:
        self._write(Delete("/controller"))

    def _controlled_shutdown(self) -> None:
        broker = self.rng.choice(self.brokers)
        process, leader = broker.process, self._leader()
        if process is None or leader is None:
            return
        request = registration.controlled_shutdown(process.state)
        if request is not None:
            leader.ask(request.api, request.message, lambda _: None)
        self.at(self.now + 20, broker.kill)

    def _kill(self) -> None:
        self.rng.choice(self.brokers).kill()

    def _restart(self) -> None:
        broker = self.rng.choice(self.brokers)
        broker.kill()
        self.at(self.now + self.rng.choice((0, 5, 100, 700)), broker.start)

    def _start(self) -> None:
        for broker in self.brokers:
            broker.start()

    def _sleep(self) -> None:
        process = self._leader() if self.rng.random() < 0.6 else self._process()
        if process is not None:
            process.sleep()
            self.at(self.now + self.pause(), process.wake)

    def _cut(self) -> None:
        process = self._leader() if self.rng.random() < 0.6 else self._process()
        if process is not None and not self.zookeeper.down:
            process.store.cut()

    def _restart_unnoticed(self) -> None:
        """The controller does not notice that a broker restarted."""
        leader = self._leader()
        others = [each for each in self.brokers if each.process is not leader]
        if leader is not None and not self.zookeeper.down:
            if self.rng.random() < 0.5:
                leader.store.cut()
            else:
                leader.sleep()
                self.at(self.now + 120, leader.wake)
            broker = self.rng.choice(others)
            broker.kill()
            self.at(self.now + 1, broker.start)

    def _outage(self) -> None:
        if not self.zookeeper.down:
            self.zookeeper.stop()
            self.at(self.now + self.pause(), self._restored)

    def _restored(self) -> None:
        if self.zookeeper.down:
            self.zookeeper.start()


ACTS: tuple[Callable[[ControllerSimulation], None], ...] = (
    ControllerSimulation._create,
    ControllerSimulation._create,
    ControllerSimulation._delete,
    ControllerSimulation._delete,
    ControllerSimulation._grow,
    ControllerSimulation._configure,
    ControllerSimulation._configure,
    ControllerSimulation._auto_create,
    ControllerSimulation._producer,
    ControllerSimulation._reassign,
    ControllerSimulation._reassign,
    ControllerSimulation._elect,
    ControllerSimulation._need,
    ControllerSimulation._cut_power,
    ControllerSimulation._cut_power,
    ControllerSimulation._tool_asks,
    ControllerSimulation._delete_controller_node,
    ControllerSimulation._controlled_shutdown,
    ControllerSimulation._kill,
    ControllerSimulation._kill,
    ControllerSimulation._restart,
    ControllerSimulation._restart,
    ControllerSimulation._start,
    ControllerSimulation._sleep,
    ControllerSimulation._sleep,
    ControllerSimulation._cut,
    ControllerSimulation._cut,
    ControllerSimulation._restart_unnoticed,
    ControllerSimulation._restart_unnoticed,
    ControllerSimulation._outage,
)


@contextmanager
def caching_decodes() -> Iterator[None]:
    """Decodes equal bytes once for all runs."""
    with ExitStack() as stack:
        for kind, name in DECODERS:
            stack.enter_context(patch.object(kind, name, lru_cache(2000)(getattr(kind, name))))
        yield


def simulate(seed: int, favoured: str = "") -> str:
    """Play the run of a seed; returns what it came to, as text.

    favoured  the kind of fault that happens most
    """
    simulation = ControllerSimulation(seed, favoured)
    try:
        simulation.play()
        simulation.rest()
        simulation.checks.at_rest()
    except Exception as error:
        error.add_note("\n".join(simulation.log))
        raise
    paths = sorted(simulation.zookeeper.tree._nodes)
    return f"{simulation.zookeeper.tree.zxid} {paths}"
