"""One broker for all foreign clients; KRUST_TEST_BOOTSTRAP=host:port names another one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.serving import ServedBroker

_NUMBER = itertools.count(1)


def jars(version: str) -> str:
    """The folder with the jars of a Kafka; the test is skipped where they cannot be had."""
    try:
        return str(kafka.jars(version))
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _java_where_wanted(request: pytest.FixtureRequest) -> None:
    """Skip tests that need Java, with the reason, if there is none."""
    if request.node.get_closest_marker("java") and (reason := kafka.missing()):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker that auto-creates topics."""
    other = os.environ.get("KRUST_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with ServedBroker(tmp_path_factory.mktemp("foreign") / "data", "--prod") as broker:
        yield broker.bootstrap


def create(bootstrap: str) -> str:
    """Make a topic with one partition; its name, which nothing else uses."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"foreign-{os.getpid()}-{next(_NUMBER)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic with one partition."""
    return create(bootstrap)
