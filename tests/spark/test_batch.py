"""Batch reads: chosen partitions, the projection by the user's schema, filters, invalid options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import create, fill, others, reading, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = "array<struct<key string, value binary>>"


def test_the_schema_equals_that_of_the_official_source(
    spark: SparkSession, official: str, topic: str, bootstrap: str
) -> None:
    for more in ({}, {"includeHeaders": "true"}):
        ours = reading(spark, "krust", bootstrap, topic, **more)
        assert ours.schema == reading(spark, official, bootstrap, topic, **more).schema


def test_subscribe_pattern_and_assign_choose_partitions(
    spark: SparkSession, bootstrap: str, name: str
) -> None:
    for suffix in ("a", "b", "c"):
        create(bootstrap, f"{name}-{suffix}", 2)
        fill(bootstrap, f"{name}-{suffix}", 10, partitions=2)

    def chosen(**more: str) -> set[tuple[str, int]]:
        found = reading(spark, "krust", bootstrap, None, **more)
        return {(row.topic[-1], row.partition) for row in found.distinct().collect()}

    whole = {(topic, partition) for topic in "abc" for partition in (0, 1)}
    assert chosen(subscribe=f"{name}-a, {name}-c,") == {one for one in whole if one[0] != "b"}
    assert chosen(subscribePattern=rf"^\Q{name}\E-(?<x>[ab])$") == {o for o in whole if o[0] != "c"}
    assert chosen(assign=f'{{"{name}-a":[1],"{name}-b":[0]}}') == {("a", 1), ("b", 0)}
    assert chosen(subscribePattern="no such") == set()


@pytest.mark.parametrize(
    "schema",
    [
        "value binary",
        "offset long, timestamp timestamp",
        f"headers {HEADERS}, key binary",
        "timestampType int, topic string, partition int not null",
    ],
)
def test_a_given_schema_projects_the_columns(
    spark: SparkSession, bootstrap: str, topic: str, schema: str
) -> None:
    fill(bootstrap, topic, 50)
    whole = reading(spark, "krust", bootstrap, topic, includeHeaders="true")
    few = (
        spark.read.format("krust")
        .schema(schema)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    assert few.count() == 50
    assert sorted(map(str, few.collect())) == sorted(map(str, whole.select(*few.columns).collect()))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("valeu binary", "KRUST_UNKNOWN_COLUMN.*'valeu'.*value binary"),
        ("value string", "KRUST_WRONG_COLUMN_TYPE.*'value' is binary, not string"),
        ("value binary not null", "KRUST_WRONG_COLUMN_TYPE.*NOT NULL"),
    ],
)
def test_an_invalid_schema_is_refused(
    spark: SparkSession, bootstrap: str, topic: str, schema: str, words: str
) -> None:
    frame = (
        spark.read.format("krust")
        .schema(schema)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    with pytest.raises(Exception, match=rf"(?s){words}"):
        frame.collect()


def test_filters_reduce_the_offsets_that_are_read(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    """The same rows with and without; what Spark is left with is what krust cannot decide."""
    from krust.spark.session import PUSHDOWN

    fill(bootstrap, topic, 300)
    moment = reading(spark, "krust", bootstrap, topic).selectExpr("max(timestamp)").first()[0]
    plain = reading(spark, "krust", bootstrap, topic)

    def pushed() -> DataFrame:
        return reading(spark, "krust", bootstrap, topic, filterPushdown="true")

    spark.conf.set(PUSHDOWN, "true")
    try:
        for condition in (
            "partition = 1",
            f"partition in (0, 2) and topic = '{topic}'",
            "topic = 'other'",
            "offset >= 20 and offset < 30 and partition <> 0",
            "offset = 5 or partition = 1",
            f"timestamp >= timestamp'{moment}'",
            f"timestamp < timestamp'{moment}' and value is not null",
            "key = 'k1' and topic like 'spark%'",
            "partition > 7",
        ):
            got = pushed().where(condition)
            assert values(got) == values(plain.where(condition)), condition
        assert pushed().where("partition = 1").rdd.getNumPartitions() == 1
        both = pushed().where("offset >= 20 and key = 'k1' and partition <> 0")
        left = both._jdf.queryExecution().optimizedPlan().toString().partition("\n")[0]
        assert left.startswith("Filter")
        assert "offset" not in left
        assert "partition" not in left
    finally:
        spark.conf.unset(PUSHDOWN)


def test_filters_that_are_not_pushed_down_are_reported(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    frame = reading(spark, "krust", bootstrap, topic, filterPushdown="true")
    with pytest.raises(Exception, match=r"spark.sql.python.filterPushdown.enabled"):
        frame.collect()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"subscribe": None}, "One of the options 'subscribe'"),
        ({"subscribe": "no-such-topic"}, r"UNKNOWN_TOPIC_OR_PARTITION.*no-such-topic"),
        ({"assign": '{"TOPIC":[0,9]}', "subscribe": None}, r"UNKNOWN_TOPIC_OR_PARTITION.*-9"),
        ({"startingOffsets": '{"TOPIC":{"0":1}}'}, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"),
        ({"startingOffsets": '{"TOPIC":{"0":99,"1":0,"2":0}}'}, "RESOLVED_START_OFFSET_GREATER"),
        ({"endingOffsets": '{"TOPIC":{"0":99,"1":0,"2":0}}'}, "KAFKA_DATA_LOSS.*failOnDataLoss"),
        ({"startingTimestamp": "99999999999999"}, "startingOffsetsByTimestampStrategy"),
        ({"startingOfsets": "earliest"}, "Write 'startingOffsets'"),
        *others(
            ({"startingOffsets": "latest"}, "'startingOffsets' cannot be 'latest'.*earliest"),
            ({"minPartitions": "none"}, "'minPartitions' cannot be 'none'.*whole number"),
            ({"kafka.auto.offset.reset": "earliest"}, "write `startingOffsets`"),
            ({"kafka.sasl.mechanism": "PLAIN"}, "TLS and no SASL"),
        ),
    ],
)
def test_invalid_options_are_refused_with_a_hint(
    spark: SparkSession, bootstrap: str, topic: str, more: dict[str, str], words: str
) -> None:
    fill(bootstrap, topic, 9)
    given = {key: text and text.replace("TOPIC", topic) for key, text in more.items()}
    with pytest.raises(Exception, match=rf"(?s){words}"):
        reading(spark, "krust", bootstrap, topic, **given).collect()


def test_an_unreachable_broker_is_a_clear_error(spark: SparkSession) -> None:
    more = {"kafka.request.timeout.ms": "300", "fetchOffset.numRetries": "1"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1\b"):
        reading(spark, "krust", "127.0.0.1:1", "t", **more).collect()


def test_deleted_records_fail_the_read_or_are_skipped(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    import krust

    fill(bootstrap, topic, 30)
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records(topic, 1, 4)
    more = {"startingOffsets": f'{{"{topic}":{{"0":2,"1":2,"2":2}}}}'}
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.START_OFFSET_RESET"):
        reading(spark, "krust", bootstrap, topic, **more).collect()
    found = values(reading(spark, "krust", bootstrap, topic, failOnDataLoss="false", **more))
    assert found == [n for n in range(6, 30) if n % 3 != 1 or n >= 13]


def test_an_empty_topic_gives_no_rows(spark: SparkSession, bootstrap: str, topic: str) -> None:
    assert reading(spark, "krust", bootstrap, topic).count() == 0
    fill(bootstrap, topic, 5)
    assert (
        reading(
            spark, "krust", bootstrap, topic, endingOffsets=f'{{"{topic}":{{"0":0,"1":0,"2":0}}}}'
        ).count()
        == 0
    )
