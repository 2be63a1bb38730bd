"""kill -9 of driver, workers or broker while a stream writes with exactlyOnce: each row is there
once for read_committed readers.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ports import free_port
from tests.serving import ServedBroker
from tests.spark.conftest import (
    ALL,
    create,
    fill,
    others,
    reading,
    settings,
    until,
    values,
)
from tests.spark.test_stream import Job

pytest.importorskip("pyspark", reason="no pyspark here: pip install '.[spark]'")

from tests.spark.killing import start_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

COMMITTED = {"kafka__isolation__level": "read_committed"}


class Copy(Job):
    """A stream from one topic into another, exactly once."""

    @property
    def out(self) -> str:
        return f"{self.options['subscribe']}-out"

    def start(self, kind: str = "krust", **trigger: Any) -> StreamingQuery:
        return (
            self.source(kind)
            .selectExpr("key", "value")
            .writeStream.format("krust")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", self.out)
            .option("exactlyOnce", "true")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def has_committed(self, count: int) -> bool:
        """Whether this many micro-batches are done."""
        return len(self.batches("commits")) >= count

    def values(self) -> list[int]:
        """The numbers that read_committed readers see, sorted."""
        return values(reading(self.session, "krust", self.bootstrap, self.out, **COMMITTED))


@pytest.fixture
def copy(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Copy:
    create(bootstrap, f"{topic}-out", 3)
    return Copy(spark, bootstrap, topic, tmp_path)


def test_killed_workers_lose_and_duplicate_no_row(copy: Copy, topic: str) -> None:
    rows, kills = (60_000, 12) if ALL else (6_000, 2)
    fill(copy.bootstrap, topic, rows)
    copy.options["maxOffsetsPerTrigger"] = str(rows // 10)
    copy.run_while_workers_die(kills, seed=7)
    assert copy.values() == list(range(rows))


def test_a_killed_broker_loses_and_duplicates_no_row(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    """It comes back on its port; the stream has only waited, or is started again."""
    port, folder, rounds = free_port(), tmp_path / "broker", 5 if ALL else 1
    broker = ServedBroker(folder, "--prod", port=port)
    create(broker.bootstrap, name, 3)
    create(broker.bootstrap, f"{name}-out", 3)
    fill(broker.bootstrap, name, 9_000 * rounds)
    copy = Copy(spark, broker.bootstrap, name, tmp_path, maxOffsetsPerTrigger="900")
    rng = random.Random(11)
    query = copy.start()
    try:
        for _ in range(rounds):
            wanted = len(copy.batches("commits")) + 4
            until(partial(copy.has_committed, wanted))
            time.sleep(rng.uniform(0, 0.5))  # a random moment of a micro-batch
            broker.kill()
            broker = ServedBroker(folder, "--prod", port=port)
            if not query.isActive:
                query = copy.start()
        with suppress(Exception):  # it waited long enough, or has to be started again
            query.awaitTermination(60)
        query.stop()
        copy.run()
        assert copy.values() == list(range(9_000 * rounds))
    finally:
        broker.kill()


@pytest.mark.parametrize(
    "step",
    ["between two transactions", *others("before the decision", "after the decision")],
)
def test_a_driver_killed_in_a_commit_loses_and_duplicates_no_row(
    copy: Copy, topic: str, tmp_path: Path, step: str
) -> None:
    """Nor does a micro-batch that Spark repeats though all of it is committed."""
    fill(copy.bootstrap, topic, 700)
    driver = start_driver(
        {
            "bootstrap": copy.bootstrap,
            "topic": topic,
            "out": copy.out,
            "checkpoint": str(copy.checkpoint),
            "step": step,
            "batch": 2,
            "endless": False,
            "conf": settings(tmp_path, []),
        },
        tmp_path / "driver.log",
    )
    assert driver.wait(200) != 0
    assert copy.batches("offsets") == [0, 1, 2], (tmp_path / "driver.log").read_text()[-2000:]
    assert copy.batches("commits") == [0, 1]
    fill(copy.bootstrap, topic, 100, first=700)
    copy.options["maxOffsetsPerTrigger"] = "300"
    copy.run()
    assert copy.values() == list(range(800))
    copy.forget(copy.batches("commits")[-1])
    copy.run()
    assert copy.values() == list(range(800))
