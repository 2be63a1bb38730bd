"""A core without policies, and one ZooKeeper for all tests that want one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from krust._krust import Server
from tests.peers import zookeeper as peer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peer.Ensemble]:
    """A ZooKeeper of one server; the test is skipped, with the reason, where there is none."""
    if reason := peer.missing():
        pytest.skip(reason)
    with peer.running(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A core that runs, and whose events nobody has taken yet."""
    config = {"node_id": 0, "cluster_id": None, "log_dirs": [str(tmp_path)], "temporary": True}
    server = Server({**config, "threads": 1, "settings": {}})
    server.load()
    server.join("abcdefghijklmnopqrstuv")
    server.start()
    yield server
    server.stop()
