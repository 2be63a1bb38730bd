"""Settings over the wire: values, sources, synonyms, and changes of them."""

from typing import Any

import pytest

from krust.settings import BROKER, TOPIC
from tests.unit.controller.shell import Shell

TOPIC_KIND, BROKER_KIND, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def describe(shell: Shell, kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    message = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (result,) = shell.ask("DescribeConfigs", message)["results"]
    assert isinstance(result, dict)
    return result


def entries(shell: Shell, kind: int, name: str) -> dict[str, Any]:
    return {each["name"]: each for each in describe(shell, kind, name)["configs"]}


def change(shell: Shell, kind: int, name: str, *pairs: tuple[str, int, str | None]) -> int:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in pairs]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (result,) = shell.ask("IncrementalAlterConfigs", {"resources": [resource]})["responses"]
    code = result["error_code"]
    assert isinstance(code, int)
    return code


def test_every_setting_is_told() -> None:
    shell = Shell()
    shell.create("a")
    assert set(entries(shell, TOPIC_KIND, "a")) == set(TOPIC)
    broker = entries(shell, BROKER_KIND, "0")
    assert set(broker) == set(BROKER)
    assert all(each["documentation"] and each["config_type"] for each in broker.values())


def test_a_password_is_never_told() -> None:
    shell = Shell({"krust.zookeeper.digest": "secret"})
    entry = entries(shell, BROKER_KIND, "0")["krust.zookeeper.digest"]
    assert entry["is_sensitive"]
    assert "secret" not in repr(entry)


def test_the_strongest_source_is_told_and_the_others_as_synonyms() -> None:
    shell = Shell({"log.retention.hours": 2})
    shell.create("a", retention_ms="5")
    entry = entries(shell, TOPIC_KIND, "a")["retention.ms"]
    assert (entry["value"], entry["config_source"], entry["is_default"]) == ("5", 1, False)
    told = [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]]
    assert told == [("retention.ms", "5", 1), ("log.retention.hours", "2", 4)]
    change(shell, BROKER_KIND, "", ("log.retention.ms", 0, "77"))
    change(shell, TOPIC_KIND, "a", ("retention.ms", 1, None))
    entry = entries(shell, TOPIC_KIND, "a")["retention.ms"]
    assert (entry["value"], entry["config_source"]) == ("77", 3)


def test_a_default_is_told_as_one() -> None:
    shell = Shell()
    shell.create("a")
    entry = entries(shell, TOPIC_KIND, "a")["segment.bytes"]
    assert (entry["value"], entry["config_source"], entry["is_default"]) == ("1073741824", 5, True)
    assert entry["synonyms"] == [{"name": "log.segment.bytes", "value": "1073741824", "source": 5}]


def test_only_what_is_asked_for_is_told() -> None:
    shell = Shell()
    keys = ["num.partitions", "no.such"]
    found = describe(shell, BROKER_KIND, "0", keys)["configs"]
    assert [each["name"] for each in found] == ["num.partitions"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC_KIND, "nowhere", 3),
        (BROKER_KIND, "7", 42),
        (BROKER_KIND, "x", 42),
        (BROKER_KIND, "", 0),
        (LOGGER, "0", 0),
        (LOGGER, "", 42),
        (METRICS, "m", 0),
        (METRICS, "", 42),
        (GROUP, "g", 0),
        (GROUP, "", 42),
        (99, "x", 42),
    ],
)
def test_each_kind_of_resource_is_answered(kind: int, name: str, code: int) -> None:
    assert describe(Shell(), kind, name)["error_code"] == code


def test_changes_of_a_topic_hold_at_once_and_are_kept() -> None:
    shell = Shell()
    shell.create("a")
    shell.applied.clear()
    assert change(shell, TOPIC_KIND, "a", ("max.message.bytes", 0, "2000")) == 0
    assert shell.applied == ["a"]
    assert shell.state.topic_values(shell.state.topics["a"])["max.message.bytes"] == 2000
    again = Shell(tree=reopened(shell))
    assert again.state.topics["a"].config == {"max.message.bytes": "2000"}


def reopened(shell: Shell) -> Any:
    shell.store.close()
    return shell.tree


def test_a_broker_setting_changes_every_topics_default() -> None:
    shell = Shell()
    shell.create("a")
    before = shell.state.topic_values(shell.state.topics["a"])["retention.ms"]
    assert change(shell, BROKER_KIND, "0", ("log.retention.ms", 0, "9000")) == 0
    after = shell.state.topic_values(shell.state.topics["a"])["retention.ms"]
    assert (before, after) == (604_800_000, 9000)
    assert entries(shell, BROKER_KIND, "0")["log.retention.ms"]["config_source"] == 2
    again = Shell(tree=reopened(shell))
    assert again.state.own.config == {"log.retention.ms": "9000"}


def test_lists_are_added_to_and_taken_from() -> None:
    shell = Shell()
    shell.create("a")
    assert change(shell, TOPIC_KIND, "a", ("cleanup.policy", 2, "compact,delete")) == 0
    assert shell.state.topics["a"].config["cleanup.policy"] == "delete,compact"
    assert change(shell, TOPIC_KIND, "a", ("cleanup.policy", 3, "delete")) == 0
    assert shell.state.topics["a"].config["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("kind", "name", "pairs", "code"),
    [
        (TOPIC_KIND, "a", [("no.such", 0, "1")], 40),
        (TOPIC_KIND, "a", [("retention.ms", 0, "soon")], 40),
        (TOPIC_KIND, "a", [("retention.ms", 0, None)], 42),
        (TOPIC_KIND, "a", [("retention.ms", 2, "1")], 40),
        (TOPIC_KIND, "a", [("cleanup.policy", 9, "x")], 40),
        (TOPIC_KIND, "a", [("retention.ms", 0, "1"), ("retention.ms", 1, None)], 42),
        (TOPIC_KIND, "nowhere", [("retention.ms", 0, "1")], 3),
        (BROKER_KIND, "0", [("broker.id", 0, "1")], 42),
        (BROKER_KIND, "0", [("no.such", 0, "1")], 42),
        (BROKER_KIND, "0", [("message.max.bytes", 0, "-1")], 40),
        (BROKER_KIND, "7", [("message.max.bytes", 0, "1")], 42),
        (METRICS, "m", [("interval.ms", 0, "1000")], 42),
        (99, "g", [], 42),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    kind: int, name: str, pairs: list[tuple[str, int, str | None]], code: int
) -> None:
    shell = Shell()
    shell.create("a")
    before = shell.nodes()
    assert change(shell, kind, name, *pairs) == code
    assert shell.nodes() == before


def test_alter_replaces_all_that_was_set() -> None:
    shell = Shell()
    shell.create("a", retention_ms="5")
    configs = [{"name": "segment.ms", "value": "7"}]
    resource = {"resource_type": TOPIC_KIND, "resource_name": "a", "configs": configs}
    message = {"resources": [resource], "validate_only": True}
    shell.ask("AlterConfigs", message)
    assert shell.state.topics["a"].config == {"retention.ms": "5"}
    shell.ask("AlterConfigs", {**message, "validate_only": False})
    assert shell.state.topics["a"].config == {"segment.ms": "7"}


def test_a_resource_named_twice_is_refused() -> None:
    resource = {"resource_type": BROKER_KIND, "resource_name": "", "configs": []}
    answer = Shell().ask("AlterConfigs", {"resources": [resource, resource]})
    assert [each["error_code"] for each in answer["responses"]] == [42, 42]


def test_resources_are_listed_by_kind() -> None:
    shell = Shell()
    shell.create("a")
    old = shell.ask("ListConfigResources", {}, 0)
    assert (old["error_code"], old["config_resources"]) == (0, [])
    some = shell.ask("ListConfigResources", {"resource_types": [TOPIC_KIND]}, 1)
    assert some["config_resources"] == [{"resource_name": "a", "resource_type": TOPIC_KIND}]
    every = shell.ask("ListConfigResources", {"resource_types": []}, 1)
    assert [each["resource_type"] for each in every["config_resources"]] == [2, 4, 8]
    assert shell.ask("ListConfigResources", {"resource_types": [1]}, 1)["error_code"] == 35
