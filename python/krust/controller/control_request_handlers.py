"""Handlers of LeaderAndIsr, UpdateMetadata and StopReplica, which the controller sends this broker.

The broker reads the settings of unknown topics first, as Kafka's brokers do. Then it applies the
request in slices. Before each slice it checks again that the sender is the newest controller.
Answers are Kafka's codes. For the whole request:

    11 STALE_CONTROLLER_EPOCH   the controller is not the newest
    77 STALE_BROKER_EPOCH       the request is for an earlier registration of this broker
    7 REQUEST_TIMED_OUT         ZooKeeper is not available, or the controller has opened a newer
                                connection: a late request must not undo a newer one

For a partition: 74 the leader epoch in StopReplica is older (11 in LeaderAndIsr, as in Kafka),
103 the topic has another id, 3 this broker has no replica, 17 the name is not legal, 42 the number
is not legal.
Partition states are ordered by leader epoch, then by version. The broker applies an equal or newer
state, so a repeated request changes nothing. A request of type FULL names all topics: the broker
removes the others and keeps their files as strays.
UpdateMetadata names a new topic with all its partitions. LeaderAndIsr names only those of this
broker; the others are UNKNOWN_PARTITION until UpdateMetadata arrives. Leader -2 removes a topic.
Not known: brokers that UpdateMetadata has not named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from krust.controller.entities import LiveBroker, Partition, Topic
from krust.controller.loading import settings_of
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import NO_TOPIC_ID, RefusedError
from krust.controller.topic_names import check_name
from krust.controller.topic_plans import MAX_PARTITIONS
from krust.errors import Code, ServerError
from krust.metadata.contents import NO_ID, Endpoint
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from krust.controller.state import (
        ConfigEntity,
        ControllerState,
        Decision,
        Request,
        Transactions,
    )
    from krust.messages.leader_and_isr import (
        LeaderAndIsrPartitionError,
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        LeaderAndIsrResponse,
        LeaderAndIsrTopicError,
        UngroupedPartitionError,
    )
    from krust.messages.stop_replica import (
        StopReplicaPartitionError,
        StopReplicaRequest,
        StopReplicaResponse,
    )
    from krust.messages.update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataEndpoint,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataResponse,
    )
    from krust.metadata.store import MultiResult

    _ControlRequest = (
        Request[LeaderAndIsrRequest] | Request[UpdateMetadataRequest] | Request[StopReplicaRequest]
    )

FULL = 2
"""the type of a request that names all topics"""
DELETED_LEADER = -2
"""the leader, and the leader epoch, of a topic that is being deleted"""
NO_EPOCH = -1
UNKNOWN_PARTITION = Partition((), -1, -1, (), -1)
"""a partition whose state this broker does not know"""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""by their numbers"""


class _NamedTopic(NamedTuple):
    """The name and id of a topic in a control request."""

    name: str
    id: str
    """NO_ID: the request has none"""


def leader_and_isr(
    state: ControllerState, request: Request[LeaderAndIsrRequest]
) -> Decision[LeaderAndIsrResponse]:
    """LeaderAndIsr: note which partitions this broker leads and follows."""
    message = request.message
    entities = yield from _new_topic_settings(state, request)
    code = Code.REQUEST_TIMED_OUT if entities is None else _fencing_code(state, request)
    if code is not Code.NONE or entities is None:
        return {"error_code": code, "partition_errors": [], "topics": []}
    _accept_controller(state, request)
    full = message.get("type", 0) == FULL
    errors: list[UngroupedPartitionError] = []
    by_id: dict[str, list[LeaderAndIsrPartitionError]] = {}
    named: set[tuple[str, int]] = set()
    pace = Pace()
    for name, topic_id, partitions in _topics(message):
        taken: dict[int, Partition] = {}
        for partition_state in partitions:
            number = partition_state["partition_index"]
            code = _apply_leader_and_isr(
                state, _NamedTopic(name, topic_id), partition_state, taken, full=full
            )
            named.add((name, number))
            errors.append({"topic_name": name, "partition_index": number, "error_code": code})
            by_id.setdefault(topic_id or NO_TOPIC_ID, []).append(
                {"partition_index": number, "error_code": code}
            )
            if pace.add(BATCHED):
                _put_partitions(state, _NamedTopic(name, topic_id), taken, entities)
                taken = {}
                yield PAUSE
                if (code := _fencing_code(state, request)) is not Code.NONE:
                    return {"error_code": code, "partition_errors": [], "topics": []}
        _put_partitions(state, _NamedTopic(name, topic_id), taken, entities)
    state.logs_on_disk -= named
    if full:
        _keep_only(state, named)
    topics: list[LeaderAndIsrTopicError] = [
        {"topic_id": each, "partition_errors": by_id[each]} for each in by_id
    ]
    return {"error_code": Code.NONE, "partition_errors": errors, "topics": topics}


def update_metadata(
    state: ControllerState, request: Request[UpdateMetadataRequest]
) -> Decision[UpdateMetadataResponse]:
    """UpdateMetadata: note the live brokers, and the leaders of all partitions."""
    message = request.message
    entities = yield from _new_topic_settings(state, request)
    code = Code.REQUEST_TIMED_OUT if entities is None else _fencing_code(state, request)
    if code is not Code.NONE or entities is None:
        return {"error_code": code}
    _accept_controller(state, request)
    _live_brokers(state, message)
    named = set()
    pace = Pace()
    for name, topic_id, partitions in _topics(message):
        named.add(name)
        if pace.add(BATCHED * len(partitions)):
            yield PAUSE
            if (code := _fencing_code(state, request)) is not Code.NONE:
                return {"error_code": code}
        if partitions and all(each["leader"] == DELETED_LEADER for each in partitions):
            if name in state.topics and _is_same_topic(state.topics[name].id, topic_id):
                state.drop(name)
            continue
        _apply_metadata(state, _NamedTopic(name, topic_id), partitions, entities)
    if message.get("type", 0) == FULL:
        for name in state.topics.keys() - named:
            _drop_topic(state, name)
    return {"error_code": Code.NONE}


def stop_replica(
    state: ControllerState, request: Request[StopReplicaRequest]
) -> Decision[StopReplicaResponse]:
    """StopReplica: give up replicas that the controller took from this broker."""
    yield from ()
    message = request.message
    code = _fencing_code(state, request)
    if code is not Code.NONE:
        return {"error_code": code, "partition_errors": []}
    _accept_controller(state, request)
    errors: list[StopReplicaPartitionError] = []
    for name, number, epoch, deletes in _stopped_replicas(message):
        code = _stop_replica(state, (name, number), epoch, deletes=deletes)
        errors.append({"topic_name": name, "partition_index": number, "error_code": code})
    return {"error_code": Code.NONE, "partition_errors": errors}


# -- the sender


def _fencing_code(state: ControllerState, request: _ControlRequest) -> Code:
    """NONE, or why the request is refused."""
    message = request.message
    if message["controller_epoch"] < state.controller_epoch:
        return Code.STALE_CONTROLLER_EPOCH
    if state.is_controller and message["controller_epoch"] == state.controller_epoch:
        return Code.STALE_CONTROLLER_EPOCH
    epoch = message.get("broker_epoch", NO_EPOCH)
    if epoch != NO_EPOCH and epoch < state.broker_epoch:
        return Code.STALE_BROKER_EPOCH
    term, connection = state.last_control_connection
    if message["controller_epoch"] == term and request.client.get("connection", 0) < connection:
        return Code.REQUEST_TIMED_OUT
    return Code.NONE


def _accept_controller(state: ControllerState, request: _ControlRequest) -> None:
    """Note the controller that sent this. If this broker was the controller, it resigns."""
    epoch = request.message["controller_epoch"]
    state.set_controller(request.message["controller_id"], epoch)
    state.last_control_connection = epoch, request.client.get("connection", 0)


def _live_brokers(state: ControllerState, message: UpdateMetadataRequest) -> None:
    """The live brokers that an UpdateMetadata names."""
    listed: dict[int, LiveBroker] = {}
    for each in message["live_brokers"]:
        if each["id"] >= 0:
            listed[each["id"]] = LiveBroker(NO_EPOCH, each.get("rack"), tuple(_endpoints(each)))
    for number, live in listed.items():
        known = state.brokers.get(number)
        if known is None or known._replace(epoch=NO_EPOCH) != live:
            state.add_broker(number, live)
    for number in state.brokers.keys() - listed.keys():
        state.remove_broker(number)
    state.knows_topics = True


def _endpoints(broker: UpdateMetadataBroker) -> Iterator[Endpoint]:
    """The endpoints of a broker, without those that have no valid address."""
    host, port = broker.get("v0_host", ""), broker.get("v0_port", 0)
    old: UpdateMetadataEndpoint = {"host": host, "port": port, "security_protocol": 0}
    for each in broker.get("endpoints") or [old]:
        kind = each["security_protocol"]
        if each["host"] and 0 < each["port"] < 65536 and 0 <= kind < len(PROTOCOLS):
            name = each.get("listener") or PROTOCOLS[kind]
            yield Endpoint(name, PROTOCOLS[kind], each["host"], each["port"])


# -- topics


def _new_topic_settings(
    state: ControllerState, request: Request[LeaderAndIsrRequest] | Request[UpdateMetadataRequest]
) -> Generator[Transactions, list[MultiResult], dict[str, ConfigEntity] | None]:
    """Read the settings of topics that are new to this broker. None: the store is not available."""
    new = []
    for name, topic_id, partitions in _topics(request.message):
        known = state.topics.get(name)
        going = all(each["leader"] == DELETED_LEADER for each in partitions)
        if (
            (known is None or not _is_same_topic(known.id, topic_id))
            and _is_legal_name(name)
            and not going
        ):
            new.append(name)
    if _fencing_code(state, request) is not Code.NONE:
        return {}
    try:
        return (yield from settings_of(state, list(dict.fromkeys(new))))
    except ServerError:
        return None


@overload
def _topics(
    message: LeaderAndIsrRequest,
) -> Iterator[tuple[str, str, Sequence[LeaderAndIsrPartitionState]]]: ...


@overload
def _topics(
    message: UpdateMetadataRequest,
) -> Iterator[tuple[str, str, Sequence[UpdateMetadataPartitionState]]]: ...


def _topics(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, id (NO_ID: unknown) and partitions, in the form of any version."""
    for each in message.get("topic_states") or ():
        topic_id = each.get("topic_id", NO_TOPIC_ID)
        found = NO_ID if topic_id == NO_TOPIC_ID else topic_id
        yield each["topic_name"], found, each["partition_states"]
    loose: dict[str, list[Any]] = {}
    for each in message.get("ungrouped_partition_states") or ():
        loose.setdefault(each["topic_name"], []).append(each)
    for name, partitions in loose.items():
        yield name, NO_ID, partitions


def _is_same_topic(known: str, named: str) -> bool:
    """Whether two ids may be of one topic: one of them may be unknown, from before topic ids."""
    return NO_ID in (known, named) or known == named


def _is_legal_name(name: str) -> bool:
    try:
        check_name(name)
    except RefusedError:
        return False
    return True


def _partition(
    partition_state: LeaderAndIsrPartitionState | UpdateMetadataPartitionState, version: int
) -> Partition:
    return Partition(
        tuple(partition_state["replicas"]),
        partition_state["leader"],
        partition_state["leader_epoch"],
        tuple(partition_state["isr"]),
        version,
    )


def _apply_leader_and_isr(
    state: ControllerState,
    named: _NamedTopic,
    partition_state: LeaderAndIsrPartitionState,
    taken: dict[int, Partition],
    *,
    full: bool,
) -> Code:
    """Take one partition of a LeaderAndIsr into `taken`, the partitions of its topic.

    full  whether the request is FULL
    """
    name, topic_id = named
    number = partition_state["partition_index"]
    if not _is_legal_name(name):
        return Code.INVALID_TOPIC_EXCEPTION
    if not 0 <= number < MAX_PARTITIONS:
        return Code.INVALID_REQUEST
    if state.node_id not in partition_state["replicas"]:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    topic = state.topics.get(name)
    if topic is not None and not _is_same_topic(topic.id, topic_id):
        if not full:
            return Code.INCONSISTENT_TOPIC_ID
        _drop_topic(state, name)
        topic = None
    new = _partition(partition_state, partition_state["partition_epoch"])._replace(
        adding=tuple(partition_state.get("adding_replicas", ())),
        removing=tuple(partition_state.get("removing_replicas", ())),
    )
    known = taken.get(number) or _known_partition(topic, number)
    if new.leader_epoch < known.leader_epoch:
        return Code.STALE_CONTROLLER_EPOCH
    if _age(new) >= _age(known):
        taken[number] = new
    is_lost = state.node_id in state.offline.brokers_of((name, number))
    return Code.KAFKA_STORAGE_ERROR if is_lost else Code.NONE


def _apply_metadata(
    state: ControllerState,
    named: _NamedTopic,
    partitions: Sequence[UpdateMetadataPartitionState],
    entities: dict[str, ConfigEntity],
) -> None:
    """Take one topic of an UpdateMetadata: its name and id, its partitions."""
    name, topic_id = named
    if not _is_legal_name(name):
        state.fault(name, "no name of a topic, in an UpdateMetadata")
        return
    topic = state.topics.get(name)
    if topic is not None and not _is_same_topic(topic.id, topic_id):
        _drop_topic(state, name)
        topic = None
    taken = {}
    for partition_state in partitions:
        number = partition_state["partition_index"]
        if not 0 <= number < MAX_PARTITIONS:
            state.fault(f"{name}-{number}", "no number of a partition, in an UpdateMetadata")
            continue
        known = _known_partition(topic, number)
        new = _partition(partition_state, partition_state["zk_version"])
        new = new._replace(adding=known.adding, removing=known.removing)
        if new.leader == DELETED_LEADER:
            new = new._replace(leader=-1)
        if _age(new) >= _age(known):
            taken[number] = new
            _mark_stray(state, (name, number), known, new)
    _put_partitions(state, named, taken, entities)


def _known_partition(topic: Topic | None, number: int) -> Partition:
    known = topic is not None and number < len(topic.partitions)
    return topic.partitions[number] if topic is not None and known else UNKNOWN_PARTITION


def _age(partition: Partition) -> tuple[int, int]:
    return partition.leader_epoch, partition.version


def _put_partitions(
    state: ControllerState,
    named: _NamedTopic,
    taken: dict[int, Partition],
    entities: dict[str, ConfigEntity],
) -> None:
    """Put these partitions of a topic, by number, into the state; the others stay."""
    if not taken:
        return
    name, topic_id = named
    topic = state.topics.get(name)
    before = topic.partitions if topic is not None else ()
    partitions = [*before, *[UNKNOWN_PARTITION] * (max(taken) + 1 - len(before))]
    for number, each in taken.items():
        partitions[number] = each
    if topic is not None:
        new = topic._replace(id=topic.id or topic_id, partitions=tuple(partitions))
        if new != topic:
            state.put(new)
        return
    entity = entities.get(name)
    config = entity.config if entity is not None else {}
    version = max(entity.version, 0) if entity is not None else 0
    state.put(Topic(name, topic_id, tuple(partitions), config, 0, version))


# -- replicas that are no longer here


def _mark_stray(
    state: ControllerState, name: tuple[str, int], known: Partition, new: Partition
) -> None:
    """Mark a replica that this broker lost without a StopReplica as stray: its files are kept."""
    if state.node_id in known.replicas and state.node_id not in new.replicas:
        state.changes.strays.add(name)


def _drop_topic(state: ControllerState, name: str) -> None:
    """Remove a topic that no longer exists. No request said that it was deleted."""
    for number, known in enumerate(state.topics[name].partitions):
        _mark_stray(state, (name, number), known, UNKNOWN_PARTITION)
    state.drop(name)


def _keep_only(state: ControllerState, named: set[tuple[str, int]]) -> None:
    """Mark as stray every replica of this broker that is not in `named`."""
    state.changes.strays |= state.logs_on_disk
    state.logs_on_disk = set()
    for topic in list(state.topics.values()):
        partitions = list(topic.partitions)
        for number, known in enumerate(partitions):
            if state.node_id in known.replicas and (topic.name, number) not in named:
                partitions[number] = _without_own_replica(state, known)
                state.changes.strays.add((topic.name, number))
        if tuple(partitions) != topic.partitions:
            state.put(topic._replace(partitions=tuple(partitions)))


def _without_own_replica(state: ControllerState, partition: Partition) -> Partition:
    """The partition without this broker's replica."""
    replicas = tuple(each for each in partition.replicas if each != state.node_id)
    isr = tuple(each for each in partition.isr if each != state.node_id)
    leader = -1 if partition.leader == state.node_id else partition.leader
    return partition._replace(replicas=replicas, isr=isr, leader=leader)


def _stopped_replicas(message: StopReplicaRequest) -> Iterator[tuple[str, int, int, bool]]:
    """Topic, partition, leader epoch, and whether its files are deleted; from any version."""
    for each in message.get("topic_states") or ():
        for one in each["partition_states"]:
            deletes = one["delete_partition"]
            yield each["topic_name"], one["partition_index"], one["leader_epoch"], deletes
    deletes = message.get("delete_partitions", False)
    for replica in message.get("ungrouped_partitions") or ():
        yield replica["topic_name"], replica["partition_index"], NO_EPOCH, deletes
    for topic in message.get("topics") or ():
        for number in topic["partition_indexes"]:
            yield topic["name"], number, NO_EPOCH, deletes


def _stop_replica(
    state: ControllerState, name: tuple[str, int], epoch: int, *, deletes: bool
) -> Code:
    """Stop one replica. Nothing happens if this broker does not have it."""
    topic, number = state.topics.get(name[0]), name[1]
    if topic is None and deletes and name in state.logs_on_disk:
        state.logs_on_disk.discard(name)
        state.changes.topics.setdefault(name[0], None)
    if topic is None or not 0 <= number < len(topic.partitions):
        return Code.NONE
    known = topic.partitions[number]
    if epoch not in (DELETED_LEADER, NO_EPOCH) and epoch < known.leader_epoch:
        return Code.FENCED_LEADER_EPOCH
    new = known
    if deletes:
        new = _without_own_replica(state, known)
        state.changes.strays.discard(name)
    elif known.leader == state.node_id:
        new = known._replace(leader=-1)
    if new != known:
        partitions = [*topic.partitions[:number], new, *topic.partitions[number + 1 :]]
        state.put(topic._replace(partitions=tuple(partitions)))
    return Code.NONE
