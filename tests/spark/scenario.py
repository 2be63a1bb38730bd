"""What has to work on every Spark that has Python sources; run by `test_versions` in a child.

python -m tests.spark.scenario BOOTSTRAP TOPIC FOLDER    facts as JSON on the last line
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.spark.conftest import create, fill, reading, settings, values


def main(bootstrap: str, topic: str, folder: Path) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings(folder, []).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    results: dict[str, Any] = {"version": spark.version}
    create(bootstrap, topic, 3)
    create(bootstrap, f"{topic}-out", 3)
    fill(bootstrap, topic, 300)
    results["batch"] = values(reading(spark, "krust", bootstrap, topic)) == list(range(300))
    few = spark.read.format("krust").schema("partition int, value binary")
    few = few.option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    results["projection"] = few.load().where("partition = 1").count() == 100
    writer = spark.range(300, 400).selectExpr("concat('v', id) AS value").write.format("krust")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer.mode("append").save()
    results["sink"] = values(reading(spark, "krust", bootstrap, topic)) == list(range(400))

    def run(where: str, sink: str = "parquet", wait: int = 0, **options: str) -> Any:
        """A stream until nothing is left, or until `wait` rows are in the table."""
        source = spark.readStream.format("krust").option("kafka.bootstrap.servers", bootstrap)
        for key, value in {"subscribe": topic, **options}.items():
            source = source.option(key, value)
        stream = source.load().writeStream.format(sink)
        stream = stream.option("checkpointLocation", str(folder / where / "checkpoint"))
        if sink == "krust":
            stream = stream.option("kafka.bootstrap.servers", bootstrap)
            stream = stream.option("topic", f"{topic}-out").option("keepPartition", "false")
        else:
            stream = stream.option("path", str(folder / where / "table"))
        trigger = {"processingTime": "50 milliseconds"} if wait else {"availableNow": True}
        query = stream.trigger(**trigger).start()
        until = time.monotonic() + 60
        while query.isActive and (not wait or len(table(where)) < wait):
            assert time.monotonic() < until, query.lastProgress
            time.sleep(0.05)
        query.stop()
        assert query.exception() is None, query.exception()
        return [progress["numInputRows"] for progress in map(_tree, query.recentProgress)]

    def table(where: str) -> list[int]:
        path = folder / where / "table"
        if not path.exists():
            return []
        return values(spark.read.schema("value binary").parquet(str(path)))

    run("all", startingOffsets="earliest")
    results["available now"] = table("all") == list(range(400))
    run("late", startingOffsets="latest")
    results["latest reads nothing at first"] = table("late") == []
    fill(bootstrap, topic, 100, first=400)
    run("all", startingOffsets="earliest")
    run("late", startingOffsets="latest")
    results["goes on"] = table("all") == list(range(500))
    results["latest reads all since"] = table("late") == list(range(400, 500))
    rows = run("slow", wait=500, startingOffsets="earliest", maxOffsetsPerTrigger="90")
    results["limit"] = 80 < max(rows) < 94 and table("slow") == list(range(500))
    fill(bootstrap, topic, 90, first=500)
    run("slow", wait=590, startingOffsets="earliest", maxOffsetsPerTrigger="90")
    results["limit goes on"] = table("slow") == list(range(590))
    run("copy", sink="krust", startingOffsets="earliest")
    results["stream sink"] = values(reading(spark, "krust", bootstrap, f"{topic}-out")) == [
        *range(590)
    ]
    spark.stop()
    return results


def _tree(progress: Any) -> Any:
    return progress if isinstance(progress, dict) else json.loads(progress.json)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
