"""kill -9 of workers, broker or driver while a stream runs: the table has every row once."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ports import free_port
from tests.serving import ServedBroker
from tests.spark.conftest import (
    ALL,
    create,
    environment,
    fill,
    fingerprint,
    settings,
    until,
    values,
)
from tests.spark.test_stream import Job
from tests.waiting import WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_killed_workers_lose_and_duplicate_no_row(job: Job, topic: str) -> None:
    rows, kills = (60_000, 6) if ALL else (20_000, 3)
    fill(job.bootstrap, topic, rows)
    job.options["maxOffsetsPerTrigger"] = str(rows // 10)
    job.run_while_workers_die(kills, seed=3)
    assert job.values() == list(range(rows))


def test_a_killed_broker_loses_and_duplicates_no_row(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    """It comes back on its port; the stream has only waited, or is started again."""
    port = free_port()
    folder = tmp_path / "broker"
    broker = ServedBroker(folder, "--prod", port=port)
    create(broker.bootstrap, name, 3)
    fill(broker.bootstrap, name, 30_000)
    job = Job(spark, broker.bootstrap, name, tmp_path, maxOffsetsPerTrigger="3000")
    query = job.start()
    until(lambda: len(job.batches("commits")) > 3)
    broker.kill()
    with socket.create_server(("127.0.0.1", port)) as listener:  # the stream misses its broker
        listener.settimeout(WAIT_S)
        listener.accept()[0].close()
    broker = ServedBroker(folder, "--prod", port=port)
    try:
        with suppress(Exception):  # it waited long enough, or has to be started again
            query.awaitTermination(60)
        query.stop()
        fill(broker.bootstrap, name, 30, first=30_000)
        job.run()
        assert job.values() == list(range(30_030))
    finally:
        broker.kill()


DRIVER = """
import os, signal, sys
from pyspark.sql import SparkSession
import json
bootstrap, topic, folder, batch, conf = sys.argv[1:]
builder = SparkSession.builder
for name, value in json.loads(conf).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
stream = (
    spark.readStream.format("krust")
    .option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "300").load()
)
jvm = spark._jvm.java.lang.ProcessHandle.current().pid()

def take(frame, number):
    frame.write.mode("overwrite").parquet(f"{folder}/batches/{number}")
    if number == int(batch):
        os.kill(jvm, signal.SIGKILL)

query = (
    stream.writeStream.foreachBatch(take).trigger(availableNow=True)
    .option("checkpointLocation", f"{folder}/checkpoint").start()
)
query.awaitTermination()
"""


def test_a_driver_killed_after_planning_repeats_the_same_micro_batch(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Its micro-batch is logged, not done; another driver does exactly the same one again."""
    import json

    fill(bootstrap, topic, 1500)
    conf = settings(tmp_path, [])
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, bootstrap, topic, str(tmp_path), "3", json.dumps(conf)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment(),
    )
    assert run.returncode != 0
    job = Job(spark, bootstrap, topic, tmp_path, maxOffsetsPerTrigger="300")
    assert job.batches("offsets") == [0, 1, 2, 3], run.stderr[-2000:]
    assert job.batches("commits") == [0, 1, 2]
    before = fingerprint(spark.read.parquet(str(tmp_path / "batches/3")))
    fill(bootstrap, topic, 100, first=1500)

    def take(frame: Any, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(tmp_path / f"batches/{number}"))

    stream = job.source().writeStream.foreachBatch(take).trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(job.checkpoint)).start()
    assert query.awaitTermination(120)
    assert fingerprint(spark.read.parquet(str(tmp_path / "batches/3"))) == before
    whole = spark.read.schema("value binary").parquet(str(tmp_path / "batches/*"))
    assert values(whole) == list(range(1600))


@pytest.fixture
def job(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Job:
    return Job(spark, bootstrap, topic, tmp_path)
