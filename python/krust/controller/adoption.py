"""Adoption of log directories at a start: the controller adds their topics and chooses leaders.

A directory that another broker wrote (usually Apache Kafka's) holds topics that the tree does not
know. The controller adds them with the id in their `partition.metadata` (a new id if there is none)
and with as many partitions as there are directories. Nobody knows their settings. So they get
`retention.ms=-1`, `retention.bytes=-1`, `cleanup.policy=delete`: no record is deleted until
somebody changes them. Kafka's internal topics get the settings that Kafka gives them.

This broker then leads every partition whose only replica it has. The leader epoch is at least the
newest on disk: max(tree, disk) after a clean stop, one more after an unclean stop or if the tree
did not know the partition. With a lower epoch Kafka would truncate the log if it took the directory
back.
A partition without a state (its creation was interrupted) gets one here. A topic whose znode cannot
be read is left unchanged, in the tree and on disk.
Kafka creates all directories of a topic at once, krust each one at its first write. If numbers are
missing, Kafka's internal topics get as many partitions as the settings say, because a group's
partition depends on that number. For other topics the highest number is the last partition.
Not promised: the records of a missing partition. It is created empty.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from krust.controller.entities import Partition, Topic
from krust.controller.state import INTERNAL, NO_TOPIC_ID, ControllerState, chunks, write_all
from krust.errors import ServerError
from krust.metadata import znodes
from krust.metadata.contents import ASSUMED
from krust.metadata.store import Create
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from krust.controller.state import Steps, Transactions
    from krust.metadata.store import MultiResult, Operation

NOTHING_DELETED = ASSUMED
"""Settings of a topic under which no record is deleted."""
_LISTED = 100
"""topics or partitions that the log lists by name"""


class LogOnDisk(NamedTuple):
    """A partition's directory, as the core found it at the start."""

    topic: str
    partition: int
    topic_id: str
    """NO_TOPIC_ID: it has none"""
    leader_epoch: int
    """the last one in the log; -1: none"""
    clean: bool
    """whether the broker that wrote it stopped cleanly"""


def adopt_at_start(state: ControllerState, on_disk: Sequence[LogOnDisk]) -> Steps:
    """Compare the tree with the logs on disk.

    The controller adds the topics that only the disk knows, if the tree is new or belongs to this
    broker alone. A broker that is not the controller only remembers which logs it has.
    """
    if state.is_controller:
        unknown_too = not state.shared or state.is_new_cluster
        yield from adopt(state, on_disk, unknown_too=unknown_too)
    else:
        state.logs_on_disk = {(each.topic, each.partition) for each in on_disk}


def adopt(
    state: ControllerState, on_disk: Iterable[LogOnDisk], *, unknown_too: bool = True
) -> Generator[Transactions, list[MultiResult], None]:
    """Add unknown topics to the tree, then lead the partitions whose only replica is here.

    unknown_too  False: topics on disk that the tree does not know were deleted while this broker
                 was stopped, so they are not served
    """
    by_topic: dict[str, list[LogOnDisk]] = {}
    for each in on_disk:
        by_topic.setdefault(each.topic, []).append(each)
    adopted = []
    for name, parts in sorted(by_topic.items()):
        topic = state.topics.get(name)
        if name in state.damaged:
            continue
        if topic is None and not unknown_too:
            state.fault(znodes.topic(name), "it is gone, and its files are not served; they stay")
            continue
        if topic is None:
            adopted.append(_topic_on_disk(state, name, parts))
            continue
        other = {each.topic_id for each in parts} - {NO_TOPIC_ID, topic.id}
        if other:
            raise ServerError(
                f"topic {name} has id {topic.id} here, but {other.pop()} on disk",
                hint=f"move the directories {name}-* away, or the metadata that knows it otherwise",
            )
    if adopted:
        from krust.controller import topics

        done = yield from write_all(
            [topics.creation_transactions(state, topic) for topic in adopted]
        )
        for topic, refused in zip(adopted, done, strict=True):
            if refused is not None:
                raise ServerError(
                    f"topic {topic.name} cannot be taken over: {refused.value}",
                    hint="look at the metadata store",
                )
            state.put(topic)
        _log_adopted(state, adopted, by_topic)
    disk = {(each.topic, each.partition): each for each in on_disk}
    yield from lead_local_partitions(state, disk, {topic.name for topic in adopted})


def lead_local_partitions(
    state: ControllerState,
    disk: Mapping[tuple[str, int], LogOnDisk],
    except_topics: Collection[str] = (),
) -> Generator[Transactions, list[MultiResult], None]:
    """Make this broker the leader of every partition whose only replica it has.

    disk   the logs that were found, by topic and partition
    except_topics  topics that need no look
    """
    bare: list[Operation] = []
    raised = []
    for topic in list(state.topics.values()):
        if topic.name in except_topics:
            continue
        led, operations = _with_own_leader(state, topic, disk)
        if operations:
            raised.append((led, chunks(state.fence(), operations)))
        missing = [each.path for each in operations if isinstance(each, Create)]
        if missing:
            bare.append(Create(f"{znodes.topic(topic.name)}/partitions"))
            bare += [Create(path.removesuffix("/state")) for path in missing]
    if bare:
        yield [[state.fence(), each] for each in bare]
    done = yield from write_all([transactions for _, transactions in raised])
    for (led, _), refused in zip(raised, done, strict=True):
        if refused is not None:
            raise ServerError(
                f"the leaders of {led.name} cannot be written: {refused.value}",
                hint="look at the metadata store",
            )
        state.put(led)


def _topic_on_disk(state: ControllerState, name: str, parts: list[LogOnDisk]) -> Topic:
    """Plan the topic that these directories belong to."""
    from krust.controller import internal_topics

    ids = {each.topic_id for each in parts} - {NO_TOPIC_ID}
    if len(ids) > 1:
        raise ServerError(
            f"the directories of topic {name} belong to {len(ids)} topics of that name",
            hint="keep those with one topic_id in partition.metadata, and move the others away",
        )
    topic_id = ids.pop() if ids else state.new_id()
    epochs = {each.partition: each.leader_epoch + 1 for each in parts}
    own = (state.node_id,)
    count = max(epochs) + 1
    if name in INTERNAL and len(epochs) < count:
        count = max(count, internal_topics.partitions(state, name))
    partitions = tuple(
        Partition(own, state.node_id, epochs.get(index, 0), own) for index in range(count)
    )
    config = internal_topics.config(state, name) if name in INTERNAL else dict(NOTHING_DELETED)
    return Topic(name, topic_id, partitions, config)


def _log_adopted(
    state: ControllerState, adopted: Sequence[Topic], found: Mapping[str, Sequence[LogOnDisk]]
) -> None:
    """Log which topics were adopted, and what their directories do not say about them."""
    for topic in adopted[:_LISTED]:
        there = {each.partition for each in found[topic.name]}
        lacking = [index for index in range(len(topic.partitions)) if index not in there]
        empty = f"; without a directory, and empty now: {_listed(lacking)}" if lacking else ""
        text = f"took over topic {topic.name}: {_with_count(len(there), 'partition')}{empty}"
        state.changes.lines.append((logging.INFO, text))
    if len(adopted) > _LISTED:
        state.warn(f"took over {len(adopted) - _LISTED} topics more, which are not listed")
    partitions = sum(len(topic.partitions) for topic in adopted)
    assumed = ", ".join(f"{name}={value}" for name, value in NOTHING_DELETED.items())
    taken = f"{_with_count(len(adopted), 'topic')} with {_with_count(partitions, 'partition')}"
    state.warn(
        f"took over {taken} that the metadata did not know. Directories do not tell topics' "
        f"settings (assumed {assumed}: nothing is deleted), partitions without a directory, and "
        "quotas (there are none). Where a ZooKeeper has them: stop this broker, then `krust "
        "cluster import`"
    )


def _with_count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _listed(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:_LISTED]))
    return shown if len(partitions) <= _LISTED else f"{shown} and {len(partitions) - _LISTED} more"


def _with_own_leader(
    state: ControllerState, topic: Topic, disk: Mapping[tuple[str, int], LogOnDisk]
) -> tuple[Topic, list[Operation]]:
    """The topic led by this broker where it has the only replica, and the writes for that."""
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
        partitions[index] = partition._replace(
            leader=state.node_id,
            leader_epoch=epoch,
            isr=(state.node_id,),
            version=partition.version + 1,
            elr=(),
            lossy=(),
        )
        operations.append(state.write_of(topic.name, index, partitions[index]))
    return topic._replace(partitions=tuple(partitions)), operations
