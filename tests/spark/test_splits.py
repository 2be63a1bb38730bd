"""krust divides ranges into tasks exactly as the official connector's class does."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from krust.spark.plan import PartitionRange, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_splits_equal_kafka_offset_range_calculator(spark: SparkSession, official: str) -> None:
    jvm: Any = spark._jvm
    kafka010 = jvm.org.apache.spark.sql.kafka010
    places = {
        (topic, partition): jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        for topic in "ab"
        for partition in range(4)
    }
    nothing = jvm.scala.Option.apply(None)
    rng = random.Random(5)
    for _ in range(150):
        ranges = [
            PartitionRange(
                *place, start, start + rng.choice((-2, 0, 1, 7, 100, 4096, 10**6, 10**12))
            )
            for place in rng.sample(sorted(places), rng.randint(1, 8))
            for start in (rng.randint(0, 10**9),)
        ]
        ranges = [r._replace(end=r.end + rng.randint(0, 3)) for r in ranges]
        least = rng.choice((None, 1, 3, 8, 50, 300))
        largest = max(r.size for r in ranges)
        most = rng.choice((None, None, max(1, largest // 40), max(1, largest // 3), 10**13))
        given = jvm.java.util.ArrayList()
        for one in ranges:
            given.add(kafka010.KafkaOffsetRange(places[one.place], one.start, one.end, nothing))
        options = jvm.java.util.HashMap()
        if least is not None:
            options.put("minPartitions", str(least))
        if most is not None:
            options.put("maxRecordsPerPartition", str(most))
        calculator = kafka010.KafkaOffsetRangeCalculator.apply(
            jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
        )
        as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        executors = as_scala(jvm.java.util.ArrayList()).toSeq()
        theirs = calculator.getRanges(as_scala(given).toSeq(), executors).mkString("|")
        ours = "|".join(
            f"KafkaOffsetRange({one.topic}-{one.partition},{one.start},{one.end},None)"
            for one in split(ranges, least, most)
        )
        assert ours == theirs, (ranges, least, most)
