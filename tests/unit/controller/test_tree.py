"""The tree that krust builds is the tree that Kafka 3.9.1 built (tests/data/znodes-3.9.1.json)."""

import json
from collections.abc import Generator
from pathlib import Path

from krust.controller.entities import Partition, Topic
from krust.controller.state import Transactions
from krust.controller.topics import creation_transactions
from krust.metadata import znodes
from krust.metadata.store import Create, MultiResult
from tests.unit.controller.runtime import Runtime

KAFKA = json.loads((Path(__file__).parents[2] / "data/znodes-3.9.1.json").read_text())
NOT_OURS = ("/kafka-acl", "/brokers/topics/__consumer_offsets", "/config/topics/__consumer_offsets")


def as_kafka() -> Runtime:
    """Do what was done to the Kafka that the file was taken from."""
    runtime = Runtime(options={"zookeeper.connect": "zookeeper:2181"})
    state = runtime.state
    topic = Topic(
        "orders",
        "PctXnh4jScWzv_Ab2ih1zQ",
        (Partition((0,), 0, 0, (0,)),) * 3,
        {"max.message.bytes": "2000000"},
    )

    def made() -> Generator[Transactions, list[MultiResult], None]:
        yield creation_transactions(state, topic)
        state.put(topic)

    runtime.run(made())
    pairs = [{"name": "retention.ms", "config_operation": 0, "value": "123456"}]
    resource = {"resource_type": 2, "resource_name": "orders", "configs": pairs}
    runtime.ask("IncrementalAlterConfigs", {"resources": [resource], "validate_only": False})
    runtime.ask("AllocateProducerIds", {"broker_id": 0, "broker_epoch": -1})
    return runtime


def test_every_path_of_kafka_has_kafkas_data() -> None:
    ours = as_kafka().nodes()
    for path, node in KAFKA.items():
        if path.startswith(NOT_OURS):
            continue
        data, ephemeral = ours.pop(path)
        assert ephemeral == node["ephemeral"], path
        expected = node["data"] or ""
        if '"timestamp"' in expected:
            theirs, mine = json.loads(expected), json.loads(data)
            assert theirs.pop("timestamp").isdecimal()
            assert mine.pop("timestamp").isdecimal()
            assert mine == theirs, path
        else:
            assert data == expected, path
    assert ours == {}, "paths that Kafka does not have"


def test_keys_are_in_kafkas_order() -> None:
    ours = as_kafka().nodes()
    for path in ("/brokers/ids/0", "/controller", "/brokers/topics/orders", "/feature"):
        assert list(json.loads(ours[path][0])) == list(json.loads(KAFKA[path]["data"])), path


def test_settings_are_written_before_the_topic() -> None:
    topic = Topic("a", "x" * 22, (), {})
    (operations,) = creation_transactions(Runtime().state, topic)
    paths = [each.path for each in operations if isinstance(each, Create)]
    assert paths.index("/config/topics/a") < paths.index("/brokers/topics/a")


def test_names_of_entities_are_sanitised() -> None:
    assert znodes.entity("users", "carl x") == "users/carl%20x"
    assert znodes.entity("brokers", znodes.DEFAULT_ENTITY) == "brokers/<default>"
