"""Live brokers, and the election of leaders when brokers come and go.

`/brokers/ids/N` is ephemeral: a broker is alive while the node exists. A new czxid means that the
broker was registered again. Its registration says whether it still has the records that it had
(`LiveBroker.has_all_records_since`): it has after a clean stop, and where only its process or its
session ended. `leaders.py` decides who leads. Transactions write the states of a topic; each checks
the controller epoch and the version of each state. If a version differs, the controller reads the
topic and decides again.
A new controller compares the epoch of each registration with the zxid of the state that names the
broker. If the epoch is higher, the broker was registered again since. If it is not, the writer of
the state knew the registration: a krust that registers also writes `/brokers/ids`, and a state is
written only in the version of that node which its writer has read.
Not promised: the same of a Kafka, which does not write `/brokers/ids`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from krust.controller import store_reads
from krust.controller.controller_election import RetryLaterError
from krust.controller.entities import LiveBroker, Partition, Topic
from krust.controller.leaders import ElectionMode, LiveBrokers, Risk, Rules, elect, risk
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.returned_brokers import ReturnedBrokers
from krust.controller.state import ControllerState, RespT, chunks
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import BrokerRegistration
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import ANY, Children, Create, Exists, Node, Read, Refusal, Stat

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from krust.controller.state import Transactions
    from krust.metadata.store import MultiResult

_SAME_BROKERS = 1
"""the index of that check in a transaction that writes states"""
_LISTED = 5
"""partitions that a line in the log names"""


class BrokersChangedError(RetryLaterError):
    """A broker was registered after the controller had read them: it has to read them again."""


def read_live_brokers(
    state: ControllerState,
) -> Generator[Transactions, list[MultiResult], ReturnedBrokers]:
    """Read the live brokers. Returns those that were registered again since the last call, and
    adds them to the state.

    That may be a broker that was dead in between: the elections for its death may not be written.
    This broker counts as alive in any case.
    """
    (read,) = yield [[Exists(znodes.BROKERS), Children(znodes.BROKERS, watch=True)]]
    stat, children = read.results
    names = [name for name in store_reads.children(znodes.BROKERS, children) if name.isdecimal()]
    found: dict[int, LiveBroker] = {}
    paths = [f"{znodes.BROKERS}/{name}" for name in names]
    results = yield from store_reads.read_many(Read(path, watch=True) for path in paths)
    for path, name, node in zip(paths, names, results, strict=True):
        if isinstance(node, Node):
            _add_registration(state, found, path, int(name), node)
        elif node is not Refusal.NO_NODE:
            raise RetryLaterError(f"{path}: {node}")
    state.brokers_version = stat.version if isinstance(stat, Stat) else ANY
    own = found.setdefault(state.node_id, unread_own_broker(state))
    returned = ReturnedBrokers()
    is_first = not state.registrations
    for broker, live in found.items():
        before = state.brokers.get(broker, live).epoch
        is_unknown = not is_first and state.registrations.get(broker) != live.epoch
        if live is not own and (is_unknown or before not in (-1, live.epoch)):
            returned.restarted.add(broker)
        known = state.registrations.get(broker, live.kept_epoch or 0)
        if not is_first and not live.has_all_records_since(known):
            returned.lossy.add(broker)
        if live.epoch != -1:
            state.registrations[broker] = live.epoch
    for broker in state.brokers.keys() - found.keys():
        state.remove_broker(broker)
    for broker, live in found.items():
        state.add_broker(broker, live)
    state.leaving -= returned.restarted | (state.leaving - found.keys())
    state.returned.add(returned)
    return returned


def unread_own_broker(state: ControllerState) -> LiveBroker:
    """The broker itself, while it cannot read its own registration. What the controller told this
    broker of itself does not say that it is a krust.
    """
    known = state.brokers.get(state.node_id, LiveBroker())
    return known._replace(kept_epoch=state.kept_epoch)


def _add_registration(
    state: ControllerState, found: dict[int, LiveBroker], path: str, broker: int, node: Node
) -> None:
    """Add the registration in a node; ignore one with this broker's id from another session."""
    if broker == state.node_id and node.stat.owner != state.session:
        return
    try:
        registered = BrokerRegistration.decode(node.data)
    except BadZnodeError as error:
        state.fault(path, error)
        return
    found[broker] = LiveBroker(
        node.stat.czxid, registered.rack, registered.endpoints, registered.kept_epoch
    )


def live_brokers(state: ControllerState, partition: tuple[str, int]) -> LiveBrokers:
    """The brokers as an election of this partition sees them; none whose disk with it failed."""
    alive, lossy = state.brokers.keys(), state.returned.lossy_of(partition)
    offline = state.offline.brokers_of(partition)
    return LiveBrokers(
        alive - offline if offline else alive,
        state.leaving,
        state.returned.restarted,
        lossy | offline if offline else lossy,
        state.keeping_elr,
    )


def leader_rules(state: ControllerState, topic: Topic) -> Rules:
    """What the settings of a topic say about leaders."""
    min_isr = state.topic_text(topic, "min.insync.replicas")
    unclean = state.topic_text(topic, "unclean.leader.election.enable")
    return Rules(int(min_isr or 1), unclean == "true")


def with_live_leader(
    state: ControllerState,
    topic: Topic,
    index: int,
    topic_rules: Rules,
) -> Partition:
    """A partition with a live leader and ISR; the same object if it has them."""
    partition = topic.partitions[index]
    live = live_brokers(state, (topic.name, index))
    mode = ElectionMode.NEW if partition.version < 0 else ElectionMode.OFFLINE
    return elect(partition, live, mode, topic_rules)


def without_stale_leaders(
    state: ControllerState,
    topic: Topic,
    written: Mapping[tuple[str, int], int],
    since: int,
    pace: Pace,
    *,
    was_controller: bool,
) -> Generator[Transactions, list[MultiResult], Topic]:
    """The topic without leaders that were registered after its states were written.

    since     the zxid from which on this process is a broker
    was_controller  `adoption.lead_local_partitions` has handled those whose only replica is here
    """
    partitions = list(topic.partitions)
    for index, each in enumerate(topic.partitions):
        if pace.add():
            yield PAUSE
        key = (topic.name, index)
        zxid = written.get(key)
        if zxid is None or (was_controller and each.replicas == (state.node_id,)):
            continue
        for broker in {each.leader, *each.isr, *each.elr}.difference((-1,)):
            live = state.brokers.get(broker)
            if live is None:
                state.must_have_kept_since(broker, zxid)
                continue
            epoch = since if broker == state.node_id else live.epoch
            if epoch > zxid:
                if broker == each.leader:
                    partitions[index] = each._replace(leader=-1)
                if not live.has_all_records_since(zxid):
                    state.returned.lossy_in.setdefault(key, set()).add(broker)
    return topic._replace(partitions=tuple(partitions))


def elect_missing_leaders(
    state: ControllerState, names: Iterable[str]
) -> Generator[Transactions, list[MultiResult], set[str]]:
    """Elect leaders where the leader is gone or a new one is possible, in slices.

    returns  the topics that have to be read again
    raises   RetryLaterError: the store is not available, or a broker was registered meanwhile
    """
    outdated: set[str] = set()
    wanted: list[tuple[Topic, dict[int, Partition]]] = []
    pace = Pace()
    for name in names:
        topic = state.topics.get(name)
        if topic is None:
            continue
        moved: dict[int, Partition] = {}
        topic_rules = leader_rules(state, topic)
        for index, partition in enumerate(topic.partitions):
            now = with_live_leader(state, topic, index, topic_rules)
            if now is not partition:
                moved[index] = now
            if pace.add(BATCHED if now is not partition else 1):
                more = [(topic, moved)] if moved else []
                outdated |= yield from write_states(state, [*wanted, *more])
                wanted, moved = [], {}
                yield PAUSE
        if moved:
            wanted.append((topic, moved))
    return outdated | (yield from write_states(state, wanted))


class PartitionStateBatch(Generic[RespT]):
    """Partition states that are written together, and their results in the response."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[Topic, dict[int, Partition]]] = {}
        self._results: list[tuple[str, int, RespT]] = []

    def has(self, name: str, index: int) -> bool:
        """Whether another state of this partition is already here."""
        return name in self._wanted and index in self._wanted[name][1]

    def add(self, topic: Topic, index: int, partition: Partition, result: RespT) -> None:
        """Add a state. `result` says that it is written."""
        self._wanted.setdefault(topic.name, (topic, {}))[1][index] = partition
        self._results.append((topic.name, index, result))

    def write(
        self, state: ControllerState
    ) -> Generator[Transactions, list[MultiResult], list[tuple[RespT, Code]]]:
        """Write all states. Returns the results of those that were not written, each with the
        reason: INVALID_UPDATE_VERSION, or NOT_CONTROLLER if the store is not available.

        Each topic is one transaction. If the tree has another state of one of its partitions, each
        state is written by itself, and the topic is read again. Afterwards the batch is empty.
        """
        wanted, self._wanted = self._wanted, {}
        results, self._results = self._results, []
        lost: set[tuple[str, int]] = set()
        try:
            failed = yield from write_states(state, list(wanted.values()))
            state.for_jobs.outdated |= failed
            for name in failed:
                topic, moved = wanted[name]
                for index, partition in moved.items():
                    if len(moved) == 1 or (
                        yield from write_states(state, [(topic, {index: partition})])
                    ):
                        lost.add((name, index))
        except RetryLaterError:
            return [(result, Code.NOT_CONTROLLER) for _, _, result in results]
        code = Code.INVALID_UPDATE_VERSION
        return [(result, code) for name, index, result in results if (name, index) in lost]


def write_states(
    state: ControllerState,
    wanted: list[tuple[Topic, dict[int, Partition]]],
) -> Generator[Transactions, list[MultiResult], set[str]]:
    """Write partition states, one transaction a topic. Returns the topics that had other states.

    Elections that may have cost records are counted and logged.
    """
    yield from _create_parents(state, wanted)
    pending = []
    for topic, other in wanted:
        operations = [state.write_of(topic.name, index, each) for index, each in other.items()]
        transactions = chunks(state.fence(), operations, state.same_brokers())
        pending.append((topic, other, transactions))
    outdated: set[str] = set()
    written: list[tuple[Topic, dict[int, Partition]]] = []
    while pending:
        answers = yield [transactions[0] for _, _, transactions in pending]
        left = []
        for (topic, other, transactions), done in zip(pending, answers, strict=True):
            if done.refused is None and len(transactions) > 1:
                left.append((topic, other, transactions[1:]))
            elif done.refused is None:
                state.update_partitions(topic, other)
                written.append((topic, other))
            elif done.refused in (Refusal.NOT_APPLIED, Refusal.FAILED):
                raise RetryLaterError(f"the leaders of {topic.name}: {done.refused.value}")
            elif done.results[_SAME_BROKERS] is Refusal.BAD_VERSION:
                raise BrokersChangedError(f"the leaders of {topic.name}: a broker came")
            else:
                outdated.add(topic.name)
        pending = left
    _log_risks(state, written)
    return outdated


def _log_risks(
    state: ControllerState,
    written: list[tuple[Topic, dict[int, Partition]]],
) -> None:
    """Count and log the elections that may have cost acknowledged records."""
    found: dict[Risk, list[str]] = {}
    for topic, other in written:
        for index, after in other.items():
            lossy = state.returned.lossy_of((topic.name, index))
            kind = risk(topic.partitions[index], after, lossy)
            if kind is not None:
                place = f"{topic.name}-{index} by broker {after.leader}"
                found.setdefault(kind, []).append(place)
    for kind, places in found.items():
        state.risks[kind] += len(places)
        more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
        named = ", ".join(places[:_LISTED])
        state.warn(f"{kind.value}, acknowledged records may be lost: {named}{more}")


def _create_parents(
    state: ControllerState, wanted: list[tuple[Topic, dict[int, Partition]]]
) -> Generator[Transactions, list[MultiResult], None]:
    """Create the parent nodes of new states."""
    above = []
    for topic, other in wanted:
        indexes = [index for index in other if topic.partitions[index].version < 0]
        if indexes:
            path = f"{znodes.topic(topic.name)}/partitions"
            above += [Create(path), *(Create(f"{path}/{index}") for index in indexes)]
    if above:
        yield [[state.fence(), each] for each in above]
