"""A ZooKeeper for all tests of clusters, and three brokers for each file of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster.brokers import Cluster
from tests.peers import zookeeper as peer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peer.Ensemble]:
    """One server; the test is skipped, with the reason, where there is none."""
    if reason := peer.missing():
        pytest.skip(reason)
    with peer.running(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def three(zookeeper: peer.Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers that all tests of a file share."""
    where = f"{zookeeper.connect}/kafka/{uuid.uuid4().hex}"
    with Cluster(tmp_path_factory.mktemp("three"), where) as cluster:
        yield cluster
