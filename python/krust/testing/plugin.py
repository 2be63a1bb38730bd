"""Fixtures with real brokers: krust_broker, krust_topic, krust_factory, krust_secure_broker,
krust_cluster.

A mark sets the number of brokers of `krust_cluster`, their settings, topics and security, and all
but the number for `krust_secure_broker`:

    @pytest.mark.krust(brokers=3, topics={"orders": 6}, replication_factor=3, config={...},
                       secure=krust.Security(users={"app": None}, acls_for_users=False))

pytest loads this file in every run if krust is installed, even if no test needs a broker. So
loading it only defines these functions: no native module, no network, no logging. With pytest-xdist
each worker has its own broker. Ports are always free ones.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from krust.cluster import Cluster
    from krust.security.security import Security
    from krust.server import Broker


@pytest.fixture(scope="session")
def krust_broker() -> Iterator[Broker]:
    """A broker for the whole run, on a free port, in a temporary directory."""
    from krust.server import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def krust_topic(krust_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, named after the test."""
    readable = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:60]
    name = f"{readable}-{_number(request.session)}"
    krust_broker.create_topic(name, partitions=1)
    return name


@pytest.fixture
def krust_factory() -> Iterator[Callable[..., Broker]]:
    """Start brokers for this test: `krust_factory(config={"num.partitions": 3})`.

    The arguments are those of `krust.Broker`. All brokers are stopped after the test, the newest
    first.
    """
    from krust.server import Broker

    with ExitStack() as stack:
        yield lambda *args, **settings: stack.enter_context(Broker(*args, **settings))


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "krust(brokers=3, topics={}, replication_factor=None, config={}, secure=False): "
        "the brokers of krust_cluster (or krust_secure_broker), and what they have when the test "
        "begins",
    )


@pytest.fixture
def krust_secure_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test with TLS, logins and ACLs.

    Its users are admin, alice and bob: `krust_secure_broker.client_settings("bob")`. The mark
    `krust` sets others, with and without ACLs.
    """
    mark = request.node.get_closest_marker("krust")
    with _secure_broker(**({} if mark is None else mark.kwargs)) as broker:
        yield broker


def _secure_broker(
    *,
    topics: Mapping[str, int] | None = None,
    config: Mapping[str, object] | None = None,
    secure: bool | Security = True,
) -> Broker:
    """Start a broker and create topics, which map names to numbers of partitions."""
    from krust.server import Broker

    broker = Broker(config=config, secure=secure)
    try:
        for name, partitions in (topics or {}).items():
            broker.create_topic(name, partitions)
    except BaseException:
        broker.close()
        raise
    return broker


@pytest.fixture
def krust_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers for this test, to kill, pause and start: `krust_cluster.kill(1)`.

    The mark `krust` changes their number and settings, and creates topics.
    """
    mark = request.node.get_closest_marker("krust")
    with _cluster(**({} if mark is None else mark.kwargs)) as cluster:
        yield cluster


def _cluster(
    *,
    brokers: int = 3,
    topics: Mapping[str, int] | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, object] | None = None,
    secure: bool | Security = False,
) -> Cluster:
    """Start a cluster and create topics, which map names to numbers of partitions."""
    from krust.cluster import Cluster

    cluster = Cluster(brokers, config=config, secure=secure)
    try:
        for name, partitions in (topics or {}).items():
            cluster.create_topic(name, partitions, replication_factor=replication_factor)
    except BaseException:
        cluster.close()
        raise
    return cluster


_NUMBER = pytest.StashKey[int]()


def _number(session: pytest.Session) -> int:
    """1, 2, 3 ... within one run, so that no two tests share a topic."""
    number = session.stash.get(_NUMBER, 0) + 1
    session.stash[_NUMBER] = number
    return number
