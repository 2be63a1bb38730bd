"""A ZooKeeper for all tests of clusters, and three brokers on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.brokers import Cluster
from tests.peers import zookeeper as peer


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers that all tests share; skipped with the reason if there is no ZooKeeper."""
    if reason := peer.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "zk").mkdir()
    with (
        peer.running(folder / "zk") as ensemble,
        Cluster(folder, f"{ensemble.connect}/kafka") as cluster,
    ):
        yield cluster


@pytest.fixture
def three(shared: Cluster) -> Cluster:
    """Three brokers that run and know each other again, whatever the last test did to them."""
    shared.repair()
    return shared
