"""Requests that tools from before 2019 write as nodes under `/admin`.

`/admin/preferred_replica_election` names partitions whose preferred replica is to become leader.
The controller deletes the node when it is done; until then no other such tool runs.
`/admin/reassign_partitions` names new replicas of partitions. The controller begins these
reassignments, removes each from the node when it has ended, and deletes the node after the last.
The controller also removes a reassignment that it refuses (it logs that), and one that a later
request replaced.
Source: `kafka-preferred-replica-election.sh`, `kafka-reassign-partitions.sh --zookeeper` (to 2.x).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import brokers, reassignment
from krust.controller.controller_election import RetryLaterError
from krust.controller.leaders import DEFAULT_RULES, ElectionMode, elect
from krust.metadata import znodes
from krust.metadata.admin_contents import Partitions, Reassignment
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Delete, Exists, Node, Read, Refusal, SetData
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from krust.controller.entities import Partition, Topic
    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult


class AdminZnode(NamedTuple):
    """A node that a tool wrote."""

    data: bytes
    version: int


def elect_preferred(state: ControllerState) -> Generator[Transactions, list[MultiResult], set[str]]:
    """Elect the preferred replicas that a tool named. Returns the topics to read again."""
    found = yield from _watched_node(znodes.PREFERRED_ELECTION)
    if found is None:
        return set()
    named: dict[str, list[int]] = {}
    try:
        for name, index in Partitions.decode(found.data).partitions:
            named.setdefault(name, []).append(index)
    except BadZnodeError as error:
        state.fault(znodes.PREFERRED_ELECTION, error)
    outdated = yield from brokers.write_states(state, preferred_elections(state, named.items()))
    yield from _delete_unchanged(state, znodes.PREFERRED_ELECTION, found)
    return outdated


def preferred_elections(
    state: ControllerState, named: Iterable[tuple[str, Iterable[int]]]
) -> list[tuple[Topic, dict[int, Partition]]]:
    """The named partitions whose preferred replica does not lead, and can."""
    wanted = []
    for name, indexes in named:
        topic = state.topics.get(name)
        moves = {}
        rules = brokers.leader_rules(state, topic) if topic is not None else DEFAULT_RULES
        for index in indexes if topic is not None else ():
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            partition = topic.partitions[index]
            live = brokers.live_brokers(state, (name, index))
            led = elect(partition, live, ElectionMode.PREFERRED, rules)
            if led is not partition:
                moves[index] = led
        if topic is not None and moves:
            wanted.append((topic, moves))
    return wanted


class ZnodeReassignments:
    """The reassignments from `/admin/reassign_partitions` that this controller has begun."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], tuple[int, ...]] = {}

    def clear(self) -> None:
        """Start over: none was begun."""
        self._begun.clear()

    def continue_begun(self, state: ControllerState) -> Steps:
        """Begin the reassignments that the node names, and remove from it those that have ended."""
        found = yield from _watched_node(znodes.REASSIGNMENT)
        if found is None:
            self._begun.clear()
            return
        named: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
        try:
            named = Reassignment.decode(found.data).partitions
        except BadZnodeError as error:
            state.fault(znodes.REASSIGNMENT, error)
        wanted: dict[str, dict[int, tuple[int, ...] | None]] = {}
        for name, index, replicas in named:
            if self._begun.get((name, index)) != replicas:
                wanted.setdefault(name, {})[index] = replicas
        for name, partitions in wanted.items():
            refused = yield from reassignment.begin(state, name, partitions)
            for index, why in refused.items():
                state.fault(znodes.REASSIGNMENT, f"{name}-{index} is refused: {why.text}")
            for index, replicas_ in partitions.items():
                if index not in refused and replicas_ is not None:
                    self._begun[name, index] = replicas_
        left = tuple(each for each in named if self._is_ongoing(state, *each))
        if not left:
            yield from _delete_unchanged(state, znodes.REASSIGNMENT, found)
        elif left != named:
            data = Reassignment(left).encode()
            yield [[state.fence(), SetData(znodes.REASSIGNMENT, data, found.version)]]

    def _is_ongoing(
        self, state: ControllerState, name: str, index: int, replicas: tuple[int, ...]
    ) -> bool:
        """Whether a partition is still on its way to these replicas."""
        topic = state.topics.get(name)
        if topic is None or index >= len(topic.partitions) or (name, index) not in self._begun:
            return False
        partition = topic.partitions[index]
        return partition.is_moving and partition.target == replicas


def _watched_node(path: str) -> Generator[Transactions, list[MultiResult], AdminZnode | None]:
    """Read a tool's node and watch it. None: it does not exist."""
    (read,) = yield [[Exists(path, watch=True), Read(path)]]
    node = read.results[1]
    if isinstance(node, Node):
        return AdminZnode(node.data, node.stat.version)
    if node is not Refusal.NO_NODE:
        raise RetryLaterError(f"{path}: {node}")
    return None


def _delete_unchanged(state: ControllerState, path: str, found: AdminZnode) -> Steps:
    """Delete the node unless it changed since it was read."""
    yield [[state.fence(), Delete(path, found.version)]]
