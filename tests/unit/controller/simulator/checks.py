"""The invariants of a cluster, checked at every step.

C1  an epoch of `/controller_epoch` belongs to one process; the controller of it was elected by its
    own session; each state, topic, mark and producer block is written in the epoch that holds
C2  a broker past its session's deadline is not the controller
C3  a live broker is registered by its own session; none takes another's ephemeral for its own
C4  epochs and versions never go back, in the tree and in any broker's state; a leader epoch of a
    partition belongs to one leader, in one life
C5  no work is half done when all faults are over: see `ControllerChecks.at_rest`
D1  a leader has every acknowledged record, unless an unclean election was allowed, or as many
    replicas went through a power cut since they were whole as min.insync.replicas was, at the
    lowest since
R3  a state is written by compare-and-set
R8  a replica that joins the ISR has every acknowledged record, as its present registration
R9  a leader was in the ISR or ELR, unless an unclean election was allowed
R10 replicas go when all that stay are in the ISR; a reassignment or a cancel leaves no fewer than
    min.insync.replicas in the ISR where there were as many
D   a replica's records go only after a request to delete the topic, or for other replicas
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from krust.metadata.contents import PartitionState, TopicAssignment
from krust.metadata.store import Check, Create, Delete, MultiResult, Node, Operation, Read, SetData

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
        self.acked: dict[tuple[str, int], dict[int, int]] = {}
        """topic id and partition -> acknowledged records, and how many replicas had each"""
        self.cut: dict[Key, set[int]] = {}
        """the brokers that went through a power cut, and did not copy their leader's log since, or
        did so while the leader still took them for who they were before: nobody knows that"""
        self.may_be_unclean: set[str] = set()
        """names of topics for which unclean elections were allowed"""
        self.unclean_epochs: dict[tuple[str, int], int] = {}
        """topic id and partition -> the leader epoch of the last unclean election"""
        self.written: dict[str, PartitionState] = {}
        """a state's path -> the contents of the node"""
        self.assigned: dict[str, TopicAssignment] = {}
        """a topic's name -> its assignment"""
        self._before: dict[str, PartitionState] = {}
        """the same as `written`, before the transaction that is checked"""

    # Each write.

    def executed(self, session: int, operations: Sequence[Operation], done: MultiResult) -> None:
        """The server executed a list, or refused it."""
        if done.refused is not None:
            return
        epoch = self.simulation.epoch()
        self._before.clear()
        for each in operations:
            if isinstance(each, Create) and each.path == "/controller":
                assert epoch not in self.simulation.zookeeper.elected_sessions, f"C1: {epoch} twice"
                self.simulation.zookeeper.elected_sessions[epoch] = session
            if isinstance(each, Create | SetData | Delete) and not self.simulation.by_tool(session):
                self._write(session, each, operations[0], epoch)
            if isinstance(each, Create | SetData) and each.path.startswith("/brokers/topics/"):
                self._content(each)
            if isinstance(each, SetData) and each.path.startswith("/config/topics/"):
                self._configured(each.path.rpartition("/")[2])

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
            self._state(each, partition_state)
        elif each.path.count("/") == 3:
            self._assigned(each.path.rpartition("/")[2], TopicAssignment.decode(each.data))

    def _configured(self, name: str) -> None:
        """A lower min.insync.replicas clears the ELR: earlier records are less safe, too."""
        lowest = self.simulation.min_isr(name)
        for (topic_id, _), records in self.acked.items():
            if self.names[topic_id] == name:
                records.update({each: min(needed, lowest) for each, needed in records.items()})

    def _state(self, write: Create | SetData, after: PartitionState) -> None:
        """A partition's state is written."""
        _, _, _, name, _, index, _ = write.path.split("/")
        before = self.written.get(write.path)
        self.written[write.path] = after
        if isinstance(write, Create) or before is None or self.simulation.tool_is_writing:
            return
        self._before.setdefault(write.path, before)
        assert write.version >= 0, f"R3: {write.path} is written over any version"
        key = (name, int(index))
        if after.leader not in (-1, before.leader, *before.isr, *before.elr):
            allowed = name in self.may_be_unclean
            assert allowed, f"R9: {key} is led by {after.leader}: {before}, {after}"
            self.unclean_epochs[self._id(key)] = after.leader_epoch
        for broker in set(after.isr) - set(before.isr):
            if broker != after.leader and self._is_known(broker):
                lost = self._lost(key, broker)
                assert not lost, f"R8: {broker} joins the ISR of {key} without {lost}"

    def leads(self, key: Key, topic_id: str, broker: int, epoch: int) -> None:
        """A broker leads in a new epoch; what it does not have is lost."""
        path = f"/brokers/topics/{key[0]}/partitions/{key[1]}/state"
        if epoch < self.states.get(path, -1):
            return  # it got the request late, and nobody follows it
        cut = self.cut.get(key, set())
        acked = self.acked.get((topic_id, key[1]), {})
        if topic_id in self.may_be_deleted:
            return
        for record in set(acked).difference(self.simulation.brokers[broker - 1].logs.get(key, ())):
            needed = min(acked.pop(record), len(self.assigned[key[0]].replicas[key[1]]))
            allowed = key[0] in self.may_be_unclean or len(cut) >= needed
            assert allowed, f"D1: {broker} leads {key} without {record}; cut: {cut}"
        cut.discard(broker)

    def _lost(self, key: Key, broker: int) -> set[int]:
        """The acknowledged records that a broker does not have."""
        if self._id(key)[0] in self.may_be_deleted:
            return set()
        log = self.simulation.brokers[broker - 1].logs.get(key, ())
        return set(self.acked.get(self._id(key), ())).difference(log)

    def _id(self, key: Key) -> tuple[str, int]:
        return self.assigned[key[0]].topic_id, key[1]

    def _is_known(self, broker: int) -> bool:
        """Whether a broker runs under the registration that the controller knows."""
        controller = self.terms.get(self.simulation.epoch())
        process = self.simulation.brokers[broker - 1].process
        if controller is None or process is None:
            return False
        return controller.state.registrations.get(broker) == process.state.broker_epoch

    def _assigned(self, name: str, assignment: TopicAssignment) -> None:
        """A topic's assignment is written."""
        self.names[assignment.topic_id] = name
        before = self.assigned.get(name)
        if before is not None and before.topic_id == assignment.topic_id:
            self._reassigned(name, before, assignment)
        elif before is not None:  # the states of a deleted topic of this name
            of_topic = f"/brokers/topics/{name}/"
            for path in [path for path in self.written if path.startswith(of_topic)]:
                del self.written[path]
        self.assigned[name] = assignment

    def _reassigned(self, name: str, before: TopicAssignment, after: TopicAssignment) -> None:
        """A topic's replicas are written; its partitions' states of this transaction before it."""
        moving = dict(before.adding) | dict(before.removing)
        still = dict(after.adding) | dict(after.removing)
        for index, replicas in enumerate(after.replicas[: len(before.replicas)]):
            path = f"/brokers/topics/{name}/partitions/{index}/state"
            now = self.written.get(path)
            if now is None or self.simulation.tool_is_writing:
                continue
            isr, were = set(now.isr), set(self._before.get(path, now).isr)
            assert isr <= set(replicas), f"R10: {name}-{index}: {isr} are in sync, of {replicas}"
            if replicas != before.replicas[index] and set(replicas) < set(before.replicas[index]):
                needed = min(self.simulation.min_isr(name), len(replicas), len(were))
                assert len(isr) >= needed, f"R10: {name}-{index}: {were} were in sync, {isr} are"
            adding = dict(before.adding).get(index, ())
            if index in moving and index not in still and set(adding) & set(replicas):
                assert set(replicas) <= isr, f"R10: {name}-{index} ends with {isr} of {replicas}"

    def acknowledged(
        self, partition: tuple[str, int], epoch: int, record: int, needed: int
    ) -> None:
        """A producer has the answer for a record, which so many replicas have.

        A leader of an earlier epoch may not know yet that an unclean election gave up its records.
        """
        if epoch >= self.unclean_epochs.get(partition, -1):
            self.acked.setdefault(partition, {}).setdefault(record, needed)

    # Each step of a process.

    def process(self, process: BrokerProcess, outcome: ControllerOutcome) -> None:
        """Check after a controller's decision."""
        state, who = process.state, process.broker.id
        if state.is_controller:
            holder = self.terms.setdefault(state.controller_epoch, process)
            assert holder is process, f"C1: {who} and {holder.broker.id} lead one epoch"
            elected = self.simulation.zookeeper.elected_sessions.get(state.controller_epoch)
            assert elected == process.store.session, f"C3: {who} leads by the node of {elected}"
        assert not (process.overdue and state.is_controller), f"C2: {who} leads past its deadline"
        before = self.epochs.get(process.key, 0)
        assert state.controller_epoch >= before, f"C4: {who} goes back to an older controller"
        self.epochs[process.key] = state.controller_epoch
        for line in outcome.changes.lines:
            assert "Error" not in line[1] or "RetryLaterError" in line[1], line
        for name, topic in outcome.changes.topics.items():
            if topic is None:
                self._forget(process, name)
            elif state.topics.get(name) is topic:
                self.topic(process, name)

    def _forget(self, process: BrokerProcess, name: str) -> None:
        """A broker dropped a topic: a full UpdateMetadata may have left before it was created."""
        for seen in list(self.control_requests):
            if seen[0] == process.key and self.names.get(seen[1]) == name:
                del self.control_requests[seen]

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
        leaders = [each for each in alive if each.state.is_controller]
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
            assignment = TopicAssignment.decode(tree[f"/brokers/topics/{name}"].data)
            moving = assignment.adding or assignment.removing
            assert not moving, f"C5: {name} is being reassigned"
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
                in_sync = set(partition_state.isr)
                assert in_sync == set(replicas), f"C5: {name}-{index}: {in_sync} of {replicas}"
                lost = self._lost((name, index), partition_state.leader)
                assert not lost, f"D1: {name}-{index} has lost {lost}"
                log = self.simulation.brokers[partition_state.leader - 1].logs.get((name, index))
                for each in alive:
                    self._agrees(each, name, index, partition_state)
                    has = each.broker.disk.get((name, index))
                    is_replica = each.broker.id in replicas
                    own = assignment.topic_id if is_replica else None
                    assert has == own, f"C5: {each.broker.id} {name} {has}"
                    if is_replica:
                        same = each.broker.logs.get((name, index)) == log
                        assert same, f"C5: {each.broker.id}: {name}-{index} is not as the leader's"
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
        count = len(topic.partitions)
        assert index < count, f"C5: {process.broker.id} knows {count} partitions of {name}"
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
            now = TopicAssignment.decode(node.data).topic_id if node is not None else None
            assert now != topic_id, f"C5: {name} was deleted, and is there"
        for name, (topic_id, value) in simulation.settings.items():
            node = tree.get(f"/brokers/topics/{name}")
            if node is None or TopicAssignment.decode(node.data).topic_id != topic_id:
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
