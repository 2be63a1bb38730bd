"""Loading of topics, partition states and settings from the tree, at the start and later.

A node may contain anything. A node that cannot be read affects only the object that it describes;
the broker logs it. A topic is not served if it has no assignment or if one of its nodes cannot be
read; its name stays taken, and its files stay. A partition without a state has no leader. Settings
that cannot be read have no effect; where they decide what is deleted, nothing is deleted
(`adoption.NOTHING_DELETED`). Settings with unknown names are kept.
A topic may disappear from the tree, or be replaced by another of the same name. A broker with a
tree of its own then serves it as before until the next start: a lost node deletes no file. If
brokers share the tree, they no longer serve it, and keep its files.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from krust.config import parse_topic
from krust.controller import (
    features,
    group_configs,
    quota_entities,
    store_reads,
    stored_passwords,
)
from krust.controller.adoption import NOTHING_DELETED
from krust.controller.entities import Partition, Topic
from krust.controller.pace import BATCHED, DECODED, PARSED, PAUSE, Pace
from krust.controller.state import ConfigEntity, ControllerState, RefusedError
from krust.controller.topic_names import check_name
from krust.errors import ConfigError
from krust.metadata import znodes
from krust.metadata.contents import EntityConfig, PartitionState, TopicAssignment
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Children, Node, Read
from krust.named_tuple import NamedTuple
from krust.settings import BROKER, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable

    from krust.controller.state import Steps, Transactions
    from krust.metadata.store import MultiResult, Result

    Written = dict[tuple[str, int], int]
    Revised = Callable[[Topic, Written, Pace], Generator[Transactions, list[MultiResult], Topic]]


class _TopicZnodes(NamedTuple):
    """The topic's own nodes, before the states of its partitions are read."""

    name: str
    assignment: TopicAssignment
    version: int
    entity: ConfigEntity


def load(state: ControllerState, revised: Revised | None = None) -> Steps:
    """Read topics and settings. ServerError: the tree cannot be read now.

    revised   changes each topic that was read; it also gets the zxids of the partition states
    """
    known = set(state.topics)
    (read,) = yield [[Children(znodes.TOPICS, state.shared)]]
    there = store_reads.children(znodes.TOPICS, read.results[0])
    names = [name for name in there if name not in state.deletions]
    state.damaged.clear()
    written: Written = {}
    found = yield from topics(state, names, written)
    pace = Pace()
    for each in found:
        if pace.add(1 + len(each.partitions) // BATCHED):
            yield PAUSE
        if each.name in state.deletions:
            continue
        topic = each
        if revised is not None:
            topic = yield from revised(each, written, pace)
            if each.name in state.deletions:  # since a pause
                continue
        before = state.topics.get(topic.name)
        if before is not None and before.id != topic.id:
            if not state.shared:
                state.fault(znodes.topic(topic.name), "it is another topic of that name")
                continue
            state.lose_topic(
                topic.name, "it is another topic of that name; the old one's files are kept"
            )
        state.merge_topic(topic)
    for name in known & state.topics.keys() - {each.name for each in found}:
        if not state.shared or name in state.damaged:
            why = "it is gone, or cannot be read; its records are served on"
            state.fault(znodes.topic(name), why)
            continue
        state.lose_topic(name, "it is gone; its files are kept")
    yield from settings(state)


def topics(
    state: ControllerState, names: Collection[str], written: Written | None = None
) -> Generator[Transactions, list[MultiResult], list[Topic]]:
    """Read these topics. A topic that cannot be read is `damaged`; a missing one is left out.

    If others use the tree, each topic is watched, because their tools may write there.
    """
    if not names:
        return []
    queries = ((Read(znodes.topic(n), state.shared), Read(znodes.topic_config(n))) for n in names)
    results = yield from store_reads.read_many_in_slices(each for pair in queries for each in pair)
    pace = Pace()
    read: list[_TopicZnodes] = []
    for answer in zip(names, results[::2], results[1::2], strict=True):
        each = yield from _topic(state, *answer, pace)
        if each is not None:
            read.append(each)
    states = yield from store_reads.read_many_in_slices(
        Read(znodes.state(each.name, index))
        for each in read
        for index in range(len(each.assignment.replicas))
    )
    nodes = iter(states)
    found = []
    for each in read:
        own = list(islice(nodes, len(each.assignment.replicas)))
        topic = yield from _whole(state, each, own, written, pace)
        if topic is not None:
            found.append(topic)
    return found


def settings_of(
    state: ControllerState, names: Collection[str]
) -> Generator[Transactions, list[MultiResult], dict[str, ConfigEntity]]:
    """Read the settings of these topics, by name. ServerError: the tree cannot be read now."""
    if not names:
        return {}
    paths = [znodes.topic_config(name) for name in names]
    results = yield from store_reads.read_many(map(Read, paths))
    return {
        name: _of_topic(state, path, result)
        for name, path, result in zip(names, paths, results, strict=True)
    }


def settings(state: ControllerState) -> Steps:
    """Read the settings of this broker, all brokers and groups, the features, and the quotas."""
    yield from of_brokers(state)
    yield from features.read(state)
    yield from quota_entities.load(state)
    yield from group_configs.load(state)


def of_brokers(state: ControllerState) -> Steps:
    """Read the settings of this broker and of all brokers."""
    own = znodes.broker_config(str(state.node_id))
    everywhere = znodes.broker_config(znodes.DEFAULT_ENTITY)
    (done,) = yield [[Read(own), Read(everywhere)]]
    entities = (state.own, state.everywhere)
    state.own = _of_broker(state, own, done.results[0])
    state.everywhere = _of_broker(state, everywhere, done.results[1])
    if entities != (state.own, state.everywhere):
        state.brokers_changed()


def _topic(
    state: ControllerState, name: str, answer: Result, settings: Result, pace: Pace
) -> Generator[Transactions, list[MultiResult], _TopicZnodes | None]:
    """A topic from its own nodes; None: they cannot be read, or the topic is gone."""
    path = znodes.topic(name)
    try:
        node = store_reads.node(path, answer)
        if node is None:
            return None
        check_name(name)
        fields = TopicAssignment.parse(node.data)
        if pace.add(len(node.data) // PARSED):
            yield PAUSE
        assignment = TopicAssignment.of(fields)
        if pace.add(BATCHED + len(assignment.replicas) // DECODED):
            yield PAUSE
    except (BadZnodeError, RefusedError, store_reads.UnreadableError) as error:
        _damage(state, name, path, error)
        return None
    entity = _of_topic(state, znodes.topic_config(name), settings)
    return _TopicZnodes(name, assignment, node.stat.version, entity)


def _damage(state: ControllerState, name: str, path: str, error: Exception) -> None:
    """Note that a topic cannot be read: it is not served, the others are."""
    state.fault(path, error)
    state.damaged.add(name)


def _whole(
    state: ControllerState,
    found: _TopicZnodes,
    results: Iterable[Result],
    written: Written | None,
    pace: Pace,
) -> Generator[Transactions, list[MultiResult], Topic | None]:
    """A topic with its partitions; None: one of them cannot be read.

    results  of the reads of the partitions' states; `written` gets the zxid of each
    """
    partitions = []
    adding, removing = dict(found.assignment.adding), dict(found.assignment.removing)
    for index, (replicas, result) in enumerate(
        zip(found.assignment.replicas, results, strict=True)
    ):
        path = znodes.state(found.name, index)
        if written is not None and isinstance(result, Node):
            written[found.name, index] = result.stat.mzxid
        try:
            partition = _partition(state, path, replicas, result)
        except store_reads.UnreadableError as error:
            _damage(state, found.name, path, error)
            return None
        if index in adding or index in removing:
            moved = adding.get(index, ()), removing.get(index, ())
            partition = partition._replace(adding=moved[0], removing=moved[1])
        partitions.append(partition)
        if pace.add():
            yield PAUSE
    return Topic(
        found.name,
        found.assignment.topic_id,
        tuple(partitions),
        found.entity.config,
        found.version,
        max(found.entity.version, 0),
    )


def _partition(
    state: ControllerState, path: str, replicas: tuple[int, ...], result: Result
) -> Partition:
    node = store_reads.node(path, result)
    if node is None:
        return Partition(replicas, -1, 0, replicas, -1)
    version = node.stat.version
    try:
        partition = PartitionState.decode(node.data)
    except BadZnodeError as error:
        state.fault(path, error)
        return Partition(replicas, -1, 0, (), version)
    _, leader, leader_epoch, isr, elr, lossy = partition
    return Partition(replicas, leader, leader_epoch, isr, version, elr=elr, lossy=lossy)


def _of_topic(state: ControllerState, path: str, result: Result) -> ConfigEntity:
    """A topic's own settings."""
    try:
        node = store_reads.node(path, result)
    except store_reads.UnreadableError as error:
        state.fault(path, error)
        return ConfigEntity(dict(NOTHING_DELETED))
    if node is None:
        return ConfigEntity()
    try:
        config = dict(EntityConfig.decode(node.data).config)
    except BadZnodeError as error:
        state.fault(path, error)
        return ConfigEntity(dict(NOTHING_DELETED), node.stat.version)
    for name in [each for each in config if each in TOPIC]:
        try:
            parse_topic(name, config[name])
        except ConfigError as error:
            state.fault(path, error)
            del config[name]
            if name in NOTHING_DELETED:
                config |= NOTHING_DELETED
    return ConfigEntity(config, node.stat.version)


def _of_broker(state: ControllerState, path: str, result: Result) -> ConfigEntity:
    """The dynamic settings of a broker, or of all."""
    node = store_reads.node(path, result)
    if node is None:
        return ConfigEntity()
    try:
        config = dict(EntityConfig.decode(node.data).config)
    except BadZnodeError as error:
        state.fault(path, error)
        return ConfigEntity({}, node.stat.version)
    for name in [each for each in config if each in BROKER]:
        try:
            BROKER[name].parse(config[name])
        except ValueError as error:
            state.fault(path, f"{name}: {error}")
            del config[name]
    return ConfigEntity(config, node.stat.version, stored_passwords.unseal(state, path, config))
