"""Settings over the wire: values, sources, synonyms, and changes of them."""

from typing import Any

import pytest

from krust.settings import BROKER, TOPIC
from tests.unit.controller.runtime import Runtime

TOPIC_KIND, BROKER_KIND, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def describe(
    runtime: Runtime, kind: int, name: str, keys: list[str] | None = None
) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    message = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (result,) = runtime.ask("DescribeConfigs", message)["results"]
    assert isinstance(result, dict)
    return result


def entries(runtime: Runtime, kind: int, name: str) -> dict[str, Any]:
    return {each["name"]: each for each in describe(runtime, kind, name)["configs"]}


def change(runtime: Runtime, kind: int, name: str, *pairs: tuple[str, int, str | None]) -> int:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in pairs]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (result,) = runtime.ask("IncrementalAlterConfigs", {"resources": [resource]})["responses"]
    code = result["error_code"]
    assert isinstance(code, int)
    return code


def test_every_setting_is_described() -> None:
    runtime = Runtime()
    runtime.create("a")
    assert set(entries(runtime, TOPIC_KIND, "a")) == set(TOPIC)
    broker = entries(runtime, BROKER_KIND, "0")
    assert set(broker) == set(BROKER)
    assert all(each["documentation"] and each["config_type"] for each in broker.values())


def test_a_password_is_never_described() -> None:
    runtime = Runtime({"krust.zookeeper.digest": "secret"})
    entry = entries(runtime, BROKER_KIND, "0")["krust.zookeeper.digest"]
    assert entry["is_sensitive"]
    assert "secret" not in repr(entry)


def test_the_strongest_source_is_described_with_the_others_as_synonyms() -> None:
    runtime = Runtime({"log.retention.hours": 2})
    runtime.create("a", retention_ms="5")
    entry = entries(runtime, TOPIC_KIND, "a")["retention.ms"]
    assert (entry["value"], entry["config_source"], entry["is_default"]) == ("5", 1, False)
    synonyms = [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]]
    assert synonyms == [("retention.ms", "5", 1), ("log.retention.hours", "2", 4)]
    change(runtime, BROKER_KIND, "", ("log.retention.ms", 0, "77"))
    change(runtime, TOPIC_KIND, "a", ("retention.ms", 1, None))
    entry = entries(runtime, TOPIC_KIND, "a")["retention.ms"]
    assert (entry["value"], entry["config_source"]) == ("77", 3)


def test_a_default_is_described_as_a_default() -> None:
    runtime = Runtime()
    runtime.create("a")
    entry = entries(runtime, TOPIC_KIND, "a")["segment.bytes"]
    assert (entry["value"], entry["config_source"], entry["is_default"]) == ("1073741824", 5, True)
    assert entry["synonyms"] == [{"name": "log.segment.bytes", "value": "1073741824", "source": 5}]


def test_only_requested_settings_are_described() -> None:
    runtime = Runtime()
    keys = ["num.partitions", "no.such"]
    found = describe(runtime, BROKER_KIND, "0", keys)["configs"]
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
    assert describe(Runtime(), kind, name)["error_code"] == code


def test_changed_topic_settings_apply_at_once_and_are_kept() -> None:
    runtime = Runtime()
    runtime.create("a")
    runtime.applied.clear()
    assert change(runtime, TOPIC_KIND, "a", ("max.message.bytes", 0, "2000")) == 0
    assert runtime.applied == ["a"]
    assert runtime.state.topic_values(runtime.state.topics["a"])["max.message.bytes"] == 2000
    again = Runtime(tree=reopened(runtime))
    assert again.state.topics["a"].config == {"max.message.bytes": "2000"}


def reopened(runtime: Runtime) -> Any:
    runtime.store.close()
    return runtime.tree


def test_a_broker_setting_changes_every_topics_default() -> None:
    runtime = Runtime()
    runtime.create("a")
    before = runtime.state.topic_values(runtime.state.topics["a"])["retention.ms"]
    assert change(runtime, BROKER_KIND, "0", ("log.retention.ms", 0, "9000")) == 0
    after = runtime.state.topic_values(runtime.state.topics["a"])["retention.ms"]
    assert (before, after) == (604_800_000, 9000)
    assert entries(runtime, BROKER_KIND, "0")["log.retention.ms"]["config_source"] == 2
    again = Runtime(tree=reopened(runtime))
    assert again.state.own.config == {"log.retention.ms": "9000"}


def test_list_settings_are_appended_to_and_subtracted_from() -> None:
    runtime = Runtime()
    runtime.create("a")
    assert change(runtime, TOPIC_KIND, "a", ("cleanup.policy", 2, "compact,delete")) == 0
    assert runtime.state.topics["a"].config["cleanup.policy"] == "delete,compact"
    assert change(runtime, TOPIC_KIND, "a", ("cleanup.policy", 3, "delete")) == 0
    assert runtime.state.topics["a"].config["cleanup.policy"] == "compact"


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
        (BROKER_KIND, "", [("ssl.client.auth", 0, "required")], 42),
        (BROKER_KIND, "", [("listener.name.ssl.ssl.client.auth", 0, "required")], 42),
        (BROKER_KIND, "0", [("ssl.keystore.location", 0, "/store")], 42),
        (METRICS, "m", [("interval.ms", 0, "1000")], 42),
        (99, "g", [], 42),
    ],
)
def test_an_invalid_change_is_refused(
    kind: int, name: str, pairs: list[tuple[str, int, str | None]], code: int
) -> None:
    runtime = Runtime()
    runtime.create("a")
    before = runtime.nodes()
    assert change(runtime, kind, name, *pairs) == code
    assert runtime.nodes() == before


def test_alter_configs_replaces_every_setting() -> None:
    runtime = Runtime()
    runtime.create("a", retention_ms="5")
    configs = [{"name": "segment.ms", "value": "7"}]
    resource = {"resource_type": TOPIC_KIND, "resource_name": "a", "configs": configs}
    message = {"resources": [resource], "validate_only": True}
    runtime.ask("AlterConfigs", message)
    assert runtime.state.topics["a"].config == {"retention.ms": "5"}
    runtime.ask("AlterConfigs", {**message, "validate_only": False})
    assert runtime.state.topics["a"].config == {"segment.ms": "7"}


def test_a_resource_named_twice_is_refused() -> None:
    resource = {"resource_type": BROKER_KIND, "resource_name": "", "configs": []}
    answer = Runtime().ask("AlterConfigs", {"resources": [resource, resource]})
    assert [each["error_code"] for each in answer["responses"]] == [42, 42]


def test_resources_are_listed_by_kind() -> None:
    runtime = Runtime()
    runtime.create("a")
    old = runtime.ask("ListConfigResources", {}, 0)
    assert (old["error_code"], old["config_resources"]) == (0, [])
    some = runtime.ask("ListConfigResources", {"resource_types": [TOPIC_KIND]}, 1)
    assert some["config_resources"] == [{"resource_name": "a", "resource_type": TOPIC_KIND}]
    every = runtime.ask("ListConfigResources", {"resource_types": []}, 1)
    assert [each["resource_type"] for each in every["config_resources"]] == [2, 4, 8]
    assert runtime.ask("ListConfigResources", {"resource_types": [1]}, 1)["error_code"] == 35
