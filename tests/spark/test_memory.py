"""A long-running stream takes no more memory, connections and processes than at first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.serving import ServedBroker
from tests.spark.conftest import ALL, fill, until
from tests.spark.processes import descendants
from tests.spark.test_stream import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES, EARLY = 200, 40


class Cost(NamedTuple):
    processes: int
    bytes: int
    connections: int


def cost(served: ServedBroker) -> Cost:
    """Of Spark's Python processes, and what the broker holds open for all of them."""
    resident = []
    for pid in descendants(os.getpid()):
        try:
            if b"pyspark" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            if b"java" in Path(f"/proc/{pid}/comm").read_bytes():
                continue
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
    return Cost(len(resident), sum(resident), served.descriptors())


@pytest.mark.skipif(not ALL, reason=f"{BATCHES} micro-batches: make spark")
def test_two_hundred_micro_batches_take_the_memory_of_forty(
    spark: SparkSession, served: ServedBroker, topic: str, tmp_path: Path
) -> None:
    fill(served.bootstrap, topic, 300 * (BATCHES - 1))
    job = Job(spark, served.bootstrap, topic, tmp_path, maxOffsetsPerTrigger="300")
    query = job.start()
    until(lambda: query.lastProgress and query.lastProgress.batchId >= EARLY)
    early = cost(served)
    until(lambda: query.lastProgress.batchId >= BATCHES - 2, 200)
    late = cost(served)
    assert query.awaitTermination(60)
    print(f"{early} -> {late}")
    assert job.values() == list(range(300 * (BATCHES - 1)))
    assert late.processes <= early.processes
    assert late.bytes < early.bytes * 1.05 + (4 << 20)
    assert late.connections <= early.connections + 4  # those of the moment
