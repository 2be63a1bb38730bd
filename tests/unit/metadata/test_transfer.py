"""The plan of a transfer of a tree, and the obstacles to it."""

from __future__ import annotations

import pytest

from krust.metadata.cluster_tree import ClusterTree
from krust.metadata.contents import ClusterId, Features, TopicAssignment
from krust.metadata.store import Create, Delete, SetData
from krust.metadata.transfer import elsewhere, obstacle, writes

OURS = ClusterId("abcdefghijklmnopqrstuv").encode()
OTHERS = ClusterId("0123456789012345678901").encode()


def side(
    name: str = "one", cluster: bytes = OURS, epoch: bytes = b"3", **more: bytes
) -> ClusterTree:
    nodes = {"/cluster": b"", "/cluster/id": cluster, "/controller_epoch": epoch}
    return ClusterTree(name, nodes | {f"/{path}": data for path, data in more.items()}, ())


EMPTY = ClusterTree("empty", {}, ())


def test_an_empty_target_gets_every_node_with_parents_first_and_the_epoch_last() -> None:
    operations = writes(side(config=b"", brokers=b""), EMPTY)
    assert all(isinstance(each, Create) for each in operations)
    paths = [each.path for each in operations]
    assert paths == ["/brokers", "/cluster", "/cluster/id", "/config", "/controller_epoch"]


def test_finalized_features_are_not_carried_because_a_kafka_would_exit() -> None:
    finalized, none = Features({"transaction.version": 2}).encode(), Features({}).encode()
    source = side(feature=finalized)
    assert Create("/feature", none) in writes(source, EMPTY)
    assert writes(source, side(feature=none)) == []
    assert writes(side(feature=none), side(feature=finalized)) == []


def test_equal_nodes_are_kept_and_missing_ones_deleted_children_first() -> None:
    source = ClusterTree("new", {**side(epoch=b"4").nodes, "/config": b"x", "/a": b""}, ())
    target = ClusterTree("old", {**side().nodes, "/config": b"", "/b": b"", "/b/c": b""}, ())
    assert writes(source, target) == [
        Create("/a", b""),
        SetData("/config", b"x"),
        Delete("/b/c"),
        Delete("/b"),
        SetData("/controller_epoch", b"4"),
    ]
    assert writes(source, source) == []


@pytest.mark.parametrize("target", [EMPTY, side(), side(epoch=b"2")])
def test_an_empty_or_older_target_does_not_prevent_a_transfer(target: ClusterTree) -> None:
    assert obstacle(side(), target, force=False) is None


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (side()._replace(alive=("/controller",)), EMPTY, "in use: /controller"),
        (side(), side()._replace(alive=("/brokers/ids/1",)), "in use: /brokers/ids/1"),
        (EMPTY, side(), "no cluster in empty"),
        (side(), side("two", OTHERS), "two has cluster 0123"),
        (side(), side("two", epoch=b"5"), "two is newer: it has had 2 more"),
        (side(epoch=b"x"), EMPTY, "cannot be read"),
        (side(cluster=b"x"), EMPTY, "cannot be read"),
    ],
)
def test_an_obstacle_to_a_transfer_is_described(
    source: ClusterTree, target: ClusterTree, words: str
) -> None:
    problem = obstacle(source, target, force=False)
    assert problem is not None
    assert words in problem[0]
    assert problem[1]


def test_force_overwrites_a_newer_target_and_no_other_obstacle() -> None:
    assert obstacle(side(), side(epoch=b"5"), force=True) is None
    assert obstacle(side(), side("two", OTHERS), force=True) is not None


def test_topics_of_other_brokers_are_reported_and_bad_nodes_skipped() -> None:
    topics = {
        "/brokers/topics/here": TopicAssignment(((1,), (1,))).encode(),
        "/brokers/topics/there": TopicAssignment(((1,), (2,))).encode(),
        "/brokers/topics/both": TopicAssignment(((1, 2),)).encode(),
        "/brokers/topics/bad": b"?",
    }
    assert elsewhere(ClusterTree("x", topics, ()), 1) == ["both", "there"]
