"""The table of controller APIs beside the schemas and what each row promises."""

from errno import EMFILE
from importlib import import_module
from inspect import signature

import pytest

from krust._krust import served_apis
from krust.cli.apis import NAMES
from krust.controller import apis
from krust.controller.apis import CONTROLLER_APIS
from krust.controller.state import Request
from krust.coordinator.group_coordinator import _HANDLERS
from krust.messages import Message
from tests.typed_messages import SCHEMAS
from tests.unit.controller.runtime import NOW_MS, Runtime

OF_THE_CORE = {"AutoCreate", "LogDirFailed"}
"""requests that the core itself makes: Kafka has no such API"""


def test_every_controller_api_is_kafkas_or_the_cores_own() -> None:
    heads = (
        next(line for line in path.read_text().splitlines() if line.startswith("api "))
        for path in SCHEMAS.glob("*.txt")
    )
    kafkas = {head.split()[2] for head in heads}
    assert CONTROLLER_APIS.keys() - OF_THE_CORE <= kafkas


def test_every_row_names_a_generator_function_of_a_module_of_the_controller() -> None:
    for row in CONTROLLER_APIS.values():
        module, function = row.decided_by.split(".")
        decide = getattr(import_module(f"krust.controller.{module}"), function)
        assert list(signature(decide).parameters) == ["state", "request"], row.name


def test_a_module_that_cannot_be_imported_fails_its_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = Runtime()
    request: Request[Message] = Request("CreateTopics", 5, {"topics": []}, {}, NOW_MS)

    def no_descriptor(_: str) -> None:
        raise OSError(EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(apis, "import_module", no_descriptor)
        [(ticket, answer)] = runtime.controller.request(1, request).replies
    assert (ticket, type(answer)) == (1, OSError)
    runtime.create("t")
    assert "t" in runtime.state.topics


def test_only_the_controller_decides_what_brokers_forward() -> None:
    assert all(row.by_controller for row in CONTROLLER_APIS.values() if row.is_forwarded)


def test_the_policy_decides_exactly_what_the_api_table_sends_to_it() -> None:
    served = {name for _, name, _, _, _, run in served_apis() if run == "policy"}
    decided = set(CONTROLLER_APIS) | (served & _HANDLERS.keys())
    # OffsetCommit and OffsetFetch v0 alone, and heartbeats with changes, come to the policy.
    in_part = {"OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat"}
    # The runtime asks the log directories of its own broker.
    of_the_runtime = {"AlterReplicaLogDirs"}
    assert decided - in_part - OF_THE_CORE == served - of_the_runtime


def test_only_brokers_ask_for_what_the_api_table_says() -> None:
    between = {name for _, name, _, _, asker, _ in served_apis() if asker != "client"}
    decided = {row.name for row in CONTROLLER_APIS.values() if row.is_between_brokers}
    assert between == decided | {"WriteTxnMarkers"}, "the core handles that one"


def test_the_api_table_names_each_api_as_kafka_does() -> None:
    for key, name, first, last, _, _ in served_apis():
        assert NAMES[key] == name
        assert 0 <= first <= last
