"""What the throughput benches share: a broker, topics, and the calibration of the run.

`pytest benches` measures a `krust serve` of its own; `--bootstrap HOST:PORT` any broker. A figure
depends on the machine and on what else runs there, so the JSON of a run also has how long a fixed
loop took in it (`calibration_s`, the median of one before each bench): figures of two runs are
compared as multiples of their own. `make test` does not collect this folder.
"""

from __future__ import annotations

import statistics
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from krust import _krust
from krust.clients.leaders import wait_for_leaders
from tests.serving import ServedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPS = pytest.StashKey[list[float]]()
PATIENCE_S = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bootstrap", metavar="HOST:PORT", help="Measure this broker.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.option.benchmark_disable = False  # tests have it off
    config.stash[LOOPS] = []


def loop_s() -> float:
    """Seconds of a fixed work: checksums and small objects, as clients and brokers do."""
    data, begin = bytes(1 << 20), time.perf_counter()
    for _ in range(20):
        zlib.crc32(data)
    table = {number: str(number) for number in range(50_000)}
    assert len(table) == 50_000
    return time.perf_counter() - begin


@pytest.fixture(autouse=True)
def calibrated(request: pytest.FixtureRequest) -> None:
    request.config.stash[LOOPS].append(loop_s())


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    output_json["calibration_s"] = statistics.median(config.stash[LOOPS])
    output_json["peer"] = config.option.bootstrap or "krust"


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The broker that is measured."""
    if request.config.option.bootstrap:
        yield request.config.option.bootstrap
        return
    with ServedBroker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def asked(bootstrap: str) -> _krust.Client:
    """A client for orders."""
    return _krust.Client(bootstrap)


@pytest.fixture
def make_topic(asked: _krust.Client) -> Iterator[Callable[[int], str]]:
    """Makes a topic of so many partitions; it goes when the bench is over."""
    made: list[str] = []

    def make(partitions: int) -> str:
        name = f"bench-{uuid.uuid4().hex[:12]}"
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        body = {"topics": [topic | {"configs": []}], "timeout_ms": 10_000, "validate_only": False}
        [answer] = asked.request("CreateTopics", body)["topics"]
        assert not answer["error_code"], answer
        made.append(name)
        assert wait_for_leaders(asked, name, partitions, PATIENCE_S)
        return name

    yield make
    for name in made:
        body = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": 10_000}
        asked.request("DeleteTopics", body)
