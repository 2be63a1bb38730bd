"""Fixtures that put a real broker into a test: krust_broker, krust_topic, krust_factory,
krust_cluster.

pytest loads this file in every run where krust is installed, whether a test wants a broker or not.
Therefore nothing but these functions happens at load: no native module, no network, no logging.
Under pytest-xdist each worker has its own broker; ports are always free ones.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krust.cluster import Cluster
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
    """Make brokers of the test's own: `krust_factory(config={"num.partitions": 3})`.

    Takes what `krust.Broker` takes and returns it started; all are stopped after the test, the
    newest first.
    """
    from krust.server import Broker

    with ExitStack() as stack:
        yield lambda *args, **settings: stack.enter_context(Broker(*args, **settings))


@pytest.fixture
def krust_cluster() -> Iterator[Cluster]:
    """Three brokers of the test's own, to kill, pause and start: `krust_cluster.kill(1)`."""
    from krust.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster


_NUMBER = pytest.StashKey[int]()


def _number(session: pytest.Session) -> int:
    """1, 2, 3 ... within one run, so that no two tests share a topic."""
    number = session.stash.get(_NUMBER, 0) + 1
    session.stash[_NUMBER] = number
    return number
