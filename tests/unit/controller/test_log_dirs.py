"""AlterReplicaLogDirs: the code of each replica, and the moves requested from the core."""

from __future__ import annotations

import pytest

from krust.controller.entities import Partition, Topic
from krust.controller.log_dirs import LogDir, Move, alter, log_dirs
from krust.errors import Code
from krust.messages.alter_replica_log_dirs import AlterReplicaLogDir

OWN = Partition((0,), 0, 0, (0,))
TOPICS = {"t": Topic("t", "id", (OWN, OWN, OWN), {})}
ONE = LogDir("/one", True, frozenset({("t", 0)}))
TWO = LogDir("/two", True, frozenset({("t", 1)}))
BROKEN = LogDir("/broken", False, frozenset({("lost", 0)}))


def ask(path: str, topic: str, *partitions: int) -> AlterReplicaLogDir:
    return {"path": path, "topics": [{"name": topic, "partitions": list(partitions)}]}


def codes(dirs: list[LogDir], *asked: AlterReplicaLogDir) -> tuple[list[Move], dict[str, Code]]:
    steps = alter({"dirs": list(asked)}, dirs, TOPICS)
    with pytest.raises(StopIteration) as end:
        next(steps)
    decided = end.value.value
    assert decided.answer["throttle_time_ms"] == 0
    found = {
        f"{topic['topic_name']}-{each['partition_index']}": each["error_code"]
        for topic in decided.answer["results"]
        for each in topic["partitions"]
    }
    return decided.moves, found


def test_a_present_replica_moves_to_another_log_directory() -> None:
    moves, found = codes([ONE, TWO], ask("/two", "t", 0, 1))
    assert moves == [("t", 0, "/two"), ("t", 1, "/two")]
    assert found == {"t-0": Code.NONE, "t-1": Code.NONE}


def test_a_future_topic_is_created_in_its_preferred_directory() -> None:
    moves, found = codes([ONE, TWO], ask("/two", "t", 2))
    assert moves == [("t", 2, "/two")]
    assert found == {"t-2": Code.REPLICA_NOT_AVAILABLE}


def test_unknown_topics_and_directories_have_different_errors() -> None:
    asked = [ask("/nowhere", "t", 0), ask("/one", "no", 0), ask("/one", "t", 9, -1)]
    moves, found = codes([ONE, TWO], *asked, ask("/one", "x" * 249, 0))
    assert moves == []
    assert found.pop(f"{'x' * 249}-0") == Code.INVALID_TOPIC_EXCEPTION
    assert found.pop("t-0") == Code.LOG_DIR_NOT_FOUND
    assert set(found.values()) == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(found) == 3


def test_nothing_moves_while_a_directory_is_offline() -> None:
    asked = [ask("/broken", "t", 0), ask("/one", "lost", 0), ask("/one", "t", 1)]
    moves, found = codes([ONE, TWO, BROKEN], *asked)
    assert moves == []
    assert set(found.values()) == {Code.KAFKA_STORAGE_ERROR}
    assert len(found) == 3


def test_a_move_to_the_present_directory_is_accepted() -> None:
    moves, found = codes([ONE, BROKEN], ask("/one", "t", 0))
    assert (moves, found) == ([("t", 0, "/one")], {"t-0": Code.NONE})


def test_a_future_replica_is_not_a_replica() -> None:
    described = [("/one", True, [("t", 0, False)]), ("/two", True, [("t", 0, True)])]
    assert [each.replicas for each in log_dirs(described)] == [{("t", 0)}, set()]
