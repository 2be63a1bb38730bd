"""Live brokers, and the election of leaders when brokers come and go.

`/brokers/ids/N` is ephemeral: a broker is alive while the node exists. A new czxid means that the
broker was registered again and may have lost what was in memory. The leader of a partition is the
first of its replicas that is in the ISR and alive. Without one the partition has no leader until a
replica of the ISR is back. Each change of leader increments the leader epoch. The states of a topic
are written in transactions that check the controller epoch and the version of each state. If a
version differs, the topic is read again and checked again.
A leader that was registered again gets a new epoch, because it may have lost unsynced records. So
does a leader whose registration is newer than the state that names it.
Not done: unclean election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from krust.controller import store_reads
from krust.controller.controller_election import RetryLaterError
from krust.controller.leaders import ElectionMode, LiveBrokers, elect
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import ControllerState, LiveBroker, Partition, RespT, Topic, chunks
from krust.metadata import znodes
from krust.metadata.contents import BadZnodeError, Broker
from krust.metadata.store import Children, Create, Node, Read, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping

    from krust.controller.state import Transactions
    from krust.metadata.store import Done


def read_live(state: ControllerState) -> Generator[Transactions, list[Done], set[int]]:
    """Read the live brokers. Returns those that were registered again since the last call.

    This broker counts as alive in any case.
    """
    (read,) = yield [[Children(znodes.BROKERS, watch=True)]]
    names = [
        name for name in store_reads.children(znodes.BROKERS, read.results[0]) if name.isdecimal()
    ]
    found: dict[int, LiveBroker] = {}
    paths = [f"{znodes.BROKERS}/{name}" for name in names]
    results = yield from store_reads.pieces(Read(path, watch=True) for path in paths)
    for path, name, node in zip(paths, names, results, strict=True):
        if isinstance(node, Node):
            _add(state, found, path, int(name), node)
        elif node is not Refusal.NO_NODE:
            raise RetryLaterError(f"{path}: {node}")
    own = found.setdefault(state.node_id, state.brokers.get(state.node_id, LiveBroker()))
    restarted = {
        broker
        for broker, live in found.items()
        if live is not own and state.brokers.get(broker, live).epoch not in (-1, live.epoch)
    }
    for broker in state.brokers.keys() - found.keys():
        state.remove_broker(broker)
    for broker, live in found.items():
        state.add_broker(broker, live)
    state.leaving -= restarted | (state.leaving - found.keys())
    return restarted


def _add(
    state: ControllerState, found: dict[int, LiveBroker], path: str, broker: int, node: Node
) -> None:
    """Add the registration in a node. One of our number by another session is ignored."""
    if broker == state.node_id and node.stat.owner != state.session:
        return
    try:
        registered = Broker.decode(node.data)
    except BadZnodeError as error:
        state.fault(path, error)
        return
    found[broker] = LiveBroker(node.stat.czxid, registered.rack, registered.endpoints)


def with_live_leader(
    state: ControllerState,
    partition: Partition,
    restarted: Collection[int] = (),
    offline: Collection[int] = (),
) -> Partition:
    """The partition with a live leader; the same object if its leader is alive.

    restarted  brokers that are alive but are not what they were
    offline   brokers that have lost the disk with their replica
    """
    if partition.version < 0:
        return elect(partition, LiveBrokers(state.brokers.keys()), ElectionMode.NEW)
    live = LiveBrokers(state.brokers.keys() - offline, state.leaving, restarted)
    return elect(partition, live, ElectionMode.OFFLINE)


def without_stale_leaders(
    state: ControllerState,
    topic: Topic,
    written: Mapping[tuple[str, int], int],
    since: int,
    *,
    was_controller: bool,
) -> Topic:
    """The topic without leaders that were registered after its states were written.

    since  the zxid from which on this process is a broker
    was_controller  what has no other replica than here was taken up by `adoption.lead`
    """
    partitions = list(topic.partitions)
    for index, each in enumerate(partitions):
        live = state.brokers.get(each.leader)
        epoch = since if each.leader == state.node_id else live.epoch if live is not None else -1
        own = was_controller and each.replicas == (state.node_id,)
        if written.get((topic.name, index), epoch) < epoch and not own:
            partitions[index] = each._replace(leader=-1)
    return topic._replace(partitions=tuple(partitions))


def sweep(
    state: ControllerState,
    names: Iterable[str],
    restarted: Collection[int] = (),
) -> Generator[Transactions, list[Done], set[str]]:
    """Elect leaders where the leader is gone or a new one is possible, in slices.

    restarted     as `read_live` found them
    returns  the topics that have to be read again
    raises   RetryLaterError: the store is not available
    """
    outdated: set[str] = set()
    wanted: list[tuple[Topic, dict[int, Partition]]] = []
    pace = Pace()
    for name in names:
        topic = state.topics.get(name)
        moved: dict[int, Partition] = {}
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            now = with_live_leader(
                state, partition, restarted, state.offline.brokers_of((name, index))
            )
            if now is not partition:
                moved[index] = now
            if pace.is_over(BATCHED if now is not partition else 1) and topic is not None:
                outdated |= yield from write(state, [*wanted, *([(topic, moved)] if moved else [])])
                wanted, moved = [], {}
                yield PAUSE
        if topic is not None and moved:
            wanted.append((topic, moved))
    return outdated | (yield from write(state, wanted))


class Batch(Generic[RespT]):
    """Partition states that are written together, and their results in the response."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[Topic, dict[int, Partition]]] = {}
        self._results: list[tuple[str, RespT]] = []

    def has(self, name: str, index: int) -> bool:
        """Whether another state of this partition is already here."""
        return name in self._wanted and index in self._wanted[name][1]

    def add(self, topic: Topic, index: int, partition: Partition, result: RespT) -> None:
        """Add a state. `result` says that it is written."""
        self._wanted.setdefault(topic.name, (topic, {}))[1][index] = partition
        self._results.append((topic.name, result))

    def write(self, state: ControllerState) -> Generator[Transactions, list[Done], list[RespT]]:
        """Write all states. Returns the results of those that were not written; then it is empty.

        A transaction a topic: if it fails, none of the topic's states is written.
        """
        wanted, self._wanted = list(self._wanted.values()), {}
        results, self._results = self._results, []
        try:
            failed = yield from write(state, wanted)
        except RetryLaterError:
            failed = {topic.name for topic, _ in wanted}
        return [result for name, result in results if name in failed]


def write(
    state: ControllerState, wanted: list[tuple[Topic, dict[int, Partition]]]
) -> Generator[Transactions, list[Done], set[str]]:
    """Write partition states, one transaction a topic. Returns the topics that had other states."""
    yield from _make_room(state, wanted)
    pending = []
    for topic, other in wanted:
        operations = [state.write_of(topic.name, index, each) for index, each in other.items()]
        pending.append((topic, other, chunks(state.fence(), operations)))
    outdated: set[str] = set()
    while pending:
        answers = yield [transactions[0] for _, _, transactions in pending]
        left = []
        for (topic, other, transactions), done in zip(pending, answers, strict=True):
            if done.refused is None and len(transactions) > 1:
                left.append((topic, other, transactions[1:]))
            elif done.refused is None:
                state.update_partitions(topic, other)
            elif done.refused in (Refusal.NO_SESSION, Refusal.FAILED):
                raise RetryLaterError(f"the leaders of {topic.name}: {done.refused.value}")
            else:
                outdated.add(topic.name)
        pending = left
    return outdated


def _make_room(
    state: ControllerState, wanted: list[tuple[Topic, dict[int, Partition]]]
) -> Generator[Transactions, list[Done], None]:
    """Create the parent nodes of new states."""
    above = []
    for topic, other in wanted:
        indexes = [index for index in other if topic.partitions[index].version < 0]
        if indexes:
            path = f"{znodes.topic(topic.name)}/partitions"
            above += [Create(path), *(Create(f"{path}/{index}") for index in indexes)]
    if above:
        yield [[state.fence(), each] for each in above]
