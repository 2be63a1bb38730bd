"""Passwords among the stored settings of a broker."""

import json
from typing import Any

import pytest

from krust.errors import Code
from krust.metadata.local import Tree
from krust.metadata.store import Create
from krust.password_encoder import PasswordEncoder
from tests.unit.controller.runtime import Runtime, write

NAME = "listener.name.inner.ssl.keystore.password"
JAAS = "listener.name.inner.plain.sasl.jaas.config"
NODE = "/config/brokers/0"
PASSWORD = "canary-41d7"
SECRET: dict[str, object] = {"password.encoder.secret": "new-secret"}
OLD: dict[str, object] = {"password.encoder.old.secret": "old-secret"}
SET, DELETE = 0, 1


def change(runtime: Runtime, broker: str, *pairs: tuple[str, int, str | None]) -> dict[str, Any]:
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in pairs]
    resource = {"resource_type": 4, "resource_name": broker, "configs": configs}
    (result,) = runtime.ask("IncrementalAlterConfigs", {"resources": [resource]})["responses"]
    assert isinstance(result, dict)
    return result


def stored(runtime: Runtime) -> dict[str, str]:
    config = json.loads(runtime.nodes(NODE)[NODE][0])["config"]
    assert isinstance(config, dict)
    return config


def tree_with(config: dict[str, str], broker: str = "0") -> Tree:
    """A tree in which somebody has stored settings of a broker."""
    runtime = Runtime()
    data = json.dumps({"version": 1, "config": config}).encode()
    write(runtime.tree, Create(f"/config/brokers/{broker}", data))
    runtime.store.close()
    return runtime.tree


def by(secret: str, password: str = PASSWORD) -> str:
    return PasswordEncoder(secret).encode(password)


def test_a_password_is_stored_encrypted_and_used_as_it_is() -> None:
    runtime = Runtime(SECRET)
    answer = change(runtime, "0", (NAME, SET, PASSWORD), ("log.cleaner.threads", SET, "2"))
    assert answer["error_code"] == Code.NONE
    assert stored(runtime)["log.cleaner.threads"] == "2"
    assert PASSWORD not in runtime.nodes(NODE)[NODE][0]
    assert PasswordEncoder("new-secret").decode(stored(runtime)[NAME]) == PASSWORD
    assert runtime.state.broker_text(NAME) == PASSWORD
    runtime.store.close()
    assert Runtime(SECRET, tree=runtime.tree).state.broker_text(NAME) == PASSWORD


def test_a_password_is_deleted_like_any_setting() -> None:
    runtime = Runtime(SECRET)
    change(runtime, "0", (NAME, SET, PASSWORD))
    assert change(runtime, "0", (NAME, DELETE, None))["error_code"] == Code.NONE
    assert (stored(runtime), runtime.state.broker_text(NAME)) == ({}, None)


@pytest.mark.parametrize(
    ("settings", "broker", "name", "why"),
    [
        ({}, "0", NAME, "set password.encoder.secret"),
        ({}, "0", JAAS, "set password.encoder.secret"),
        (SECRET, "", NAME, "broker id must be specified"),
        (SECRET, "0", "ssl.keystore.password", "as listener.name.NAME.ssl.keystore.password"),
        (SECRET, "0", "password.encoder.secret", "Cannot update these configs dynamically"),
    ],
)
def test_what_kafka_would_not_store_is_refused_with_the_cause_and_without_the_password(
    settings: dict[str, object], broker: str, name: str, why: str
) -> None:
    runtime = Runtime(settings)
    answer = change(runtime, broker, (name, SET, PASSWORD))
    assert answer["error_code"] == Code.INVALID_REQUEST
    assert why in answer["error_message"]
    assert PASSWORD not in answer["error_message"]
    assert runtime.state.broker_text(name) in (None, "new-secret")


@pytest.mark.parametrize(
    ("settings", "text"),
    [({}, by("new-secret")), (SECRET, by("another")), (SECRET, "as it is")],
)
def test_what_cannot_be_decoded_has_no_effect_and_stays_until_it_is_deleted(
    settings: dict[str, object], text: str
) -> None:
    runtime = Runtime(settings, tree=tree_with({NAME: text}))
    assert NAME in runtime.faults[NODE]
    assert text not in runtime.faults[NODE]
    assert runtime.state.broker_text(NAME) is None
    change(runtime, "0", ("log.cleaner.threads", SET, "2"))
    assert stored(runtime) == {NAME: text, "log.cleaner.threads": "2"}
    assert runtime.state.broker_text(NAME) is None
    assert change(runtime, "0", (NAME, DELETE, None))["error_code"] == Code.NONE
    assert stored(runtime) == {"log.cleaner.threads": "2"}


def test_what_cannot_be_decoded_is_replaced_by_a_new_password() -> None:
    runtime = Runtime(SECRET, tree=tree_with({NAME: by("another")}))
    change(runtime, "0", (NAME, SET, PASSWORD))
    assert runtime.state.broker_text(NAME) == PASSWORD


def test_a_password_of_all_brokers_has_no_effect() -> None:
    runtime = Runtime(SECRET, tree=tree_with({NAME: by("new-secret")}, "<default>"))
    assert "set it for each" in runtime.faults["/config/brokers/<default>"]
    assert runtime.state.broker_text(NAME) is None


@pytest.mark.parametrize("shared", [False, True])
def test_a_start_with_the_old_secret_encrypts_by_the_new_one(shared: bool) -> None:
    before = {NAME: by("old-secret"), JAAS: by("new-secret", "x"), "log.cleaner.threads": "2"}
    runtime = Runtime({**SECRET, **OLD}, tree=tree_with(before), shared=shared)
    assert runtime.state.broker_text(NAME) == PASSWORD
    after = stored(runtime)
    assert PasswordEncoder("new-secret").decode(after.pop(NAME)) == PASSWORD
    assert after == {JAAS: before[JAAS], "log.cleaner.threads": "2"}


def test_passwords_of_listeners_are_described_without_their_values() -> None:
    runtime = Runtime(SECRET, tree=tree_with({JAAS: by("another")}))
    change(runtime, "0", (NAME, SET, PASSWORD))
    resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (result,) = runtime.ask("DescribeConfigs", asked)["results"]
    entries = {each["name"]: each for each in result["configs"]}
    for name in (NAME, JAAS):
        entry = entries[name]
        assert (entry["value"], entry["is_sensitive"], entry["config_source"]) == (None, True, 2)
        assert [each["value"] for each in entry["synonyms"]] == [None]
    assert PASSWORD not in repr(result)
    assert "new-secret" not in repr(result)
