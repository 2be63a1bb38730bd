"""Log directories: failures, and moves of replicas between them.

AlterReplicaLogDirs 0-2: which replica of this broker goes to which of its log directories.

Decided here, done by the core: it copies the log while it is written, and swaps. A replica that is
not here is made in the directory named once it comes, and answered REPLICA_NOT_AVAILABLE.
Codes, in this order: INVALID_TOPIC_EXCEPTION (no room for the name of a copy), LOG_DIR_NOT_FOUND,
KAFKA_STORAGE_ERROR (the directory is offline, or the replica; or any other directory, unless the
replica stays where it is: a copy may lie there), UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE.
Source: KIP-113; Kafka 3.9's `ReplicaManager.alterReplicaLogDirs`.
A failed directory is reported to the controller through `/log_dir_event_notification`, where there
is one; asked which replicas that costs (LeaderAndIsr), this broker answers KAFKA_STORAGE_ERROR.
Not done: throttles. Not promised: that the controller learns it while ZooKeeper is away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krust.controller.pace import PAUSE, Pace
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import LogDirEvent
from krust.metadata.store import Create

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from krust.controller.own_requests import LogDirFailedRequest, LogDirFailedResponse
    from krust.controller.state import (
        ControllerState,
        Policy,
        Request,
        Steps,
        Topic,
        Transactions,
    )
    from krust.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )
    from krust.metadata.store import Done

LONGEST_NAME = 255
_SUFFIX = len(".-future") + 32


class LogDir(NamedTuple):
    """A log directory of this broker."""

    path: str
    is_online: bool
    replicas: frozenset[tuple[str, int]]
    """topic and partition of the logs in it, without copies that are on their way"""


class Move(NamedTuple):
    """A replica, and the log directory that it moves to."""

    topic: str
    partition: int
    path: str


class Decided(NamedTuple):
    """The moves to make, and the answer to the request."""

    moves: list[Move]
    answer: AlterReplicaLogDirsResponse


def failed(
    state: ControllerState, request: Request[LogDirFailedRequest]
) -> Policy[LogDirFailedResponse]:
    """LogDirFailed: exactly the named replicas of this broker are lost."""
    lost = [(each["topic"], each["partition"]) for each in request.message["replicas"]]
    state.offline.replace(state.node_id, lost)
    state.unreported_failure = state.shared
    yield from tell(state)
    return {}


def tell(state: ControllerState) -> Steps:
    """Report lost replicas in the tree, unless that is done."""
    if state.unreported_failure:
        path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        event = LogDirEvent(state.node_id).encode()
        (done,) = yield [[Create(path, event, sequential=True)]]
        state.unreported_failure = done.refused is not None


def log_dirs(listed: Iterable[tuple[str, bool, Sequence[tuple[str, int, bool]]]]) -> list[LogDir]:
    """The log directories as the core lists them."""
    return [
        LogDir(path, is_online, frozenset((t, p) for t, p, is_future in replicas if not is_future))
        for path, is_online, replicas in listed
    ]


def alter(
    message: AlterReplicaLogDirsRequest, dirs: Sequence[LogDir], topics: Mapping[str, Topic]
) -> Generator[Transactions, list[Done], Decided]:
    """Decide a whole request.

    dirs      this broker's, in the order of `log.dirs`
    topics    all that the cluster has
    """
    moves: list[Move] = []
    codes: dict[str, dict[int, Code]] = {}
    pace = Pace()
    for asked in message["dirs"]:
        for topic in asked["topics"]:
            if pace.is_over():
                yield PAUSE
            for partition in topic["partitions"]:
                if pace.is_over():
                    yield PAUSE
                move = Move(topic["name"], partition, asked["path"])
                code, is_wanted = _judged(move, dirs, topics)
                codes.setdefault(move.topic, {})[partition] = code
                if is_wanted:
                    moves.append(move)
    results: list[AlterReplicaLogDirTopicResult] = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": index, "error_code": code} for index, code in rows.items()
            ],
        }
        for name, rows in codes.items()
    ]
    return Decided(moves, {"throttle_time_ms": 0, "results": results})


def _judged(move: Move, dirs: Sequence[LogDir], topics: Mapping[str, Topic]) -> tuple[Code, bool]:
    """The code of one replica, and whether the core moves it."""
    if len(f"{move.topic}-{move.partition}") + _SUFFIX > LONGEST_NAME:
        return Code.INVALID_TOPIC_EXCEPTION, False
    to = next((each for each in dirs if each.path == move.path), None)
    if to is None:
        return Code.LOG_DIR_NOT_FOUND, False
    if not to.is_online:
        return Code.KAFKA_STORAGE_ERROR, False
    name = (move.topic, move.partition)
    here = next((each for each in dirs if name in each.replicas), None)
    if here is None:
        topic = topics.get(move.topic)
        is_known = topic is not None and 0 <= move.partition < len(topic.partitions)
        code = Code.REPLICA_NOT_AVAILABLE if is_known else Code.UNKNOWN_TOPIC_OR_PARTITION
        return code, is_known
    others_work = all(each.is_online for each in dirs)
    if not here.is_online or (here is not to and not others_work):
        return Code.KAFKA_STORAGE_ERROR, False
    return Code.NONE, True
