"""One Spark session for all tests of `format("krust")`, and one broker, which is a process.

By default each kind of case is there; KRUST_SPARK_ALL, which `make spark` sets, adds the others of
its kind (`others`) and the long ones.

The session has the official connector's jars where Maven has them, so that both sources read the
same topics. Without pyspark or Java everything here is skipped, and says so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.serving import ServedBroker
from tests.spark import class_archive, jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Found = TypeVar("_Found")
HERE = Path(__file__).parent
ALL = bool(os.environ.get("KRUST_SPARK_ALL"))
_NUMBER = itertools.count(1)
_COMPACTING: dict[str, object] = {
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.dedupe.buffer.size": 10_000_000,
    "log.retention.check.interval.ms": 500,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.filterwarnings("default"))  # Spark's own sockets and such


def others(*cases: Any) -> tuple[Any, ...]:
    """Cases of `make spark` alone."""
    return cases if ALL else ()


def environment() -> dict[str, str]:
    """What a JVM of a test, and each process it starts, has around it: they start quickly."""
    found = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    found["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(HERE / "site"), os.getenv("PYTHONPATH")))
    )
    return found | {
        "JAVA_TOOL_OPTIONS": class_archive.QUICK,
        "SPARK_SUBMIT_OPTS": class_archive.options(),
    }


def settings(folder: Path, jar_files: list[str]) -> dict[str, str]:
    """What a Spark in a test is started with: loopback only, nothing outside `folder`."""
    found = {
        "spark.master": "local[2,4]",  # a task may fail three times
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    if jar_files:
        found["spark.jars"] = ",".join(jar_files)
    return found


@pytest.fixture(scope="session")
def _official() -> tuple[list[str], str]:
    return jars.official()


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, _official: tuple[list[str], str]
) -> Iterator[SparkSession]:
    """The session. `format("krust")` is found by itself: nobody registers it."""
    pytest.importorskip("pyspark", reason="no pyspark here: pip install '.[spark]'")
    pytest.importorskip("pyarrow", reason="no pyarrow here: pip install '.[spark]'")
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("krust")
    for name, value in settings(tmp_path_factory.mktemp("spark"), _official[0]).items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    yield session
    session.stop()


@pytest.fixture
def official(_official: tuple[list[str], str]) -> str:
    """The format of the official connector; the test is skipped where its jars are not there."""
    if not _official[0]:
        pytest.skip(_official[1])
    return "kafka"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """The broker."""
    folder = tmp_path_factory.mktemp("broker")
    with ServedBroker(folder / "data", "--prod", options=_COMPACTING) as broker:
        yield broker


@pytest.fixture(scope="session")
def log_dir(served: ServedBroker) -> str:
    """Where its files are."""
    return str(served.data_dir)


@pytest.fixture(scope="session")
def bootstrap(served: ServedBroker) -> str:
    """Its address."""
    return served.bootstrap


@pytest.fixture
def name() -> str:
    """A topic's name that nothing else uses."""
    return f"spark-{next(_NUMBER)}"


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """A new topic with three partitions."""
    create(bootstrap, name, 3)
    return name


def create(bootstrap: str, name: str, partitions: int = 1, **config: object) -> None:
    """Make a topic; settings with `_` for `.`."""
    import krust

    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        found = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topic(name, partitions, config=found)


def fill(
    bootstrap: str, topic: str, count: int, *, first: int = 0, partitions: int = 3, **more: Any
) -> None:
    """Write records `first` .. `first + count`: value `v7`, key `k0`, to partition 7 % 3."""
    import krust

    with krust.Producer(bootstrap_servers=bootstrap, **more) as producer:
        for number in range(first, first + count):
            key = None if number % 5 == 0 else b"k%d" % (number % 7)
            headers = [("n", b"%d" % number), ("n", None)] if number % 3 == 0 else None
            producer.produce(topic, b"v%d" % number, key, number % partitions, headers=headers)


def reading(
    session: SparkSession, kind: str, bootstrap: str, topic: str | None, **more: str | None
) -> DataFrame:
    """A batch read of a topic; options with `__` for `.`, None: not given."""
    reader = session.read.format(kind).option("kafka.bootstrap.servers", bootstrap)
    for key, value in {"subscribe": topic, **more}.items():
        if value is not None:
            reader = reader.option(key.replace("__", "."), value)
    return reader.load()


_SUMMARY = [
    "count(*)",
    "sum(cast(hash AS decimal(38,0)))",
    *("count(DISTINCT offset)", "min(offset)", "max(offset)"),
]


def fingerprint(frame: DataFrame) -> dict[tuple[str, int], tuple[object, ...]]:
    """Rows, hash over all columns, offsets and their range, of each partition."""
    from pyspark.sql.functions import expr

    rows = (
        frame.selectExpr("*", f"xxhash64({', '.join(frame.columns)}) AS hash")
        .groupBy("topic", "partition")
        .agg(*map(expr, _SUMMARY))
        .collect()
    )
    return {(row.topic, row.partition): tuple(row)[2:] for row in rows}


def values(frame: DataFrame) -> list[int]:
    """The numbers in values that `fill` wrote, sorted."""
    return sorted(int(bytes(row.value)[1:]) for row in frame.select("value").collect())


def until(look: Callable[[], _Found], seconds: float = 60) -> _Found:
    """What `look` finds, once that is something. AssertionError: not in time."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"{look} found nothing in {seconds} s"
        time.sleep(0.02)
