"""The sink writes rows to topics, in batch and stream, and refuses invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import create, fill, fingerprint, others, reading, values
from tests.spark.test_stream import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = "array(named_struct('key', 'n', 'value', encode(concat('h', id), 'utf-8')))"


def write(frame: DataFrame, bootstrap: str, topic: str | None, **more: str) -> None:
    writer = frame.write.format("krust").mode("append")
    writer = writer.option("kafka.bootstrap.servers", bootstrap)
    for key, value in {"topic": topic, **more}.items():
        if value is not None:
            writer = writer.option(key.replace("__", "."), value)
    writer.save()


def seen(session: SparkSession, bootstrap: str, topic: str) -> list[Any]:
    frame = reading(session, "krust", bootstrap, topic, includeHeaders="true")
    return [tuple(row) for row in frame.orderBy("partition", "offset").collect()]


def test_every_column_is_written_as_the_official_sink_does(
    spark: SparkSession, bootstrap: str, name: str, official: str
) -> None:
    frame = spark.range(500).selectExpr(
        "CASE WHEN id % 5 > 0 THEN concat('k', id) END AS key",
        "CASE WHEN id % 7 > 0 THEN encode(concat('v', id), 'utf-8') END AS value",
        f"CASE WHEN id % 3 > 0 THEN {HEADERS} END AS headers",
        "CASE WHEN id % 2 > 0 THEN cast(id % 3 AS int) END AS partition",
        "id AS unused",
    )
    create(bootstrap, f"{name}-ours", 3)
    create(bootstrap, f"{name}-theirs", 3)
    write(frame, bootstrap, f"{name}-ours")
    frame.write.format(official).option("kafka.bootstrap.servers", bootstrap).option(
        "topic", f"{name}-theirs"
    ).save()
    columns = ["key", "value", "headers"]

    def rows(topic: str, where: str) -> list[str]:
        found = reading(spark, "krust", bootstrap, topic, includeHeaders="true").where(where)
        return sorted(map(str, found.select(*columns).collect()))

    assert len(rows(f"{name}-ours", "true")) == 500
    for where in ("true", *(f"key IS NOT NULL AND partition = {p}" for p in range(3))):
        assert rows(f"{name}-ours", where) == rows(f"{name}-theirs", where)


def test_the_topic_is_an_option_or_a_column(spark: SparkSession, bootstrap: str, name: str) -> None:
    create(bootstrap, f"{name}-0", 1)
    create(bootstrap, f"{name}-1", 1)
    frame = spark.range(10).selectExpr(
        "concat('v', id) AS value", f"concat('{name}-', id % 2) AS topic"
    )
    write(frame, bootstrap, None)
    assert values(reading(spark, "krust", bootstrap, f"{name}-1")) == [1, 3, 5, 7, 9]
    write(frame, bootstrap, f"{name}-1")
    assert reading(spark, "krust", bootstrap, f"{name}-1").count() == 15
    null = frame.selectExpr("value", "nullif(topic, topic) AS topic")
    with pytest.raises(Exception, match="KAFKA_NULL_TOPIC_IN_DATA"):
        write(null, bootstrap, None)


def test_a_copied_record_keeps_its_partition_and_timestamp(
    spark: SparkSession, bootstrap: str, topic: str, name: str
) -> None:
    create(bootstrap, f"{name}-copy", 3)
    fill(bootstrap, topic, 300, compression_type="zstd")
    whole = reading(spark, "krust", bootstrap, topic, includeHeaders="true")
    write(whole, bootstrap, f"{name}-copy", keepTimestamp="true", compression="lz4")
    columns = ["key", "value", "headers", "partition", "offset", "timestamp"]

    def print_of(which: str) -> object:
        frame = reading(spark, "krust", bootstrap, which, includeHeaders="true")
        found = fingerprint(frame.select(*columns).selectExpr("'t' AS topic", "*"))
        return sorted(found.items())

    assert print_of(topic) == print_of(f"{name}-copy")


@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [
        (["id"], {}, "no column 'value'.*to_json"),
        (["id AS value"], {}, "'value' is bigint; it has to be string or binary.*cast"),
        (["'v' AS value", "id AS partition"], {}, "'partition' is bigint; it has to be int"),
        (["'v' AS value"], {"topic": None}, "neither an option nor a column 'topic'"),
        (["'v' AS value"], {"exactlyOnce": "true"}, "need each other.*jobId"),
        (["'v' AS value", "9 AS partition"], {}, "partition"),
        *others(
            (["'v' AS value", "'h' AS headers"], {}, "'headers' is string"),
            (["'v' AS value"], {"keepTimestamp": "true"}, "no column 'timestamp'"),
            (["'v' AS value"], {"jobId": "x"}, "need each other.*exactlyOnce"),
            (["'v' AS value"], {"compresion": "zstd"}, "Write 'compression'"),
        ),
    ],
)
def test_the_sink_refuses_invalid_columns_and_options(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    columns: list[str],
    more: dict[str, str],
    words: str,
) -> None:
    with pytest.raises(Exception, match=rf"(?s){words}"):
        write(spark.range(3).selectExpr(*columns), bootstrap, **{"topic": topic, **more})
    assert reading(spark, "krust", bootstrap, topic).count() == 0


def test_a_topic_is_not_overwritten(spark: SparkSession, bootstrap: str, topic: str) -> None:
    writer = spark.range(3).selectExpr("'v' AS value").write.format("krust").mode("overwrite")
    with pytest.raises(Exception, match=r'\.mode\("append"\)'):
        writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


def test_a_job_is_written_once_and_nothing_of_it_is_seen_after_a_failure(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    """One of its two tasks fails; the other has written by then, or is about to."""
    frame = spark.range(0, 20, 1, 2).selectExpr(
        "concat('v', id) AS value", f"CASE WHEN id < 15 THEN '{topic}' END AS topic"
    )
    job = {"exactlyOnce": "true", "jobId": topic}
    with pytest.raises(Exception, match="KAFKA_NULL_TOPIC_IN_DATA"):
        write(frame, bootstrap, None, **job)
    committed = {"kafka__isolation__level": "read_committed"}
    assert values(reading(spark, "krust", bootstrap, topic, **committed)) == []
    for _ in range(2):
        write(frame, bootstrap, topic, **job)
    assert values(reading(spark, "krust", bootstrap, topic, **committed)) == list(range(20))


def test_a_write_without_a_broker_fails(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = spark.range(3).selectExpr("repeat('v', 3000000) AS value")
    with pytest.raises(Exception, match="is larger than max"):
        write(frame, bootstrap, topic)


def test_a_stream_copies_one_topic_to_another(
    spark: SparkSession, bootstrap: str, topic: str, name: str, tmp_path: Path
) -> None:
    create(bootstrap, f"{name}-out", 2)
    job = Job(spark, bootstrap, topic, tmp_path, maxOffsetsPerTrigger="40")
    for first in (0, 100):
        fill(bootstrap, topic, 100, first=first)
        query = (
            job.source()
            .selectExpr(
                "key",
                "concat('v', 1000 + cast(substring(cast(value AS string), 2) AS int)) AS value",
            )
            .writeStream.format("krust")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", f"{name}-out")
            .option("checkpointLocation", str(job.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    found = reading(spark, "krust", bootstrap, f"{name}-out")
    assert values(found) == list(range(1000, 1200))
