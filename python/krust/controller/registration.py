"""How a broker enters the tree: the standing nodes, the cluster's id, itself, the controllership.

Order: persistent nodes and `/cluster/id`; `/controller_epoch` and `/controller`; everything else is
read into the State; last, when the broker listens, `/brokers/ids/N` (a taken id refuses the start).
A broker's registration is create and set in one transaction, so that its epoch (the czxid) is
known from the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krust.controller import znodes
from krust.controller.state import Entity, Partition, State, Topic
from krust.errors import ServerError
from krust.metadata.store import (
    Children,
    Create,
    Created,
    Node,
    Read,
    Refusal,
    SetData,
    Stat,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from krust.controller.state import Asked
    from krust.metadata.store import Done, Operation, Result

    Steps = Generator[Asked, list[Done], None]


class Registration(NamedTuple):
    """What a broker says of itself."""

    endpoints: Sequence[tuple[str, str, int]]
    """(listener, host, port) as clients are told"""
    rack: str | None
    now_ms: int


def found(state: State, cluster_id: str) -> Steps:
    """Lay the standing nodes; learn the cluster's id, or give it one."""
    path_of_id = znodes.CLUSTER_ID
    (read,) = yield [[Read(path_of_id)]]
    node = read.results[0]
    if not isinstance(node, Node):
        done = yield [[Create(path)] for path in znodes.PERSISTENT]
        done += yield [
            [Create(znodes.FEATURE, znodes.feature_data())],
            [Create(path_of_id, znodes.cluster_id_data(cluster_id))],
        ]
        for each in done:
            if each.refused not in (None, Refusal.NODE_EXISTS):
                raise ServerError(
                    f"the metadata store refuses its first nodes: {each.refused}",
                    hint="look at the store's own log",
                )
        (read,) = yield [[Read(path_of_id)]]
        node = read.results[0]
    if isinstance(node, Node):
        state.cluster_id = str(znodes.decode(node.data).get("id", ""))
    if not state.cluster_id:
        raise ServerError(f"{path_of_id} holds no cluster id", hint="remove that node, or mend it")


def announce(state: State, registration: Registration) -> Steps:
    """Register this broker, once it is known where it listens."""
    path = f"{znodes.BROKERS}/{state.node_id}"
    data = znodes.broker_data(registration.endpoints, registration.rack, registration.now_ms)
    (done,) = yield [[Create(path, data, ephemeral=True), SetData(path, data)]]
    if done.refused is not None:
        raise ServerError(
            f"broker id {state.node_id} is taken in this cluster ({done.refused.value})",
            hint="give this broker another broker.id, or wait until the other one's session ends",
        )


def claim(state: State, now_ms: int) -> Steps:
    """Take the controllership; this broker counts as alive from here on."""
    yield [[Create(znodes.CONTROLLER_EPOCH, b"0")]]
    (read,) = yield [[Read(znodes.CONTROLLER_EPOCH)]]
    node = read.results[0]
    if not isinstance(node, Node):
        raise ServerError("the controller's epoch cannot be read", hint="look at the store")
    epoch = int(node.data) + 1
    data = znodes.controller_data(state.node_id, now_ms)
    asked: list[Operation] = [
        Create(znodes.CONTROLLER, data, ephemeral=True),
        SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.stat.version),
    ]
    (done,) = yield [asked]
    if done.refused is not None:
        raise ServerError(
            f"another broker is the controller ({done.refused.value})",
            hint="a standalone broker needs metadata of its own",
        )
    state.controller_epoch, state.epoch_version = epoch, node.stat.version + 1
    state.brokers.add(state.node_id)


def load(state: State) -> Steps:
    """Read topics and settings."""
    (read,) = yield [[Children(znodes.TOPICS)]]
    names = [name for name in _names(read.results[0]) if name]
    if names:
        topics = yield [
            [Read(znodes.topic(name)), Read(znodes.topic_config(name))] for name in names
        ]
        bare = [_topic(name, done.results) for name, done in zip(names, topics, strict=True)]
        states = yield [
            [Read(znodes.state(topic.name, index)) for index in range(len(topic.partitions))]
            for topic in bare
        ]
        for topic, done in zip(bare, states, strict=True):
            partitions = tuple(
                _with_state(partition, result)
                for partition, result in zip(topic.partitions, done.results, strict=True)
            )
            state.put(topic._replace(partitions=partitions))
    own = znodes.broker_config(str(state.node_id))
    everywhere = znodes.broker_config(znodes.DEFAULT_ENTITY)
    (mine, all_of_us) = yield [[Read(own)], [Read(everywhere)]]
    state.own = _entity(mine.results[0])
    state.everywhere = _entity(all_of_us.results[0])


def _names(result: Result) -> tuple[str, ...]:
    if isinstance(result, tuple) and not isinstance(result, Node | Stat | Created):
        return result
    return ()


def _topic(name: str, results: tuple[Result, ...]) -> Topic:
    """A topic as its own nodes say; its partitions' states are still to be read."""
    node, settings = results
    facts = znodes.decode(node.data) if isinstance(node, Node) else {}
    by_index = {int(index): tuple(each) for index, each in facts.get("partitions", {}).items()}
    count = max(by_index, default=-1) + 1
    partitions = tuple(
        Partition(by_index.get(index, ()), -1, 0, by_index.get(index, ()), -1)
        for index in range(count)
    )
    entity = _entity(settings)
    return Topic(
        name,
        str(facts.get("topic_id", "")),
        partitions,
        entity.config,
        node.stat.version if isinstance(node, Node) else 0,
        max(entity.version, 0),
    )


def _with_state(partition: Partition, result: Result) -> Partition:
    if not isinstance(result, Node):
        return partition
    facts = znodes.decode(result.data)
    return Partition(
        partition.replicas,
        int(facts.get("leader", -1)),
        int(facts.get("leader_epoch", 0)),
        tuple(facts.get("isr", ())),
        result.stat.version,
    )


def _entity(result: Result) -> Entity:
    if not isinstance(result, Node):
        return Entity()
    config = znodes.decode(result.data).get("config", {})
    return Entity({str(name): str(text) for name, text in config.items()}, result.stat.version)
