"""What a transfer may replace in its target, and which nodes are foreign."""

from __future__ import annotations

import pytest

from krust.metadata.cluster_tree import ClusterTree
from krust.metadata.contents import (
    ASSUMED,
    EntityConfig,
    PartitionState,
    ProducerIds,
    TopicAssignment,
)
from krust.metadata.differences import differences, empty, kept, subject, written
from krust.metadata.store import Create, Delete, SetData
from krust.metadata.transfer import writes

STATE = "/brokers/topics/orders/partitions/0/state"
BASE = {"/brokers": b"", "/brokers/topics": b"", "/config": b"", "/config/topics": b""}
ORDERS = {
    "/brokers/topics/orders": TopicAssignment(((0,),)).encode(),
    "/config/topics/orders": EntityConfig({"retention.ms": "86400000"}).encode(),
    STATE: PartitionState(1, 0, 3, (0,)).encode(),
}
KEEPS = "cleanup.policy=delete, retention.bytes=-1, retention.ms=-1"
QUOTA = {"/config/clients/shop": EntityConfig({"producer_byte_rate": "1024"}).encode()}


def side(*parts: dict[str, bytes]) -> ClusterTree:
    nodes = dict(BASE)
    for part in parts:
        nodes |= part
    return ClusterTree("a side", nodes, ())


TAKEN = {**ORDERS, "/config/topics/orders": EntityConfig(ASSUMED).encode()}
"""As a directory shows it, when it was taken over without its settings."""


def test_settings_and_quotas_that_were_not_written_from_here_are_foreign() -> None:
    found = differences(side(TAKEN), side(ORDERS, QUOTA), {})
    assert [each.foreign for each in found] == [True, True]
    assert [str(each) for each in found] == [
        "quotas of client shop: producer_byte_rate=1024 -> producer_byte_rate=(removed)",
        f"settings of topic orders: retention.ms=86400000 -> {KEEPS}",
    ]


def test_kept_settings_stay_and_the_others_are_transferred() -> None:
    later = {**TAKEN, STATE: PartitionState(2, 0, 4, (0,)).encode()}
    source, target = side(later), side(ORDERS, QUOTA)
    stays = kept(differences(source, target, {}))
    assert stays == {"/config/clients/shop", "/config/topics/orders"}
    assert writes(source, target, stays) == [SetData(STATE, later[STATE])]
    assert [type(each) for each in writes(source, target)] == [SetData, SetData, Delete]


def test_nodes_of_the_last_transfer_may_be_replaced_and_removed() -> None:
    before = side(ORDERS, QUOTA)
    changed = EntityConfig({"retention.ms": "5"}).encode()
    now = side(ORDERS, {"/config/topics/orders": changed})
    found = differences(now, before, written(before.nodes, ()))
    assert [(each.path, each.foreign) for each in found] == [
        ("/config/clients/shop", False),
        ("/config/topics/orders", False),
    ]


def test_kept_settings_are_foreign_in_the_next_transfer_as_well() -> None:
    source, target = side(TAKEN), side(ORDERS, QUOTA)
    stays = kept(differences(source, target, {}))
    again = differences(source, target, written(target.nodes, stays))
    assert [each.foreign for each in again] == [True, True]


def test_assumed_settings_are_replaced_by_those_that_are_known() -> None:
    (found,) = differences(side(ORDERS), side(TAKEN), {})
    assert not found.foreign


@pytest.mark.parametrize(("epoch", "foreign"), [(2, True), (3, None), (4, False)])
def test_a_leader_epoch_that_falls_is_foreign(epoch: int, foreign: bool | None) -> None:
    source = side(ORDERS, {STATE: PartitionState(1, 0, epoch, (0,)).encode()})
    assert [each.foreign for each in differences(source, side(ORDERS), {})] == (
        [] if foreign is None else [foreign]
    )


def test_producer_ids_never_fall() -> None:
    path = "/latest_producer_id_block"
    low, high = ({path: ProducerIds(0, n, n + 999).encode()} for n in (0, 5000))
    assert differences(side(low), side(high), {}) == []
    assert writes(side(low), side(high)) == []
    assert writes(side(high), side(low)) == [SetData(path, high[path])]


def test_a_topic_of_the_target_alone_is_deleted_or_kept_entirely() -> None:
    parts = {"/brokers/topics/orders/partitions": b"", "/brokers/topics/orders/partitions/0": b""}
    target = side(ORDERS, parts)
    found = differences(side(), target, {})
    assert {each.subject for each in found} == {
        "topic orders",
        "partitions of topic orders",
        "leader of orders:0",
        "settings of topic orders",
    }
    assert writes(side(), target, kept(found)) == []
    assert len(writes(side(), target)) == 5


def test_equal_settings_in_another_notation_are_no_difference() -> None:
    other = {
        "/config/topics/orders": b'{"config": {"retention.ms": "86400000"}, "version": 1}',
        "/brokers/topics/orders": ORDERS["/brokers/topics/orders"].replace(b":", b": "),
    }
    assert differences(side(ORDERS), side(ORDERS, other), {}) == []


def test_empty_nodes_of_the_target_alone_are_left_alone() -> None:
    source, target = side(), side({"/kafka-acl": b"", "/kafka-acl/Topic": b""})
    assert differences(source, target, {}) == []
    assert writes(source, target, empty(source, target, {})) == []
    assert writes(target, source) == [Create("/kafka-acl", b""), Create("/kafka-acl/Topic", b"")]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/brokers/topics/a.b", "topic a.b"),
        (STATE, "leader of orders:0"),
        ("/config/topics/orders", "settings of topic orders"),
        ("/config/brokers/3", "settings of broker 3"),
        ("/config/users/a%20b", "quotas of user a b"),
        ("/config/users/ann/clients/shop", "quotas of user ann, client shop"),
        ("/config/ips/10.0.0.1", "quotas of IP 10.0.0.1"),
        ("/consumers/g/offsets/t/0", "/consumers/g/offsets/t/0"),
    ],
)
def test_differences_name_topics_and_settings_as_users_do(path: str, words: str) -> None:
    assert subject(path) == words
