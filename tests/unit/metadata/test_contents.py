"""Contents of znodes equal Kafka 3.9.1's byte for byte; hostile bytes are errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.metadata.admin_contents import LogDirEvent, Partitions, Reassignment
from krust.metadata.contents import (
    BrokerRegistration,
    ClusterId,
    ConfigChange,
    ConsumerRegistration,
    ControllerRegistration,
    Endpoint,
    EntityConfig,
    Features,
    PartitionState,
    ProducerIds,
    TopicAssignment,
)
from krust.metadata.json_fields import BadZnodeError, number

KAFKA = json.loads((Path(__file__).parents[2] / "data/znodes-3.9.1.json").read_text())


class Content(Protocol):
    def encode(self) -> bytes: ...


DECODERS: dict[str, Callable[[bytes], Content | None]] = {
    "/brokers/ids": BrokerRegistration.decode,
    "/brokers/topics": TopicAssignment.decode,
    "/state": PartitionState.decode,
    "/cluster/id": ClusterId.decode,
    "/config/changes": ConfigChange.decode,
    "/config/topics": EntityConfig.decode,
    "/controller": ControllerRegistration.decode,
    "/feature": Features.decode,
    "/latest_producer_id_block": ProducerIds.decode,
    "/admin/preferred_replica_election": Partitions.decode,
    "/admin/reassign_partitions": Reassignment.decode,
    "/log_dir_event_notification": LogDirEvent.decode,
    "/consumers/g/ids": ConsumerRegistration.decode,
}


def decoder(path: str) -> Callable[[bytes], Content | None]:
    if path.endswith("/state"):
        return DECODERS["/state"]
    return DECODERS[max((each for each in DECODERS if path.startswith(each)), key=len)]


@pytest.mark.parametrize("path", [path for path, node in KAFKA.items() if node["data"]])
def test_data_that_kafka_wrote_is_read_and_written_unchanged(path: str) -> None:
    data = KAFKA[path]["data"].encode()
    if path == "/controller_epoch":
        assert number(data) == 1
        return
    read = decoder(path)(data)
    assert read is not None
    assert read.encode() == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"jmx_port": -1, "timestamp": "1", "host": "a", "version": 1, "port": 9},
            BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "a", 9),), timestamp_ms=1),
        ),
        (
            {"version": 2, "host": "a", "port": 9, "endpoints": ["PLAINTEXT://a:9"]},
            BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "a", 9),)),
        ),
        (
            {"version": 3, "endpoints": ["SSL://[::1]:9093"], "rack": "r", "timestamp": 7},
            BrokerRegistration((Endpoint("SSL", "SSL", "::1", 9093),), "r", 7),
        ),
        (
            {
                "version": 4,
                "listener_security_protocol_map": {"IN": "SASL_SSL"},
                "endpoints": ["IN://:1"],
                "host": None,
                "port": -1,
            },
            BrokerRegistration((Endpoint("IN", "SASL_SSL", "", 1),)),
        ),
        (
            {
                "version": 5,
                "endpoints": ["PLAINTEXT://a:9"],
                "features": {"f": {"min_version": 1, "max_version": 2}},
            },
            BrokerRegistration(
                (Endpoint("PLAINTEXT", "PLAINTEXT", "a", 9),), features=(("f", 1, 2),)
            ),
        ),
    ],
)
def test_brokers_of_every_version_are_read(data: Any, expected: BrokerRegistration) -> None:
    assert BrokerRegistration.decode(json.dumps(data).encode()) == expected


def test_topics_of_every_version_are_read() -> None:
    first = {"version": 1, "partitions": {"1": [2], "0": [1, 2]}}
    assert TopicAssignment.decode(json.dumps(first).encode()) == TopicAssignment(((1, 2), (2,)))
    second = {**first, "version": 2, "adding_replicas": {"0": [3]}, "removing_replicas": {}}
    assert TopicAssignment.decode(json.dumps(second).encode()).adding == ((0, (3,)),)


def test_a_change_notification_of_version_1_is_read() -> None:
    data = b'{"version":1,"entity_type":"topics","entity_name":"a"}'
    assert ConfigChange.decode(data) == ConfigChange("topics/a")


def test_an_empty_node_holds_no_block_of_producer_ids() -> None:
    assert ProducerIds.decode(b"") is None


BAD = [
    (BrokerRegistration.decode, b'{"version":6,"endpoints":["PLAINTEXT://a:9"]}', "version is 6"),
    (BrokerRegistration.decode, b'{"version":5,"endpoints":[]}', "no endpoint"),
    (
        BrokerRegistration.decode,
        b'{"version":5,"endpoints":["PLAINTEXT://a:99999"]}',
        "is no endpoint",
    ),
    (BrokerRegistration.decode, b'{"version":5}', "no endpoints"),
    (BrokerRegistration.decode, b"[" * 100_000, "no JSON"),
    (TopicAssignment.decode, b'{"version":3,"partitions":{"2000000000":[0]}}', "not numbered"),
    (TopicAssignment.decode, b'{"version":3,"partitions":{"0":[]}}', "no replica"),
    (TopicAssignment.decode, b'{"version":3,"partitions":{"0":[1,1]}}', "twice"),
    (TopicAssignment.decode, b'{"version":3,"partitions":{"00":[1]}}', "is no partition"),
    (TopicAssignment.decode, b'{"version":3,"partitions":{"0":[true]}}', "no whole number"),
    (
        TopicAssignment.decode,
        b'{"version":3,"partitions":{"0":[0]},"topic_id":"../x"}',
        "no topic id",
    ),
    (PartitionState.decode, b'{"version":1,"leader":0,"leader_epoch":-1,"isr":[]}', "no contr"),
    (PartitionState.decode, b"null", "no object"),
    (PartitionState.decode, b"\xff", "no JSON"),
    (EntityConfig.decode, b'{"version":1,"config":{"a":1}}', "no text"),
    (EntityConfig.decode, b'{"version":1,"config":{"a":"\\ud800"}}', "no JSON"),
    (ProducerIds.decode, b'{"version":1,"broker":0,"block_start":"9","block_end":"3"}', "block"),
    (ProducerIds.decode, b'{"version":1,"broker":0,"block_start":"1e3","block_end":"3"}', "no num"),
    (ClusterId.decode, b'{"version":"2","id":"x"}', "version is not 1"),
    (number, b"9" * 5000, "no number"),
    (number, "\uff11".encode(), "no number"),
]


@pytest.mark.parametrize(("decode", "data", "why"), BAD)
def test_an_invalid_znode_is_refused_with_the_reason(
    decode: Callable[[bytes], object], data: bytes, why: str
) -> None:
    with pytest.raises(BadZnodeError, match=why):
        decode(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
KEYS = [
    "version", "id", "brokerid", "timestamp", "endpoints", "listener_security_protocol_map",
    "host", "port", "rack", "features", "partitions", "topic_id", "adding_replicas", "topic",
    "removing_replicas", "controller_epoch", "leader", "leader_epoch", "isr", "config", "broker",
    "block_start", "block_end", "entity_path", "status", "event", "subscription", "pattern",
    "partition", "replicas", "entity_type", "entity_name", "jmx_port",
]  # fmt: skip
OBJECTS = st.dictionaries(
    st.sampled_from(KEYS),
    JSON | st.sampled_from([1, 2, 3, "1", [], {}, "0", [{}], {"0": [0]}, ["A://b:1"]]),
)


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=40) | OBJECTS | JSON)
def test_anything_is_a_value_or_a_bad_znode(path: str, value: object) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    read, why = None, ""
    try:
        read = DECODERS[path](data)
    except BadZnodeError as error:
        why = str(error)
    assert len(why.encode()) < 1000
    if read is not None:
        assert DECODERS[path](read.encode()) == read


@given(st.sampled_from([path for path, node in KAFKA.items() if node["data"]]), st.data())
def test_kafkas_data_with_one_change_is_a_value_or_a_bad_znode(
    path: str, draw: st.DataObject
) -> None:
    value = json.loads(KAFKA[path]["data"])
    if not isinstance(value, dict):
        return
    key = draw.draw(st.sampled_from(sorted(value)))
    if draw.draw(st.booleans()):
        del value[key]
    else:
        value[key] = draw.draw(JSON)
    try:
        decoder(path)(json.dumps(value).encode())
    except BadZnodeError:
        return


SMALL = st.integers(0, 2**31 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
REPLICAS = st.lists(SMALL, min_size=1, max_size=3, unique=True).map(tuple)
PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_SSL"]
ENDPOINTS = st.builds(
    Endpoint,
    st.sampled_from(["IN", "OUT"]),
    st.sampled_from(PROTOCOLS),
    st.sampled_from(["a", "::1", "h.x"]),
    st.integers(0, 65535),
)
CONTENTS = st.one_of(
    st.builds(ClusterId, NAMES),
    st.builds(ControllerRegistration, SMALL, SMALL),
    st.builds(
        BrokerRegistration,
        st.lists(ENDPOINTS, min_size=1, unique_by=lambda each: each.listener).map(tuple),
        st.none() | NAMES,
        SMALL,
        st.lists(st.tuples(NAMES, SMALL, SMALL), unique_by=lambda each: each[0]).map(tuple),
        SMALL,
        st.none() | st.integers(-1, 2**63 - 1),
    ),
    st.lists(REPLICAS, min_size=1, max_size=4).map(
        lambda each: TopicAssignment(tuple(each), "x" * 22)
    ),
    st.builds(lambda moved: TopicAssignment(((0, 1),), "", ((0, moved),), ((0, (1,)),)), REPLICAS),
    st.builds(PartitionState, SMALL, st.integers(-1, 9), SMALL, REPLICAS, REPLICAS, REPLICAS),
    st.builds(EntityConfig, st.dictionaries(NAMES, NAMES)),
    st.builds(ConfigChange, NAMES),
    st.builds(lambda a, b: ProducerIds(1, a, a + b), SMALL, SMALL),
    st.builds(Features, st.dictionaries(NAMES, SMALL), st.booleans()),
    st.builds(Partitions, st.lists(st.tuples(NAMES, SMALL)).map(tuple)),
    st.builds(Reassignment, st.lists(st.tuples(NAMES, SMALL, REPLICAS)).map(tuple)),
    st.builds(LogDirEvent, SMALL),
    st.builds(
        ConsumerRegistration, st.dictionaries(NAMES, SMALL), st.sampled_from(["static"]), SMALL
    ),
)


@given(CONTENTS)
def test_written_data_is_read_back(content: Any) -> None:
    assert type(content).decode(content.encode()) == content


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_every_form_are_read(value: int) -> None:
    assert number(str(value).encode()) == value
