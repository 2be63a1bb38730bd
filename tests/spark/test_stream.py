"""Streams: the pinned start, limits, AvailableNow, restarts, partitions that come and go."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import create, fill, others, reading, until, values
from tests.spark.processes import workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Job:
    """A stream from a topic into Parquet, with a checkpoint of its own; can be run again."""

    def __init__(
        self, session: SparkSession, bootstrap: str, topic: str | None, folder: Path, **more: str
    ) -> None:
        self.session, self.bootstrap, self.folder = session, bootstrap, folder
        self.options = {"subscribe": topic, "startingOffsets": "earliest", **more}
        self.checkpoint, self.table = folder / "checkpoint", folder / "table"

    def source(self, kind: str = "krust") -> DataFrame:
        reader = self.session.readStream.format(kind)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        for key, value in self.options.items():
            if value is not None:
                reader = reader.option(key.replace("__", "."), value)
        return reader.load()

    def start(self, kind: str = "krust", **trigger: Any) -> StreamingQuery:
        """Run on; by default until all that is there now is read."""
        return (
            self.source(kind)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .option("path", str(self.table))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def run(self, kind: str = "krust") -> StreamingQuery:
        """Read all that is there now."""
        query = self.start(kind)
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return query

    def run_while_workers_die(self, kills: int, seed: int) -> None:
        """Read all that is there now, while workers get kill -9 at random moments of the run.

        Spark tries a task again, or the query is started again where it was the one that plans.
        """
        rng, killed = random.Random(seed), 0
        query = self.start()
        while killed < kills:
            time.sleep(rng.uniform(0.1, 1.0))
            if not query.isActive:
                query = self.start()
            found = workers()
            for pid in rng.sample(found, 1) if found else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        with suppress(Exception):
            query.awaitTermination(120)
        query.stop()
        self.run()

    def values(self) -> list[int]:
        """The numbers that are in the table, sorted; twice if they are there twice."""
        if not self.table.exists():
            return []
        return values(self.session.read.schema("value binary").parquet(str(self.table)))

    def offsets(self, batch: int) -> Any:
        """What Spark logged as the end of a micro-batch."""
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return json.loads(text.splitlines()[2])

    def batches(self, log: str = "offsets") -> list[int]:
        """The micro-batches that are planned (`offsets`) or done (`commits`)."""
        folder = self.checkpoint / log
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def forget(self, batch: int) -> None:
        """As if Spark had died before the last micro-batch was marked as done."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def job(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Job:
    return Job(spark, bootstrap, topic, tmp_path)


def test_the_first_micro_batch_is_empty_and_pins_the_start(job: Job, topic: str) -> None:
    fill(job.bootstrap, topic, 90)
    query = job.run()
    assert job.offsets(0) == {"krust:pinned": {}, topic: {"0": 0, "1": 0, "2": 0}}
    assert job.offsets(1) == {topic: {"0": 30, "1": 30, "2": 30}}
    assert job.values() == list(range(90))
    assert query.recentProgress[0].numInputRows == 0
    job.run()
    assert job.batches("commits") == [0, 1]


def test_available_now_from_latest_reads_nothing_at_first_and_new_records_later(
    job: Job, topic: str
) -> None:
    """The first run settles where it starts and reads nothing; the next reads all since."""
    job.options["startingOffsets"] = "latest"
    fill(job.bootstrap, topic, 10)
    job.run()
    assert job.values() == []
    fill(job.bootstrap, topic, 20, first=10)
    job.run()
    fill(job.bootstrap, topic, 5, first=30)
    job.run()
    assert job.values() == list(range(10, 35))


@pytest.mark.parametrize("fails_at", [0, 1])
def test_no_record_is_lost_when_the_first_micro_batches_fail(
    job: Job, topic: str, fails_at: int
) -> None:
    """Spark asks again where to start, and with `latest` the answer would be a later one."""
    fill(job.bootstrap, topic, 100)
    job.options["startingOffsets"] = "latest"
    broken, got = True, []

    def take(frame: DataFrame, batch: int) -> None:
        if broken and batch == fails_at:
            raise RuntimeError("planted")
        got.extend(values(frame))

    def go(**trigger: Any) -> StreamingQuery:
        stream = job.source().writeStream.foreachBatch(take).trigger(**trigger)
        return stream.option("checkpointLocation", str(job.checkpoint)).start()

    query = go(processingTime="100 milliseconds")
    until(lambda: job.batches("offsets"))
    fill(job.bootstrap, topic, 5, first=100)
    with pytest.raises(Exception, match="planted"):
        query.awaitTermination(120)
    fill(job.bootstrap, topic, 5, first=105)
    broken = False
    assert go(availableNow=True).awaitTermination(120)
    assert sorted(got) == list(range(100, 110))


def test_a_limit_is_kept_and_available_now_ignores_later_records(job: Job, topic: str) -> None:
    fill(job.bootstrap, topic, 300)
    job.options["maxOffsetsPerTrigger"] = "60"
    query = job.start()
    until(lambda: job.batches("commits"))
    fill(job.bootstrap, topic, 30, first=300)
    assert query.awaitTermination(120)
    rows = [progress.numInputRows for progress in query.recentProgress]
    assert max(rows) == 60
    assert job.values()[:300] == list(range(300))
    assert len(job.values()) in (300, 330)  # where the ends were frozen after they had come
    job.run()
    assert job.values() == list(range(330))


def test_a_limit_in_bytes_bounds_a_micro_batch(job: Job, topic: str) -> None:
    fill(job.bootstrap, topic, 1500)
    job.options["maxBytesPerTrigger"] = "10000"
    query = job.run()
    rows = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert len(rows) > 2
    assert job.values() == list(range(1500))


def test_a_stream_waits_for_min_offsets_per_trigger(job: Job, topic: str) -> None:
    job.options |= {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "10m"}
    fill(job.bootstrap, topic, 3)
    query = job.start(processingTime="50 milliseconds")
    try:
        until(lambda: len(job.values()) == 3)  # the first waits for nobody
        fill(job.bootstrap, topic, 20, first=3)
        done = job.batches()
        until(lambda: query.status["message"].startswith("Waiting"))
        assert job.batches() == done
        fill(job.bootstrap, topic, 40, first=23)
        until(lambda: len(job.values()) == 63)
    finally:
        query.stop()
    assert job.batches() == [*done, done[-1] + 1]


def test_a_restart_after_planning_repeats_the_same_micro_batch(job: Job, topic: str) -> None:
    fill(job.bootstrap, topic, 60)
    job.run()
    fill(job.bootstrap, topic, 30, first=60)
    job.run()
    job.forget(job.batches()[-1])
    fill(job.bootstrap, topic, 10, first=90)
    job.run()
    assert job.values() == list(range(100))


def test_an_unfinished_first_micro_batch_is_repeated(job: Job, topic: str) -> None:
    fill(job.bootstrap, topic, 30)
    job.options["startingOffsets"] = "latest"
    job.run()
    job.forget(0)
    fill(job.bootstrap, topic, 30, first=30)
    job.run()
    assert job.values() == list(range(30, 60))


def test_a_running_stream_finds_new_partitions_and_topics(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    import krust

    create(bootstrap, f"{name}-a", 1)
    fill(bootstrap, f"{name}-a", 10, partitions=1)
    job = Job(spark, bootstrap, None, tmp_path, subscribePattern=f"{name}-.*")
    query = job.start(processingTime="50 milliseconds")
    try:
        until(lambda: len(job.values()) == 10)
        with krust.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_partitions(f"{name}-a", 4)
        fill(bootstrap, f"{name}-a", 40, first=10, partitions=4)
        until(lambda: len(job.values()) == 50)
        create(bootstrap, f"{name}-b", 2)
        fill(bootstrap, f"{name}-b", 10, first=50, partitions=2)
        until(lambda: len(job.values()) == 60)
    finally:
        query.stop()
    assert job.values() == list(range(60))


def test_a_deleted_topic_is_reported_as_data_loss(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    import krust

    for suffix in ("a", "b"):
        create(bootstrap, f"{name}-{suffix}", 1)
        fill(bootstrap, f"{name}-{suffix}", 10, first=100 * (suffix == "b"), partitions=1)
    job = Job(spark, bootstrap, f"{name}-a,{name}-b", tmp_path)
    job.run()
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_topic(f"{name}-b")
    fill(bootstrap, f"{name}-a", 10, first=10, partitions=1)
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.PARTITIONS_DELETED"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    job.run()
    create(bootstrap, f"{name}-b", 1)
    fill(bootstrap, f"{name}-b", 5, first=200, partitions=1)
    job.run()
    assert job.values() == [*range(20), *range(100, 110), *range(200, 205)]


def test_a_recreated_topic_is_reported_as_data_loss(job: Job, topic: str) -> None:
    import krust

    job.options["fetchOffset.retryIntervalMs"] = "10"
    fill(job.bootstrap, topic, 30)
    job.run()
    with krust.Admin(bootstrap_servers=job.bootstrap) as admin:
        admin.delete_topic(topic)
    create(job.bootstrap, topic, 3)
    fill(job.bootstrap, topic, 9, first=30)
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    job.run()
    fill(job.bootstrap, topic, 9, first=39)
    job.run()
    assert job.values() == [*range(30), *range(39, 48)]


def test_records_deleted_before_they_are_read_are_reported_as_data_loss(
    job: Job, topic: str
) -> None:
    import krust

    fill(job.bootstrap, topic, 30)
    job.run()
    fill(job.bootstrap, topic, 30, first=30)
    with krust.Admin(bootstrap_servers=job.bootstrap) as admin:
        admin.delete_records(topic, 1, 15)
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    job.run()
    assert job.values() == [n for n in range(60) if n % 3 != 1 or n < 30 or n >= 45]


def test_progress_reports_the_backlog(job: Job, topic: str) -> None:
    fill(job.bootstrap, topic, 90)
    job.options["maxOffsetsPerTrigger"] = "30"
    query = job.run()
    [source] = query.recentProgress[1].sources
    assert json.loads(source.latestOffset) == {topic: {"0": 30, "1": 30, "2": 30}}
    assert json.loads(source.endOffset) == {topic: {"0": 10, "1": 10, "2": 10}}


def test_a_stream_commits_its_progress_to_a_group(job: Job, topic: str) -> None:
    import krust

    job.options["groupId"] = f"{topic}-group"
    fill(job.bootstrap, topic, 30)
    job.run()
    fill(job.bootstrap, topic, 30, first=30)
    job.run()
    with krust.Admin(bootstrap_servers=job.bootstrap) as admin:
        committed = admin.committed(f"{topic}-group", topic, 3)
    assert set(committed.values()) in ({10}, {20})  # never the last micro-batch, says Spark


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "'maxOffsetsPerTrigger' .8."),
        ({"startingOffsets": '{"t":{"0":1}}'}, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        *others(
            ({"endingOffsets": "latest"}, "a stream has no end"),
            ({"maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger' cannot be 'many'"),
            ({"subscribe": "no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ),
    ],
)
def test_a_stream_refuses_invalid_options(job: Job, more: dict[str, str], words: str) -> None:
    job.options |= more
    with pytest.raises(Exception, match=words):
        job.run()


def test_both_sources_continue_from_one_checkpoint(job: Job, topic: str, official: str) -> None:
    """kafka, krust, kafka: a micro-batch of each is done twice; each row is there once."""
    rows = 0
    for number, kind in enumerate((official, "krust", official, *others("krust"))):
        fill(job.bootstrap, topic, 30, first=rows)
        rows += 30
        job.run(kind)
        if number:
            job.forget(job.batches("commits")[-1])
            job.run("krust" if kind == official else official)
    assert job.values() == list(range(rows))
    assert reading(job.session, "krust", job.bootstrap, topic).count() == rows


def test_the_official_source_continues_after_krusts_first_micro_batch(
    job: Job, topic: str, official: str
) -> None:
    job.options["startingOffsets"] = "latest"
    fill(job.bootstrap, topic, 10)
    job.run()
    assert job.batches("commits") == [0]
    fill(job.bootstrap, topic, 30, first=10)
    job.run(official)
    assert job.values() == list(range(10, 40))


def test_an_unfinished_first_micro_batch_of_another_source_is_an_error(
    job: Job, topic: str, official: str
) -> None:
    """Its start is known to that source alone: rows would be lost."""
    fill(job.bootstrap, topic, 30)
    job.run(official)
    assert job.batches("commits") == [0]
    job.forget(0)
    shutil.rmtree(job.table)
    with pytest.raises(Exception, match="KRUST_UNFINISHED_FIRST_BATCH"):
        job.run()
    job.run(official)
    job.run()
    assert job.values() == list(range(30))
