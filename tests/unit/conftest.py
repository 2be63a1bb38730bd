"""One ZooKeeper for all tests that want one; each has a chroot of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers import zookeeper as peer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peer.Ensemble]:
    """A ZooKeeper of one server; the test is skipped, with the reason, where there is none."""
    if reason := peer.missing():
        pytest.skip(reason)
    with peer.running(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble
