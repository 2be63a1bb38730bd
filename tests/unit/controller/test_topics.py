"""Creating, growing and deleting topics: Kafka's error codes, and the tree afterwards."""

from typing import Any

import pytest

from krust.controller.state import NO_TOPIC_ID
from krust.controller.topic_plans import MAX_PARTITIONS
from tests.unit.controller.runtime import Runtime


def wanted(name: str, **more: Any) -> dict[str, Any]:
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"name": name, **fields, **more}


def create(runtime: Runtime, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    message = {"topics": list(topics), "validate_only": validate_only}
    results = runtime.ask("CreateTopics", message)["topics"]
    assert isinstance(results, list)
    return results


def test_a_topic_is_created_with_the_brokers_defaults() -> None:
    runtime = Runtime({"num.partitions": 4})
    (result,) = create(runtime, wanted("a", num_partitions=-1, replication_factor=-1))
    assert result["error_code"] == 0
    assert (result["num_partitions"], result["replication_factor"]) == (4, 1)
    assert result["topic_id"] == runtime.state.topics["a"].id
    assert runtime.applied == ["a"]
    assert {each["name"] for each in result["configs"]} >= {"retention.ms", "cleanup.policy"}


def test_a_topic_has_at_most_the_maximum_of_partitions() -> None:
    runtime = Runtime()
    most = [wanted("a", num_partitions=MAX_PARTITIONS + more) for more in (0, 1)]
    codes = [create(runtime, each, validate_only=True)[0]["error_code"] for each in most]
    assert codes == [0, 37]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted(""), 17),
        (wanted("."), 17),
        (wanted("a/b"), 17),
        (wanted("ä"), 17),
        (wanted("a\n"), 17),
        (wanted("a" * 250), 17),
        (wanted("there"), 36),
        (wanted("with.dot"), 17),
        (wanted("x", num_partitions=0), 37),
        (wanted("x", num_partitions=-2), 37),
        (wanted("x", num_partitions=2**31 - 1), 37),
        (wanted("x", replication_factor=0), 38),
        (wanted("x", replication_factor=2), 38),
        (wanted("x", configs=[{"name": "no.such", "value": "1"}]), 40),
        (wanted("x", configs=[{"name": "retention.ms", "value": "soon"}]), 40),
        (wanted("x", configs=[{"name": "retention.ms", "value": None}]), 40),
        (wanted("x", configs=[{"name": "remote.storage.enable", "value": "true"}]), 40),
        (wanted("x", assignments=[{"partition_index": 0, "broker_ids": [0]}]), 42),
    ],
)
def test_an_invalid_topic_is_refused(topic: dict[str, Any], code: int) -> None:
    runtime = Runtime()
    create(runtime, wanted("there"), wanted("with_dot"))
    before = runtime.nodes()
    (result,) = create(runtime, topic)
    assert result["error_code"] == code
    assert result["error_message"]
    assert result["num_partitions"] == -1
    assert runtime.nodes() == before


@pytest.mark.parametrize(
    ("assignment", "code"),
    [
        ([(0, [0]), (1, [0])], 0),
        ([(1, [0])], 39),
        ([(0, [7])], 39),
        ([(0, [0, 0])], 39),
        ([(0, [])], 39),
    ],
)
def test_assignments_are_checked(assignment: list[tuple[int, list[int]]], code: int) -> None:
    given = [{"partition_index": index, "broker_ids": ids} for index, ids in assignment]
    topic = wanted("x", num_partitions=-1, replication_factor=-1, assignments=given)
    (result,) = create(Runtime(), topic)
    assert result["error_code"] == code


def test_validate_only_changes_nothing() -> None:
    runtime = Runtime()
    before = runtime.nodes()
    (good, bad) = create(runtime, wanted("a"), wanted("b", num_partitions=0), validate_only=True)
    assert (good["error_code"], bad["error_code"]) == (0, 37)
    assert runtime.nodes() == before
    assert not runtime.state.topics


def test_a_topic_named_twice_is_refused_once() -> None:
    runtime = Runtime()
    results = create(runtime, wanted("a"), wanted("b"), wanted("a"))
    assert [(each["name"], each["error_code"]) for each in results] == [("a", 42), ("b", 0)]


def test_one_bad_topic_does_not_stop_the_others() -> None:
    runtime = Runtime()
    results = create(runtime, wanted("a"), wanted("!"), wanted("c"))
    assert [each["error_code"] for each in results] == [0, 17, 0]
    assert set(runtime.state.topics) == {"a", "c"}


def test_kafkas_own_topics_get_kafkas_own_settings() -> None:
    runtime = Runtime()
    create(runtime, wanted("__consumer_offsets"))
    assert runtime.state.topics["__consumer_offsets"].config["cleanup.policy"] == "compact"


def test_a_deleted_topic_leaves_no_node() -> None:
    runtime = Runtime()
    before = runtime.nodes()
    runtime.create("a", 3)
    (result,) = runtime.ask("DeleteTopics", {"topic_names": ["a"]}, 5)["responses"]
    assert result["error_code"] == 0
    assert runtime.nodes() == before
    assert runtime.create("a")["error_code"] == 0


def test_topics_are_deleted_by_id() -> None:
    runtime = Runtime()
    topic_id = runtime.create("a")["topic_id"]
    asked = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": "x" * 22}]
    asked += [{"name": "nowhere", "topic_id": NO_TOPIC_ID}, {"name": "a", "topic_id": topic_id}]
    results = runtime.ask("DeleteTopics", {"topics": asked}, 6)["responses"]
    assert [each["error_code"] for each in results] == [0, 100, 3, 42]
    assert results[0]["name"] == "a"


def test_deletion_can_be_switched_off() -> None:
    runtime = Runtime({"delete.topic.enable": False})
    runtime.create("a")
    (new,) = runtime.ask("DeleteTopics", {"topic_names": ["a"]}, 3)["responses"]
    (old,) = runtime.ask("DeleteTopics", {"topic_names": ["a"]}, 2)["responses"]
    assert (new["error_code"], old["error_code"]) == (73, 42)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("a", 3, None, 0),
        ("a", 3, [{"broker_ids": [0]}], 0),
        ("a", 2, None, 37),
        ("a", 1, None, 37),
        ("a", 10**9, None, 37),
        ("a", 4, [{"broker_ids": [0]}], 39),
        ("a", 3, [{"broker_ids": [5]}], 39),
        ("nowhere", 3, None, 3),
    ],
)
def test_partitions_only_grow(name: str, count: int, assignments: Any, code: int) -> None:
    runtime = Runtime()
    runtime.create("a", 2)
    asked = {"name": name, "count": count, "assignments": assignments}
    trial = {"topics": [asked], "validate_only": True}
    (result,) = runtime.ask("CreatePartitions", trial)["results"]
    assert result["error_code"] == code
    assert len(runtime.state.topics["a"].partitions) == 2
    (result,) = runtime.ask("CreatePartitions", {**trial, "validate_only": False})["results"]
    assert result["error_code"] == code
    assert len(runtime.state.topics["a"].partitions) == (3 if code == 0 else 2)


def test_a_topic_can_grow_twice() -> None:
    runtime = Runtime()
    runtime.create("a")
    for count in (2, 5):
        asked = {"name": "a", "count": count, "assignments": None}
        (result,) = runtime.ask("CreatePartitions", {"topics": [asked]})["results"]
        assert result["error_code"] == 0
    assert "/brokers/topics/a/partitions/4/state" in runtime.nodes()


def test_first_use_creates_a_missing_topic() -> None:
    runtime = Runtime({"num.partitions": 2})
    runtime.create("there")
    answer = runtime.ask("AutoCreate", {"topics": ["there", "new", "new", "bad name"]})
    codes = [(each["name"], each["error_code"]) for each in answer["topics"]]
    assert codes == [("there", 0), ("new", 0), ("bad name", 17)]
    assert len(runtime.state.topics["new"].partitions) == 2


def test_a_deposed_controller_changes_nothing() -> None:
    runtime = Runtime()
    runtime.create("a")
    runtime.state.epoch_version += 1
    assert runtime.create("b")["error_code"] == 41
    (result,) = runtime.ask("DeleteTopics", {"topic_names": ["a"]}, 5)["responses"]
    assert result["error_code"] == 41
    assert set(runtime.state.topics) == {"a"}


def test_the_topic_of_groups_follows_its_own_settings() -> None:
    runtime = Runtime({"offsets.topic.num.partitions": 7, "offsets.topic.segment.bytes": 1 << 20})
    answer = runtime.ask("AutoCreate", {"topics": ["__consumer_offsets"]})
    assert answer["topics"] == [{"name": "__consumer_offsets", "error_code": 0}]
    topic = runtime.state.topics["__consumer_offsets"]
    assert [each.replicas for each in topic.partitions] == [(0,)] * 7
    assert topic.config["cleanup.policy"] == "compact"
    assert topic.config["segment.bytes"] == str(1 << 20)
