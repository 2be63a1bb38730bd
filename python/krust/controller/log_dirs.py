"""Log directories: failures, and moves of replicas between them.

AlterReplicaLogDirs 0-2: moves replicas of this broker to another of its log directories.

This module decides, and the core moves: it copies the log, which goes on growing, and then swaps
the two. If this broker does not have the replica, the answer is REPLICA_NOT_AVAILABLE; the core
creates the replica in that directory when the broker gets it.
Codes, in this order: INVALID_TOPIC_EXCEPTION (the directory name of a copy would be too long),
LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the directory or the replica is offline; or any other
directory is, unless the replica stays where it is: a copy may lie there),
UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE.
Source: KIP-113; Kafka 3.9's `ReplicaManager.alterReplicaLogDirs`.
A broker that shares its tree reports a failed directory through `/log_dir_event_notification`. The
controller then asks which replicas are lost (LeaderAndIsr), and the broker answers
KAFKA_STORAGE_ERROR for those.
Not done: throttles. Not promised: that the controller learns of a failure while ZooKeeper is away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller.pace import PAUSE, Pace
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.admin_contents import LogDirEvent
from krust.metadata.store import Create
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from krust.controller.entities import Topic
    from krust.controller.own_requests import LogDirFailedRequest, LogDirFailedResponse
    from krust.controller.state import ControllerState, Decision, Request, Steps, Transactions
    from krust.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )
    from krust.metadata.store import MultiResult

LONGEST_NAME = 255
_SUFFIX = len(".-future") + 32


class LogDir(NamedTuple):
    """A log directory of this broker."""

    path: str
    is_online: bool
    replicas: frozenset[tuple[str, int]]
    """topic and partition of the logs in it, without unfinished copies"""


class Move(NamedTuple):
    """A replica, and the log directory that it moves to."""

    topic: str
    partition: int
    path: str


class MoveDecision(NamedTuple):
    """The moves to make, and the answer to the request."""

    moves: list[Move]
    answer: AlterReplicaLogDirsResponse


def note_failed(
    state: ControllerState, request: Request[LogDirFailedRequest]
) -> Decision[LogDirFailedResponse]:
    """LogDirFailed: note that this broker has lost exactly the named replicas."""
    lost = [(each["topic"], each["partition"]) for each in request.message["replicas"]]
    state.offline.replace(state.node_id, lost)
    state.unreported_failure = state.shared
    yield from report_failed(state)
    return {}


def report_failed(state: ControllerState) -> Steps:
    """Report a failed log directory in the tree, unless that was done."""
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
) -> Generator[Transactions, list[MultiResult], MoveDecision]:
    """Decide a whole request.

    dirs      this broker's log directories, in the order of `log.dirs`
    topics    all topics of the cluster
    """
    moves: list[Move] = []
    codes: dict[str, dict[int, Code]] = {}
    pace = Pace()
    for asked in message["dirs"]:
        for topic in asked["topics"]:
            if pace.add():
                yield PAUSE
            for partition in topic["partitions"]:
                if pace.add():
                    yield PAUSE
                move = Move(topic["name"], partition, asked["path"])
                code, is_wanted = _check_move(move, dirs, topics)
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
    return MoveDecision(moves, {"throttle_time_ms": 0, "results": results})


def _check_move(
    move: Move, dirs: Sequence[LogDir], topics: Mapping[str, Topic]
) -> tuple[Code, bool]:
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
