"""Quotas are described, changed, stored in the tree, and enforced on changes of topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from krust.controller import quota_entities
from krust.controller.state import Request
from krust.messages import Message
from krust.metadata.local import Tree
from krust.metadata.store import Create, MultiResult, SetData
from tests.unit.controller.nodes import Nodes
from tests.unit.controller.runtime import NOW_MS, Runtime, write

U, C, IP = "user", "client-id", "ip"
PBR, MUT = "producer_byte_rate", "controller_mutation_rate"
Named = Mapping[str, str | None]
NOT_BOTH = "IP entity should not be used with user/client ID entity."
NOT_ONE = "is not a valid IP or resolvable host."


def change(
    runtime: Any, entity: Named, ops: Mapping[str, float | None], *, validate_only: bool = False
) -> tuple[int, str | None]:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in ops.items()
        ],
    }
    message = {"entries": [entry], "validate_only": validate_only}
    (answer,) = runtime.ask("AlterClientQuotas", message)["entries"]
    assert answer["entity"] == entry["entity"]
    return answer["error_code"], answer["error_message"]


def described(
    runtime: Any, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[str, dict[str, float]]:
    parts = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in components]
    message = {"components": parts, "strict": strict}
    answer = runtime.ask("DescribeClientQuotas", message)
    assert answer["error_code"] == 0, answer
    return {
        "/".join(f"{each['entity_type']}={each['entity_name']}" for each in entry["entity"]): {
            pair["key"]: pair["value"] for pair in entry["values"]
        }
        for entry in answer["entries"]
    }


def test_quotas_are_described_and_stored_as_in_kafka() -> None:
    runtime = Runtime()
    entity = {U: "bob~ x", C: None}
    assert change(runtime, entity, {PBR: 1024.0, "request_percentage": 50.0}) == (0, None)
    values = {PBR: 1024.0, "request_percentage": 50.0}
    assert described(runtime) == {"user=bob~ x/client-id=None": values}
    assert runtime.state.quotas == {((U, "bob~ x"), (C, None)): values}
    nodes = {path: data for path, (data, _) in runtime.nodes("/config/users").items()}
    assert nodes == {
        "/config/users": "",
        "/config/users/bob%7E%20x": "",
        "/config/users/bob%7E%20x/clients": "",
        "/config/users/bob%7E%20x/clients/<default>": '{"version":1,"config":'
        '{"producer_byte_rate":"1024","request_percentage":"50.0"}}',
    }
    (change_node,) = list(runtime.nodes("/config/changes").values())[1:]
    assert json.loads(change_node[0])["entity_path"] == "users/bob%7E%20x/clients/<default>"
    runtime.store.close()
    assert Runtime(tree=runtime.tree).state.quotas == runtime.state.quotas


def test_removing_the_last_quota_deletes_its_node_and_empty_parents() -> None:
    runtime = Runtime()
    for entity in ({U: "ann"}, {U: "ann", C: "a"}, {U: "ann", C: "b"}, {IP: None}):
        value = "connection_creation_rate" if IP in entity else PBR
        assert change(runtime, entity, {value: 5.0}) == (0, None)
    gone: dict[str, float | None] = {PBR: None}
    assert change(runtime, {U: "ann"}, gone) == (0, None)
    assert runtime.nodes("/config/users/ann")["/config/users/ann"][0] == '{"version":1,"config":{}}'
    assert change(runtime, {U: "ann", C: "a"}, gone) == (0, None)
    assert set(described(runtime)) == {"user=ann/client-id=b", "ip=None"}
    assert change(runtime, {U: "ann", C: "b"}, gone) == (0, None)
    assert change(runtime, {IP: None}, {"connection_creation_rate": None}) == (0, None)
    assert set(runtime.nodes("/config/users")) == {"/config/users"}
    assert set(runtime.nodes("/config/ips")) == {"/config/ips"}
    assert runtime.state.quotas == {}
    assert change(runtime, {U: "nobody"}, gone) == (0, None)
    assert set(runtime.nodes("/config/users")) == {"/config/users"}


def test_settings_of_others_survive() -> None:
    runtime = Runtime()
    kept = b'{"version":1,"config":{"SCRAM-SHA-256":"secret","of.tomorrow":"1"}}'
    write(runtime.tree, Create("/config/users/ann", kept))
    assert change(runtime, {U: "ann"}, {PBR: 5.0}) == (0, None)
    assert change(runtime, {U: "ann"}, {"SCRAM-SHA-256": None})[0] == 42
    assert change(runtime, {U: "ann", C: "a"}, {PBR: 5.0}) == (0, None)
    assert change(runtime, {U: "ann", C: "a"}, {PBR: None}) == (0, None)
    assert change(runtime, {U: "ann"}, {PBR: None}) == (0, None)
    nodes = {path: data for path, (data, _) in runtime.nodes("/config/users/ann").items()}
    assert nodes == {"/config/users/ann": kept.decode()}


@pytest.mark.parametrize(
    ("entity", "ops", "text"),
    [
        ({}, {PBR: 1.0}, "Invalid empty client quota entity"),
        ({"group": "x"}, {PBR: 1.0}, "Unhandled client quota entity type: group"),
        ({U: ""}, {PBR: 1.0}, "Empty user not supported"),
        (
            {IP: "10.0.0.1", U: "ann"},
            {PBR: 1.0},
            f"Invalid quota entity combination, {NOT_BOTH}",
        ),
        ({IP: "::1"}, {"connection_creation_rate": 1.0}, f"%3A%3A1 {NOT_ONE}"),
        ({IP: "no.such"}, {"connection_creation_rate": 1.0}, f"no.such {NOT_ONE}"),
        ({IP: "10.0.0.1"}, {PBR: 1.0}, f"Invalid configuration key {PBR}"),
        ({U: "ann"}, {"nonsense": 1.0}, "Invalid configuration key nonsense"),
        ({U: "ann"}, {PBR: 1.5}, f"Configuration {PBR} must be a LONG value"),
        ({U: "ann"}, {PBR: -1.0}, f"Configuration {PBR} must be a LONG value"),
        ({U: "ann"}, {PBR: 1e30}, f"Configuration {PBR} must be a LONG value"),
        ({U: "ann"}, {PBR: float("nan")}, f"Configuration {PBR} must be a LONG value"),
        (
            {IP: None},
            {"connection_creation_rate": 3e9},
            "Configuration connection_creation_rate must be a INT value",
        ),
        ({U: "ann"}, {MUT: -1.0}, f"Quota {MUT} must be a number, and not below 0"),
        ({U: "ann"}, {MUT: float("inf")}, f"Quota {MUT} must be a number, and not below 0"),
        ({U: ".."}, {PBR: 1.0}, "/config/users/.. cannot be stored"),
    ],
)
def test_an_invalid_quota_is_refused_and_nothing_is_written(
    entity: Named, ops: dict[str, float | None], text: str
) -> None:
    runtime = Runtime()
    before = runtime.nodes("/config")
    assert change(runtime, entity, ops) == (42, text)
    assert runtime.nodes("/config") == before


def test_validate_only_writes_no_quota() -> None:
    runtime = Runtime()
    assert change(runtime, {U: "ann"}, {PBR: 1.0}, validate_only=True) == (0, None)
    assert change(runtime, {U: "ann"}, {"x": 1.0}, validate_only=True)[0] == 42
    assert described(runtime) == {}


def test_an_answer_for_an_entity_that_is_named_twice_is_given_once() -> None:
    runtime = Runtime()
    entity = [{"entity_type": U, "entity_name": "ann"}]
    ops = [{"key": key, "value": 1.0, "remove": False} for key in (PBR, "request_percentage")]
    entries = [{"entity": entity, "ops": [op]} for op in ops]
    answer = runtime.ask("AlterClientQuotas", {"entries": entries, "validate_only": False})
    assert [each["error_code"] for each in answer["entries"]] == [0]
    assert described(runtime) == {"user=ann": {PBR: 1.0, "request_percentage": 1.0}}


@pytest.fixture(scope="module")
def many() -> Runtime:
    runtime = Runtime()
    for user in ("ann", None):
        change(runtime, {U: user}, {PBR: 1.0})
        for client in ("app", None):
            change(runtime, {U: user, C: client}, {PBR: 1.0})
    for client in ("app", None):
        change(runtime, {C: client}, {PBR: 1.0})
    for address in ("10.0.0.1", None):
        change(runtime, {IP: address}, {"connection_creation_rate": 1.0})
    return runtime


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ((), False, 10),
        ((), True, 0),
        (((U, 0, "ann"),), False, 3),
        (((U, 0, "ann"),), True, 1),
        (((U, 1, None),), False, 3),
        (((U, 2, None),), False, 6),
        (((U, 2, None),), True, 2),
        (((C, 0, "app"),), False, 3),
        (((C, 2, None),), True, 2),
        (((U, 0, "ann"), (C, 1, None)), True, 1),
        (((U, 2, None), (C, 2, None)), False, 4),
        (((IP, 2, None),), False, 2),
        (((IP, 0, "10.0.0.1"),), True, 1),
        (((IP, 0, "10.0.0.2"),), False, 0),
    ],
)
def test_components_filter_the_described_quotas(
    many: Runtime, components: tuple[tuple[str, int, str | None], ...], strict: bool, found: int
) -> None:
    assert len(described(many, *components, strict=strict)) == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        (((U, 2, None), (IP, 2, None)), 42),
        (((U, 2, None), (U, 1, None)), 42),
        ((("", 2, None),), 42),
        ((("group", 2, None),), 35),
        (((U, 9, None),), 42),
        (((U, 0, None),), 42),
    ],
)
def test_invalid_filter_components_are_refused(
    many: Runtime, components: tuple[tuple[str, int, str | None], ...], code: int
) -> None:
    parts = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in components]
    answer = many.ask("DescribeClientQuotas", {"components": parts, "strict": False})
    assert (answer["error_code"], answer["entries"]) == (code, None)
    assert answer["error_message"]


@pytest.mark.parametrize(
    "data", [b"{", b'{"version":9,"config":{}}', b'{"version":1,"config":{"producer_byte_rate":7}}']
)
def test_an_unreadable_node_affects_only_its_quotas(data: bytes) -> None:
    tree = Tree()
    Runtime(tree=tree).store.close()
    good = b'{"version":1,"config":{"producer_byte_rate":"7","consumer_byte_rate":"many"}}'
    bad = ("clients/bad", "users/a b", "ips/localhost")
    write(tree, *(Create(f"/config/{place}", data) for place in bad))
    write(tree, Create("/config/clients/good", good))
    runtime = Runtime(tree=tree)
    assert runtime.state.quotas == {((C, "good"),): {PBR: 7.0}}
    assert set(runtime.faults) == {f"/config/{place}" for place in (*bad, "clients/good")}
    assert change(runtime, {C: "bad"}, {PBR: 1.0})[0] == -1
    assert described(runtime) == {"client-id=good": {PBR: 7.0}}


class Client:
    """Asks for changes of topics under a name, at a time."""

    def __init__(self, runtime: Runtime, name: str = "app") -> None:
        self.runtime, self.name, self.now_ms = runtime, name, NOW_MS

    def ask(self, api: str, message: Message, version: int) -> Message:
        request = Request(api, version, message, {"id": self.name}, self.now_ms)
        answer = self.runtime.follow(self.runtime.controller.request(0, request))
        assert isinstance(answer, dict)
        return answer

    def create(self, name: str, partitions: int, version: int = 7, **more: object) -> Any:
        shape = {"num_partitions": partitions, "replication_factor": 1, "assignments": []}
        message = {"topics": [{"name": name, **shape, "configs": []}], **more}
        answer = self.ask("CreateTopics", message, version)
        return answer["topics"][0]["error_code"], answer["throttle_time_ms"]

    def grow(self, name: str, count: int, version: int) -> Any:
        message = {"topics": [{"name": name, "count": count, "assignments": None}]}
        answer = self.ask("CreatePartitions", message, version)
        return answer["results"][0]["error_code"], answer["throttle_time_ms"]

    def delete(self, name: str, version: int) -> Any:
        answer = self.ask("DeleteTopics", {"topic_names": [name]}, version)
        return answer["responses"][0]["error_code"], answer["throttle_time_ms"]


def test_changes_of_topics_count_by_partitions_as_kafkas() -> None:
    runtime = Runtime()
    change(runtime, {U: None}, {MUT: 1.0})
    client = Client(runtime)
    assert client.create("m1", 5) == (0, 0)
    assert client.create("m2", 10) == (0, 0)
    assert client.create("m3", 3) == (89, 4000)
    assert "m3" not in runtime.state.topics
    assert client.create("m3", 3, validate_only=True) == (0, 0)
    assert client.create("m4", 3, version=5) == (0, 7000)
    assert Client(runtime, "other").create("m5", 1)[0] == 89, "the user has one allowance"
    assert client.grow("m1", 7, 3) == (89, 7000)
    assert client.grow("m1", 7, 2) == (0, 9000)
    assert client.delete("m1", 6) == (89, 9000)
    assert client.delete("m1", 4) == (0, 16000)
    client.now_ms += 16_000
    assert client.delete("m2", 6) == (0, 0)
    assert client.delete("m4", 6) == (89, 10000)


def test_topic_creation_on_first_use_counts_and_is_not_throttled() -> None:
    runtime = Runtime()
    change(runtime, {C: "app"}, {MUT: 0.05})
    client = Client(runtime)
    for name in ("a", "b", "c"):
        (one,) = client.ask("AutoCreate", {"topics": [name]}, 0)["topics"]
        assert one["error_code"] == 0
    assert client.create("d", 1)[0] == 89
    assert Client(runtime, "other").create("d", 1) == (0, 0)


def test_the_windows_are_settings() -> None:
    options = {"controller.quota.window.num": 2, "controller.quota.window.size.seconds": 3}
    runtime = Runtime(dict(options))
    change(runtime, {C: None}, {MUT: 1.0})
    client = Client(runtime)
    assert client.create("a", 7) == (0, 0)
    assert client.create("b", 1) == (89, 1000)


def test_every_broker_reads_quotas_that_others_wrote() -> None:
    nodes = Nodes(1, 2)
    one, two = nodes.members.values()
    assert change(two, {U: "ann"}, {PBR: 5.0}) == (0, None)
    nodes.rest()
    assert one.state.quotas == two.state.quotas == {((U, "ann"),): {PBR: 5.0}}
    data = b'{"version":1,"config":{"producer_byte_rate":"6"}}'
    notification = b'{"version":2,"entity_path":"users/ann"}'
    notice = Create("/config/changes/config_change_", notification, sequential=True)
    nodes.write(SetData("/config/users/ann", data), notice)
    assert one.state.quotas == two.state.quotas == {((U, "ann"),): {PBR: 6.0}}
    two.die()
    change(one, {U: "ann"}, {PBR: None})
    two.begin()
    nodes.rest()
    assert two.state.quotas == one.state.quotas == {}
    change(one, {C: "app"}, {PBR: 1.0})
    two.expire()
    nodes.rest()
    assert two.state.quotas == one.state.quotas


def test_a_load_keeps_what_was_read_since_it_began() -> None:
    runtime = Runtime()
    change(runtime, {C: "app"}, {PBR: 1.0})
    steps = quota_entities.load(runtime.state)
    asked = next(steps)
    runtime.store.submit(asked[0], "load")
    (done,) = (each for each in runtime.store.events() if isinstance(each, MultiResult))
    asked = steps.send([done])
    answers = []
    for operations in asked:
        runtime.store.submit(operations, "load")
        answers += [each for each in runtime.store.events() if isinstance(each, MultiResult)]
    change(runtime, {C: "app"}, {PBR: 2.0})
    change(runtime, {C: "new"}, {PBR: 3.0})
    with pytest.raises(StopIteration):
        steps.send(answers)
    assert runtime.state.quotas == {((C, "app"),): {PBR: 2.0}, ((C, "new"),): {PBR: 3.0}}
