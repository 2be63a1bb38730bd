"""The invariants of a cluster, checked at every step.

C1  an epoch of `/controller_epoch` belongs to one process; whoever leads by it was elected by its
    own session; each state, topic, mark and producer block is written in the epoch that holds
C2  a broker past its session's deadline is not the controller
C3  a live broker is registered by its own session; none takes another's ephemeral for its own
C4  epochs and versions never go back, in the tree and in any broker's state; a leader epoch of a
    partition belongs to one leader, in one life
C5  no work is half done when all faults are over: see `ControllerChecks.at_rest`
D   a replica's records go only after a request to delete the topic, or for other replicas
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from krust.metadata.contents import Assignment, PartitionState
from krust.metadata.store import Check, Create, Delete, Done, Node, Operation, Read, SetData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.controller.controller import ControllerOutcome
    from tests.unit.controller.simulator.broker import BrokerProcess
    from tests.unit.controller.simulator.simulation import ControllerSimulation

OF_THE_CONTROLLER = ("/brokers/topics/", "/latest_producer_id_block")
SHARED_WITH_BROKERS = [Create("/latest_producer_id_block")]
Key = tuple[str, int]


class ControllerChecks:
    """The observations so far."""

    def __init__(self, simulation: ControllerSimulation) -> None:
        self.simulation = simulation
        self.terms: dict[int, BrokerProcess] = {}
        self.leaders: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.control_requests: dict[tuple[tuple[int, int], str, int], tuple[int, int]] = {}
        self.epochs: dict[tuple[int, int], int] = {}
        self.states: dict[str, int] = {}
        self.may_be_deleted: set[str] = set()
        """topic ids"""
        self.may_be_moved: set[str] = set()
        """names of topics"""
        self.names: dict[str, str] = {}
        """topic id -> name, whatever was in the tree"""
        self.strays: list[tuple[str, int, str]] = []
        self.blocks: set[int] = set()

    # Each write.

    def executed(self, session: int, operations: Sequence[Operation], done: Done) -> None:
        """The server executed a list, or refused it."""
        if done.refused is not None:
            return
        epoch = self.simulation.epoch()
        for each in operations:
            if isinstance(each, Create) and each.path == "/controller":
                assert epoch not in self.simulation.zookeeper.elected_sessions, f"C1: {epoch} twice"
                self.simulation.zookeeper.elected_sessions[epoch] = session
            if isinstance(each, Create | SetData | Delete) and not self.simulation.by_tool(session):
                self._write(session, each, operations[0], epoch)
            if isinstance(each, Create | SetData) and each.path.startswith("/brokers/topics/"):
                self._content(each)

    def _write(self, session: int, each: Any, first: Operation, epoch: int) -> None:
        if each.path.startswith(OF_THE_CONTROLLER) and each not in SHARED_WITH_BROKERS:
            fenced = isinstance(first, Check) and first.path == "/controller_epoch"
            assert fenced, f"C1: {each.path} is written without a look at the epoch"
            holder = self.simulation.zookeeper.elected_sessions.get(epoch)
            assert holder == session, f"C1: {each.path} is written by {session}, not by {holder}"

    def _content(self, each: Create | SetData) -> None:
        if each.path.endswith("/state"):
            partition_state = PartitionState.decode(each.data)
            if not self.simulation.tool_is_writing:
                assert partition_state.controller_epoch == self.simulation.epoch(), f"C1: {each}"
            before = self.states.get(each.path, -1)
            fresh = isinstance(each, Create)
            assert fresh or partition_state.leader_epoch >= before, (
                f"C4: {each.path}: {before}, {partition_state}"
            )
            self.states[each.path] = partition_state.leader_epoch
        elif each.path.count("/") == 3:
            topic_id = Assignment.decode(each.data).topic_id
            self.names[topic_id] = each.path.rpartition("/")[2]

    # Each step of a process.

    def process(self, process: BrokerProcess, outcome: ControllerOutcome) -> None:
        """Check after a controller's decision."""
        state, who = process.state, process.broker.id
        if state.leading:
            holder = self.terms.setdefault(state.controller_epoch, process)
            assert holder is process, f"C1: {who} and {holder.broker.id} lead one epoch"
            elected = self.simulation.zookeeper.elected_sessions.get(state.controller_epoch)
            assert elected == process.store.session, f"C3: {who} leads by the node of {elected}"
        assert not (process.overdue and state.leading), f"C2: {who} leads past its deadline"
        before = self.epochs.get(process.key, 0)
        assert state.controller_epoch >= before, f"C4: {who} goes back to an older controller"
        self.epochs[process.key] = state.controller_epoch
        for line in outcome.changes.lines:
            assert "Error" not in line[1] or "RetryLaterError" in line[1], line
        for name, topic in outcome.changes.topics.items():
            if topic is not None and state.topics.get(name) is topic:
                self.topic(process, name)

    def topic(self, process: BrokerProcess, name: str) -> None:
        """A broker has learned of a topic, or serves it."""
        topic = process.state.topics[name]
        for index, each in enumerate(topic.partitions):
            if not each.replicas:
                continue
            order = (each.leader_epoch, each.version)
            seen = (process.key, topic.id, index)
            before = self.control_requests.get(seen, (-1, -1))
            assert order >= before, f"C4: {process.broker.id}: {name}-{index} {before} {order}"
            self.control_requests[seen] = order
            if each.leader == process.broker.id and process.ready:
                epoch = (topic.id, index, each.leader_epoch)
                own = (process.broker.id, process.life)
                holder = self.leaders.setdefault(epoch, own)
                assert holder == own, f"C4: {name}-{index} {epoch} is led by {holder} and {own}"

    def removed(self, process: BrokerProcess, key: Key, topic_id: str, *, kept: bool) -> None:
        """A replica's directory is deleted or made a stray."""
        if kept:
            self.strays.append((*key, topic_id))
            return
        asked = topic_id in self.may_be_deleted or key[0] in self.may_be_moved
        assert asked, f"D: {process.broker.id} deletes {key} that nobody asked to go"

    def block(self, first: int) -> None:
        """A broker got producer ids."""
        assert first not in self.blocks, f"C4: the block {first} is given out twice"
        self.blocks.add(first)

    # When nothing happens any more.

    def at_rest(self) -> None:
        """All brokers and ZooKeeper run and time has passed: every broker knows the same."""
        simulation = self.simulation
        processes = [each.process for each in simulation.brokers]
        alive = [each for each in processes if each is not None and each.ready]
        assert len(alive) == len(simulation.brokers), "C5: not all brokers start"
        leaders = [each for each in alive if each.state.leading]
        assert len(leaders) == 1, f"C5: {len(leaders)} are the controller"
        leader = leaders[0]
        tree = self._tree()
        assert "/controller" in tree, "C5: no broker is the controller"
        node = json.loads(tree["/controller"].data)
        assert node["brokerid"] == leader.broker.id, "C5: another broker is the controller"
        assert tree["/controller"].stat.owner == leader.store.session, "C3: it is not its own"
        for each in alive:
            registered = tree.get(f"/brokers/ids/{each.broker.id}")
            assert registered is not None, f"C3: {each.broker.id} is not registered"
            assert registered.stat.owner == each.store.session, "C3: it is another's"
            assert each.state.broker_epoch == registered.stat.czxid, "C3: another epoch"
            assert each.state.controller_id == leader.broker.id, f"C5: {each.broker.id}"
            assert each.state.controller_epoch == simulation.epoch(), f"C5: {each.broker.id}"
            known = sorted(each.state.brokers)
            assert len(known) == len(simulation.brokers), f"C5: {each.broker.id} knows {known}"
        self._topics(tree, alive)
        left = [path for path in tree if path.startswith("/admin/") and path.count("/") > 2]
        assert not left, f"C5: {left} is not done"

    def _topics(self, tree: dict[str, Node], alive: list[BrokerProcess]) -> None:
        names = {path.split("/")[3] for path in tree if path.startswith("/brokers/topics/")}
        for name in names:
            assignment = Assignment.decode(tree[f"/brokers/topics/{name}"].data)
            assert f"/config/topics/{name}" in tree, f"C5: {name} has no settings"
            for index, replicas in enumerate(assignment.replicas):
                node = tree.get(f"/brokers/topics/{name}/partitions/{index}/state")
                assert node is not None, f"C5: {name}-{index} has no state"
                partition_state = PartitionState.decode(node.data)
                assert partition_state.leader in replicas, (
                    f"C5: {name}-{index} has no leader: {partition_state}"
                )
                assert partition_state.leader in partition_state.isr, (
                    f"C4: {name}-{index}: {partition_state}"
                )
                for each in alive:
                    self._agrees(each, name, index, partition_state)
                    if each.broker.id in replicas:
                        has = each.broker.disk.get((name, index))
                        assert has == assignment.topic_id, f"C5: {each.broker.id} {name} {has}"
        for each in alive:
            assert each.state.topics.keys() == names, (
                f"C5: {each.broker.id}: {sorted(each.state.topics)}, the tree: {sorted(names)}"
            )
        for name, index, topic_id in self.strays:
            gone = topic_id in self.may_be_deleted and name not in self.may_be_moved
            assert not gone, f"C5: {name}-{index} was to go, and is a stray"
        self._acknowledged(tree, names)

    def _agrees(
        self, process: BrokerProcess, name: str, index: int, partition_state: PartitionState
    ) -> None:
        topic = process.state.topics.get(name)
        assert topic is not None, f"C5: {process.broker.id} does not know {name}"
        own = topic.partitions[index]
        known = (own.leader, own.leader_epoch, own.isr)
        in_tree = (partition_state.leader, partition_state.leader_epoch, partition_state.isr)
        assert known == in_tree, (
            f"C5: {process.broker.id}: {name}-{index} {known}, the tree {in_tree}"
        )

    def _acknowledged(self, tree: dict[str, Node], names: set[str]) -> None:
        """Every acknowledged change is there."""
        simulation = self.simulation
        for name, topic_id in simulation.made.items():
            if topic_id not in self.may_be_deleted:
                assert name in names, f"C5: {name} was made, and is not there"
        for name, topic_id in simulation.gone.items():
            node = tree.get(f"/brokers/topics/{name}")
            now = Assignment.decode(node.data).topic_id if node is not None else None
            assert now != topic_id, f"C5: {name} was deleted, and is there"
        for name, (topic_id, value) in simulation.settings.items():
            node = tree.get(f"/brokers/topics/{name}")
            if node is None or Assignment.decode(node.data).topic_id != topic_id:
                continue
            stored = json.loads(tree[f"/config/topics/{name}"].data)["config"]
            assert stored.get("retention.ms") == value, f"C5: {name}: {stored}, not {value}"
            for broker in simulation.brokers:
                assert broker.process is not None
                held = broker.process.state.topics[name].config.get("retention.ms")
                assert held == value, f"C5: {broker.id}: {name} has {held}, not {value}"

    def _tree(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        tree = self.simulation.zookeeper.tree
        for path in tree._nodes:
            node = tree.query(Read(path))
            assert isinstance(node, Node)
            found[path] = node
        return found
