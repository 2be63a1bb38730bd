"""The feature `transaction.version`: who may finalize which level, and where it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import Features
from krust.metadata.store import Create, Delete, SetData
from tests.unit.controller.nodes import Nodes
from tests.unit.controller.runtime import Runtime, write

NAME = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3
KAFKA = (
    '{"version":5,"endpoints":["PLAINTEXT://k:9092"],"host":"k","port":9092,"timestamp":"1",'
    '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"jmx_port":-1,"features":{}}'
)


def update(
    runtime: Any, level: int, kind: int = UPGRADE, *, name: str = NAME, validate_only: bool = False
) -> tuple[int, str | None]:
    asked = [{"feature": name, "max_version_level": level, "upgrade_type": kind}]
    message = {"timeout_ms": 1000, "feature_updates": asked, "validate_only": validate_only}
    answer = runtime.ask("UpdateFeatures", message)
    (result,) = answer["results"]
    assert (result["error_code"], result["feature"]) == (answer["error_code"], name)
    return answer["error_code"], answer["error_message"]


def in_zookeeper(*brokers: int) -> Nodes:
    return Nodes(*brokers, **{"zookeeper.connect": "zookeeper:2181"})


def levels(data: str | None) -> dict[str, int]:
    found: dict[str, int] = json.loads(data or "{}")["features"]
    return found


def test_a_new_cluster_of_krust_begins_at_the_newest_level_and_keeps_a_lower_one() -> None:
    runtime = Runtime()
    assert (runtime.state.features.transaction_version, runtime.state.features.epoch) == (2, 0)
    assert levels(runtime.nodes()[znodes.FEATURE][0]) == {NAME: 2}
    assert update(runtime, 0, SAFE) == (Code.NONE, None)
    assert (runtime.state.features.transaction_version, runtime.state.features.epoch) == (0, 1)
    runtime.store.close()
    again = Runtime(tree=runtime.tree)
    assert again.state.features.transaction_version == 0
    assert update(again, 2) == (Code.NONE, None)
    assert levels(again.nodes()[znodes.FEATURE][0]) == {NAME: 2}


@pytest.mark.parametrize(
    ("level", "kind", "name", "code"),
    [
        (1, UPGRADE, NAME, Code.INVALID_UPDATE_VERSION),
        (3, UPGRADE, NAME, Code.INVALID_UPDATE_VERSION),
        (-1, UNSAFE, NAME, Code.INVALID_UPDATE_VERSION),
        (1, 0, NAME, Code.INVALID_REQUEST),
        (1, UPGRADE, "metadata.version", Code.INVALID_UPDATE_VERSION),
    ],
)
def test_an_update_that_makes_no_sense_is_refused(
    level: int, kind: int, name: str, code: Code
) -> None:
    runtime = Runtime()
    assert update(runtime, level, kind, name=name)[0] == code
    assert (runtime.state.features.transaction_version, runtime.state.features.epoch) == (2, 0)


def test_a_validated_update_changes_nothing() -> None:
    runtime = Runtime()
    assert update(runtime, 1, UNSAFE, validate_only=True) == (Code.NONE, None)
    assert (runtime.state.features.transaction_version, runtime.state.features.epoch) == (2, 0)


def test_a_cluster_in_a_zookeeper_begins_at_level_0_and_each_broker_takes_the_level_set() -> None:
    nodes = in_zookeeper(1, 2, 3)
    assert [each.state.features.transaction_version for each in nodes.members.values()] == [0, 0, 0]
    assert update(nodes.leader, 2) == (Code.NONE, None)
    nodes.rest()
    assert levels(nodes.node(znodes.FEATURE)) == {NAME: 2}
    known = [
        (each.state.features.transaction_version, each.state.features.epoch)
        for each in nodes.members.values()
    ]
    assert known == [(2, 1)] * 3
    assert update(nodes.leader, 0, SAFE) == (Code.NONE, None)
    nodes.rest()
    assert levels(nodes.node(znodes.FEATURE)) == {}
    assert [each.state.features.transaction_version for each in nodes.members.values()] == [0, 0, 0]


def test_a_cluster_with_a_kafka_stays_at_level_0() -> None:
    nodes = in_zookeeper(1, 2)
    write(nodes.tree, Create(f"{znodes.BROKERS}/9", KAFKA.encode()))
    nodes.rest()
    code, text = update(nodes.leader, 2)
    assert code == Code.FEATURE_UPDATE_FAILED
    assert text is not None
    assert "not krust (9)" in text
    assert levels(nodes.node(znodes.FEATURE)) == {}
    assert update(nodes.leader, 0, SAFE) == (Code.NONE, None)


def test_an_old_kafka_that_joins_sets_the_level_to_0() -> None:
    nodes = in_zookeeper(1, 2)
    assert update(nodes.leader, 2) == (Code.NONE, None)
    write(nodes.tree, Create(f"{znodes.BROKERS}/9", KAFKA.encode()))
    nodes.rest()
    assert levels(nodes.node(znodes.FEATURE)) == {}
    assert [each.state.features.transaction_version for each in nodes.members.values()] == [0, 0]
    assert any("transaction.version is 0 from now on" in each for each in nodes.leader.lines)


def test_a_new_controller_sets_the_level_to_0_if_a_kafka_is_registered() -> None:
    nodes = in_zookeeper(1, 2)
    write(nodes.tree, Create(f"{znodes.BROKERS}/9", KAFKA.encode()))
    nodes.rest()
    finalized = Features({NAME: 2}).encode()
    write(nodes.tree, SetData(znodes.FEATURE, finalized))
    nodes.rest()
    nodes.leader.die()
    nodes.rest()
    assert levels(nodes.node(znodes.FEATURE)) == {}


def test_a_zookeeper_without_the_node_gets_it_by_the_first_update() -> None:
    nodes = in_zookeeper(1)
    write(nodes.tree, Delete(znodes.FEATURE))
    nodes.rest()
    assert nodes.leader.state.features.epoch == -1
    assert update(nodes.leader, 2) == (Code.NONE, None)
    assert levels(nodes.node(znodes.FEATURE)) == {NAME: 2}
    assert nodes.leader.state.features.epoch == 0


def test_a_node_that_makes_no_sense_leaves_the_level_as_it_was() -> None:
    runtime = Runtime()
    write(runtime.tree, SetData(znodes.FEATURE, b"{"))
    assert update(runtime, 1, SAFE)[0] == Code.FEATURE_UPDATE_FAILED
    write(runtime.tree, SetData(znodes.FEATURE, Features({"other": 3}).encode()))
    assert update(runtime, 1, SAFE)[0] == Code.NONE
    assert levels(runtime.nodes()[znodes.FEATURE][0]) == {"other": 3, NAME: 1}
