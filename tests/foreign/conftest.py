"""One broker for all foreign clients; KRUST_TEST_BOOTSTRAP=host:port puts another in its place."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import Served

_NUMBER = itertools.count(1)
_SCRIPT = Path(__file__).parents[1] / "peers/kafka.sh"


def jars(version: str) -> str:
    """The folder with the jars of a Kafka; the test is skipped where they cannot be had."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    run = subprocess.run([_SCRIPT, "jars", version], capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip(f"Maven has no jars for us: {(run.stderr or run.stdout)[-200:]}")
    return run.stdout.strip()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker that auto-creates topics."""
    other = os.environ.get("KRUST_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with Served(tmp_path_factory.mktemp("foreign") / "data", "--prod") as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic with one partition."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"foreign-{os.getpid()}-{next(_NUMBER)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name
