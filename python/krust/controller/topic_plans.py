"""Plans of topics: checks and completes the topics of CreateTopics and CreatePartitions.

A plan is a topic as it will be: name, id, settings, and partitions with their leaders. Planning
reads the state; it changes only which broker gets the next partition (`placement.py`).
RefusedError, with Kafka's code and text: the topic is not possible.
Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.config import parse_topic
from krust.controller import config_checks, internal_topics
from krust.controller.entities import Topic
from krust.controller.leaders import new_partitions
from krust.controller.state import INTERNAL, ControllerState, RefusedError, flattened
from krust.controller.topic_names import check_name
from krust.errors import Code, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.messages.create_partitions import CreatePartitionsTopic
    from krust.messages.create_topics import CreatableTopic, CreatableTopicConfig

MAX_PARTITIONS = 100_000
"""of one topic: a slip of the finger must not fill the disk with directories"""


def with_defaults(name: str) -> CreatableTopic:
    """A CreatableTopic that leaves the numbers of partitions and replicas to the controller."""
    return {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [],
        "configs": [],
    }


def with_own_numbers(state: ControllerState, name: str) -> CreatableTopic:
    """A CreatableTopic as a broker asks the controller for it.

    In a ZooKeeper cluster it has the numbers of this broker's settings, as Kafka's brokers send it,
    because a Kafka that is the controller has no defaults for internal topics.
    """
    wanted = with_defaults(name)
    if not state.config.text("zookeeper.connect"):
        return wanted
    wanted["num_partitions"] = internal_topics.partitions(state, name)
    wanted["replication_factor"] = internal_topics.replicas(state, name)
    if name in INTERNAL:
        config = internal_topics.config(state, name)
        wanted["configs"] = [{"name": key, "value": value} for key, value in config.items()]
    return wanted


def plan_topic(state: ControllerState, wanted: CreatableTopic) -> Topic:
    """Plan the topic that a CreatableTopic asks for. RefusedError: it is not possible."""
    name: str = wanted["name"]
    check_name(name)
    if name in state.topics:
        raise RefusedError(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name in state.deletions:
        raise RefusedError(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    same = state.flat.get(flattened(name))
    if same is not None:
        raise RefusedError(
            Code.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {same}",
        )
    config = _topic_settings(state, wanted.get("configs") or [])
    if name in INTERNAL:
        config = internal_topics.config(state, name) | config
    replicas = _assignment(state, wanted)
    partitions = new_partitions(state.brokers.keys(), replicas, state.leaving)
    return Topic(name, state.new_id(), partitions, config)


def plan_growth(state: ControllerState, wanted: CreatePartitionsTopic) -> tuple[Topic, Topic]:
    """Plan new partitions. Returns the topic as it is, and with its new partitions."""
    topic = state.topics.get(wanted["name"])
    if topic is None:
        raise RefusedError(
            Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted['name']}' does not exist."
        )
    now, count = len(topic.partitions), wanted["count"]
    if count == now:
        raise RefusedError(Code.INVALID_PARTITIONS, f"Topic already has {now} partitions.")
    if count < now:
        raise RefusedError(
            Code.INVALID_PARTITIONS,
            f"Topic currently has {now} partitions, which is higher than the requested {count}.",
        )
    if count > MAX_PARTITIONS:
        raise RefusedError(Code.INVALID_PARTITIONS, f"a topic has at most {MAX_PARTITIONS}")
    given = wanted.get("assignments")
    factor = len(topic.partitions[0].target)
    if given is None:
        added = _place(state, count - now, factor)
    else:
        added = [each["broker_ids"] for each in given]
        if len(added) != count - now:
            raise RefusedError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {count - now} "
                f"but {len(added)} assignments provided.",
            )
        _check_assignment(state, added, factor)
    new = new_partitions(state.brokers.keys(), added, state.leaving)
    return topic, topic._replace(partitions=topic.partitions + new, version=topic.version + 1)


def _assignment(state: ControllerState, wanted: CreatableTopic) -> list[Sequence[int]]:
    """The replicas of each partition: as the request says, or spread over the brokers."""
    count, factor = wanted["num_partitions"], wanted["replication_factor"]
    given = wanted.get("assignments") or []
    if given:
        if count != -1 or factor != -1:
            raise RefusedError(
                Code.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        by_index = {each["partition_index"]: each["broker_ids"] for each in given}
        if sorted(by_index) != list(range(len(given))):
            raise RefusedError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be numbered from 0 without gaps or doubles",
            )
        replicas = [by_index[index] for index in range(len(given))]
        _check_assignment(state, replicas, len(replicas[0]))
        return replicas
    if count == -1:
        count = internal_topics.partitions(state, wanted["name"])
    if factor == -1:
        factor = internal_topics.replicas(state, wanted["name"])
    if count <= 0:
        raise RefusedError(Code.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if count > MAX_PARTITIONS:
        raise RefusedError(Code.INVALID_PARTITIONS, f"a topic has at most {MAX_PARTITIONS}")
    if factor <= 0:
        raise RefusedError(
            Code.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    if factor > len(state.brokers):
        raise RefusedError(
            Code.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(state.brokers)}.",
        )
    return _place(state, count, factor)


def _place(state: ControllerState, count: int, factor: int) -> list[Sequence[int]]:
    """Replicas in turn over the brokers, so that leaders and followers are balanced."""
    if len(state.brokers) == 1:
        return [list(state.brokers)] * count
    from krust.controller import placement

    return placement.place_replicas(state, count, factor)


def _check_assignment(
    state: ControllerState, replicas: Sequence[Sequence[int]], factor: int
) -> None:
    """Refuse an assignment without brokers, with one twice, a dead one, or not `factor` of them."""
    for each in replicas:
        if not each or len(set(each)) < len(each):
            why = f"replicas {list(each)}: none, or one twice"
        elif not set(each) <= state.brokers.keys():
            why = f"brokers {sorted(set(each) - state.brokers.keys())} are not alive"
        elif len(each) != factor:
            why = f"replicas {list(each)}: not {factor} of them, as other partitions have"
        else:
            continue
        raise RefusedError(Code.INVALID_REPLICA_ASSIGNMENT, f"Invalid replica assignment: {why}")


def _topic_settings(
    state: ControllerState, pairs: Sequence[CreatableTopicConfig]
) -> dict[str, str]:
    """The settings of a new topic."""
    empty = [pair["name"] for pair in pairs if pair["value"] is None]
    if empty:
        raise RefusedError(
            Code.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(empty)}"
        )
    config = {pair["name"]: pair["value"] or "" for pair in pairs}
    for name, text in config.items():
        try:
            parse_topic(name, text)
        except ConfigError as error:
            raise RefusedError(Code.INVALID_CONFIG, str(error)) from None
        refused = config_checks.refused_topic_value(state, name, text)
        if refused:
            raise RefusedError(Code.INVALID_CONFIG, refused)
    return config
