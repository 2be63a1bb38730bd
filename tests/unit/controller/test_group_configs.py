"""Settings of single groups: shown, set, listed, kept, sent to other brokers."""

from typing import Any

import pytest

from krust.controller import group_configs
from krust.metadata import znodes
from krust.metadata.contents import EntityConfig
from krust.metadata.store import SetData
from tests.unit.controller.nodes import Nodes
from tests.unit.controller.runtime import Runtime, write

GROUP, BROKER_KIND = 32, 4
SET, DELETE, APPEND = 0, 1, 2
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def change(
    runtime: Runtime, name: str, *pairs: tuple[str, int, str | None], kind: int = GROUP, **more: Any
) -> tuple[int, str | None]:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in pairs]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    message = {"resources": [resource], **more}
    (result,) = runtime.ask("IncrementalAlterConfigs", message)["responses"]
    return result["error_code"], result["error_message"]


def shown(runtime: Runtime, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    resource = {"resource_type": GROUP, "resource_name": name, "configuration_keys": keys}
    message = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (result,) = runtime.ask("DescribeConfigs", message)["results"]
    assert result["error_code"] == 0
    return {each["name"]: each for each in result["configs"]}


def listed(runtime: Runtime) -> list[str]:
    found = runtime.ask("ListConfigResources", {"resource_types": [GROUP]}, 1)["config_resources"]
    assert {each["resource_type"] for each in found} <= {GROUP}
    return [each["resource_name"] for each in found]


def test_a_group_setting_is_shown_with_its_source_and_kept_across_a_restart() -> None:
    runtime = Runtime()
    default = shown(runtime, "g")[SESSION]
    assert (default["value"], default["config_source"], listed(runtime)) == ("45000", 5, [])
    assert change(runtime, "g", (SESSION, SET, " 46000 ")) == (0, None)
    for times in range(2):
        now = restarted(runtime) if times else runtime
        entry = shown(now, "g")[SESSION]
        assert (entry["value"], entry["config_source"], entry["read_only"]) == ("46000", 8, False)
        assert entry["synonyms"] == [
            {"name": SESSION, "value": "46000", "source": 8},
            {"name": f"group.{SESSION}", "value": "45000", "source": 5},
        ]
        assert entry["documentation"]
        assert shown(now, "g")[HEARTBEAT]["config_source"] == 5
        assert list(shown(now, "g", [SESSION, "nope"])) == [SESSION]
        assert listed(now) == ["g"]
        assert group_configs.timing(now.state, "g") == (5000, 46000)
        assert group_configs.timing(now.state, "other") is None


def test_a_group_without_settings_of_its_own_leaves_nothing_behind() -> None:
    runtime = Runtime()
    change(runtime, "g", (SESSION, SET, "46000"), (HEARTBEAT, SET, "6000"))
    resource = {"resource_type": GROUP, "resource_name": "g", "configs": []}
    replaced = {**resource, "configs": [{"name": HEARTBEAT, "value": "7000"}]}
    runtime.ask("AlterConfigs", {"resources": [replaced]})
    assert group_configs.config(runtime.state, "g") == {HEARTBEAT: "7000"}
    assert change(runtime, "g", (HEARTBEAT, DELETE, None), ("nope", DELETE, None)) == (0, None)
    assert (listed(runtime), list(runtime.nodes("/config/groups"))) == ([], ["/config/groups"])
    assert change(runtime, "g", (SESSION, DELETE, None)) == (0, None)
    assert change(runtime, "g", (SESSION, SET, "47000")) == (0, None)
    assert shown(runtime, "g")[SESSION]["value"] == "47000"


def test_validate_only_writes_nothing() -> None:
    runtime = Runtime()
    assert change(runtime, "g", (SESSION, SET, "46000"), validate_only=True) == (0, None)
    assert change(runtime, "g", ("nope", SET, "1"), validate_only=True)[0] == 40
    assert (listed(runtime), runtime.state.groups) == ([], {})


def restarted(runtime: Runtime, options: dict[str, object] | None = None) -> Runtime:
    runtime.store.close()
    return Runtime(options, tree=runtime.tree)


def must(name: str, than: str, bound: str) -> str:
    limit = name.replace("consumer.", f"group.consumer.{bound}.")
    return f"{name} must be {than} than or equal to {limit}"


INVALID = f"Invalid value x for configuration {SESSION}: Not a number of type INT"
REFUSED = [
    ([("nope", SET, "1")], 40, "Unknown group config name: nope"),
    ([(SESSION, SET, "x"), ("nope", SET, "1")], 40, "Unknown group config name: nope"),
    ([("share.session.timeout.ms", SET, "45000")], 40, "Unknown group config name: share."),
    ([(SESSION, SET, "x")], 40, INVALID),
    ([(SESSION, SET, "9" * 40)], 40, INVALID.replace("x", "9" * 40, 1)),
    ([(HEARTBEAT, SET, "0")], 40, f"Invalid value 0 for configuration {HEARTBEAT}: Value must"),
    ([(SESSION, SET, "44999")], 40, must(SESSION, "greater", "min")),
    ([(SESSION, SET, "60001")], 40, must(SESSION, "less", "max")),
    ([(SESSION, SET, "1"), (HEARTBEAT, SET, "4999")], 40, must(HEARTBEAT, "greater", "min")),
    ([(HEARTBEAT, SET, "15001")], 40, must(HEARTBEAT, "less", "max")),
    ([(SESSION, SET, None)], 42, f"Null value not supported for : {SESSION}"),
    ([(SESSION, APPEND, "1")], 40, f"Can't APPEND to key {SESSION} because its type is not LIST."),
    ([(SESSION, SET, "46000"), (SESSION, SET, "47000")], 42, "Error due to duplicate config keys"),
]


@pytest.mark.parametrize(("pairs", "code", "words"), REFUSED)
def test_invalid_group_settings_are_refused_with_kafkas_messages(
    pairs: list[tuple[str, int, str | None]], code: int, words: str
) -> None:
    runtime = Runtime()
    found, message = change(runtime, "g", *pairs)
    assert (found, (message or "")[: len(words)]) == (code, words)
    assert listed(runtime) == []


def test_a_session_must_be_longer_than_the_interval_between_heartbeats() -> None:
    runtime = Runtime({"group.consumer.min.session.timeout.ms": 1000})
    words = f"{SESSION} must be greater than {HEARTBEAT}"
    assert change(runtime, "g", (SESSION, SET, "5000")) == (40, words)
    assert change(runtime, "g", (SESSION, SET, "5001")) == (0, None)
    assert change(runtime, "g", (HEARTBEAT, SET, "5001")) == (40, words)


def test_the_group_without_a_name_has_no_settings() -> None:
    words = "Default group resources are not allowed."
    assert change(Runtime(), "", (SESSION, SET, "46000")) == (42, words)


@pytest.mark.parametrize("kind", [0, 1, 3, 99, -1])
def test_an_unknown_resource_type_is_refused(kind: int) -> None:
    runtime = Runtime()
    words = f"Unknown resource type {kind}"
    assert change(runtime, "0", ("log.retention.ms", SET, "1"), kind=kind) == (42, words)
    words = "Node id must be an integer, but it is: g"
    assert change(runtime, "g", ("log.retention.ms", SET, "1"), kind=BROKER_KIND) == (42, words)


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "<default>", "é ü%2F", "\0"])
def test_any_group_name_is_stored_and_read_back(name: str) -> None:
    runtime = Runtime()
    assert change(runtime, name, (SESSION, SET, "46000")) == (0, None)
    assert listed(restarted(runtime)) == [name]


def test_other_brokers_read_group_settings_and_an_unreadable_one_affects_only_its_group() -> None:
    nodes = Nodes(1, 2)
    one, other = nodes.members.values()
    session_change = {"name": SESSION, "config_operation": SET, "value": "46000"}
    resource = {"resource_type": GROUP, "resource_name": "g/1", "configs": [session_change]}
    one.ask("IncrementalAlterConfigs", {"resources": [resource]})
    nodes.rest()
    assert group_configs.timing(other.state, "g/1") == (5000, 46000)
    gone = {**resource, "configs": [{**session_change, "config_operation": DELETE, "value": None}]}
    other.ask("IncrementalAlterConfigs", {"resources": [gone]})
    nodes.rest()
    assert (one.state.groups, other.state.groups) == ({}, {})


def test_invalid_stored_group_settings_are_ignored_and_bounds_apply_at_once() -> None:
    runtime = Runtime()
    for group in ("bad", "broken", "high"):
        change(runtime, group, (SESSION, SET, "60000"))
    bad = EntityConfig({SESSION: "x", HEARTBEAT: "6000", "share.x": "1"}).encode()
    write(runtime.tree, SetData(znodes.group_config("bad"), bad))
    write(runtime.tree, SetData(znodes.group_config("broken"), b"{"))
    after = restarted(runtime, {"group.consumer.max.session.timeout.ms": 50_000})
    assert group_configs.timing(after.state, "bad") == (6000, 45000)
    assert group_configs.timing(after.state, "broken") == (5000, 45000)
    assert group_configs.timing(after.state, "high") == (5000, 50000)
    assert set(after.faults) == {znodes.group_config("bad"), znodes.group_config("broken")}
