"""What a start finds on disk, set against the tree: topics taken over, leaders taken up.

A directory that another broker wrote (Apache Kafka's above all) holds topics that the tree does
not know. They are entered with the id of their `partition.metadata` (a new one where it has none)
and as many partitions as there are directories. What settings they had is unknown, so they get
`retention.ms=-1`, `retention.bytes=-1`, `cleanup.policy=delete`: nothing of them goes until
somebody says so. Kafka's own topics get Kafka's own settings.

This broker then leads every partition whose only replica it is. Its leader epoch is never below
one the disk has seen: max(tree, disk) where the stop was clean, one more where it was not, or
where the tree did not know the partition; or else a broker that takes the directory back would cut
its log.
Not promised: a gap in the numbers of an adopted topic's partitions is filled with empty ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krust.controller import configs, topics, znodes
from krust.controller.state import INTERNAL, NO_TOPIC_ID, Partition, State, Topic
from krust.errors import ServerError
from krust.metadata.store import SetData

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from krust.controller.state import Asked
    from krust.metadata.store import Done, Operation

KEEP = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""Settings under which nothing goes."""


class Found(NamedTuple):
    """A partition's directory."""

    topic: str
    partition: int
    topic_id: str
    """NO_TOPIC_ID: it has none"""
    leader_epoch: int
    """the last one in the log; -1: none"""
    clean: bool
    """whether whoever wrote it stopped cleanly"""


def take_over(state: State, on_disk: Iterable[Found]) -> Generator[Asked, list[Done], None]:
    """Enter unknown topics, then lead everything that is here."""
    by_topic: dict[str, list[Found]] = {}
    for each in on_disk:
        by_topic.setdefault(each.topic, []).append(each)
    adopted = []
    for name, parts in sorted(by_topic.items()):
        topic = state.topics.get(name)
        if topic is None:
            adopted.append(_adopted(state, name, parts))
            continue
        other = {each.topic_id for each in parts} - {NO_TOPIC_ID, topic.id}
        if other:
            raise ServerError(
                f"topic {name} has id {topic.id} here, but {other.pop()} on disk",
                hint=f"move the directories {name}-* away, or the metadata that knows it otherwise",
            )
    if adopted:
        done = yield [topics.creation(state, topic) for topic in adopted]
        for topic, answer in zip(adopted, done, strict=True):
            if answer.refused is not None:
                raise ServerError(
                    f"topic {topic.name} cannot be taken over: {answer.refused.value}",
                    hint="look at the metadata store",
                )
            state.put(topic)
    disk = {(each.topic, each.partition): each for each in on_disk}
    raised = []
    fresh = {topic.name for topic in adopted}
    for topic in list(state.topics.values()):
        if topic.name not in fresh:
            led, operations = _led(state, topic, disk)
            if operations:
                raised.append((led, operations))
    if raised:
        done = yield [operations for _, operations in raised]
        for (led, _), answer in zip(raised, done, strict=True):
            if answer.refused is not None:
                raise ServerError(
                    f"the leaders of {led.name} cannot be written: {answer.refused.value}",
                    hint="look at the metadata store",
                )
            state.put(led)


def _adopted(state: State, name: str, parts: list[Found]) -> Topic:
    """A topic as its directories show it."""
    ids = {each.topic_id for each in parts} - {NO_TOPIC_ID}
    if len(ids) > 1:
        raise ServerError(
            f"the directories of topic {name} belong to {len(ids)} topics of that name",
            hint="keep those with one topic_id in partition.metadata, and move the others away",
        )
    topic_id = ids.pop() if ids else state.new_id()
    epochs = {each.partition: each.leader_epoch + 1 for each in parts}
    own = (state.node_id,)
    partitions = tuple(
        Partition(own, state.node_id, epochs.get(index, 0), own) for index in range(max(epochs) + 1)
    )
    config = configs.internal_config(state, name) if name in INTERNAL else dict(KEEP)
    return Topic(name, topic_id, partitions, config)


def _led(
    state: State, topic: Topic, disk: dict[tuple[str, int], Found]
) -> tuple[Topic, list[Operation]]:
    """The topic with this broker as leader where it is the only replica, and how to write that."""
    operations: list[Operation] = []
    partitions = list(topic.partitions)
    for index, partition in enumerate(topic.partitions):
        if partition.replicas != (state.node_id,):
            continue
        there = disk.get((topic.name, index))
        epoch = partition.leader_epoch
        if there is not None:
            epoch = max(epoch, there.leader_epoch) + (0 if there.clean else 1)
        if epoch == partition.leader_epoch and partition.leader == state.node_id:
            continue
        epoch = max(epoch, partition.leader_epoch + 1 if partition.version >= 0 else epoch)
        own = (state.node_id,)
        partitions[index] = Partition(own, state.node_id, epoch, own, partition.version + 1)
        data = znodes.state_data(state.controller_epoch, state.node_id, epoch, own)
        operations.append(SetData(znodes.state(topic.name, index), data, partition.version))
    if operations:
        operations.insert(0, state.fence())
    return topic._replace(partitions=tuple(partitions)), operations
