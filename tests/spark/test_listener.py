"""A running query reports lag and rates, and commits group offsets for lag tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import fill, until
from tests.spark.test_stream import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from krust.spark.listener import QueryProgress


def test_each_progress_is_committed_including_the_last(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    import krust
    from krust.spark import KrustListener

    shown: list[QueryProgress] = []
    listener = KrustListener(bootstrap, groups={"*": f"{topic}-group"}, show=shown.append)
    spark.streams.addListener(listener)
    try:
        fill(bootstrap, topic, 90)
        job = Job(spark, bootstrap, topic, tmp_path, maxOffsetsPerTrigger="30")
        query = job.run()
        with krust.Admin(bootstrap_servers=bootstrap) as admin:
            until(lambda: set(admin.committed(f"{topic}-group", topic, 3).values()) == {30})
        queries: dict[str, QueryProgress] = until(
            lambda: {k: v for k, v in listener.queries().items() if not sum(v.lag.values())}
        )
    finally:
        spark.streams.removeListener(listener)
    current = queries[str(query.id)]
    assert current.at == {(topic, partition): 30 for partition in range(3)}
    assert current.eta_s == 0
    assert any("60 offsets behind" in current.line() for current in shown)


def test_prometheus_reads_the_metrics_of_a_stream() -> None:
    from krust.spark.listener import KrustListener, QueryProgress

    listener = KrustListener()
    listener._queries['q"1'] = QueryProgress('q"1', 3, {("t", 0): 5}, {("t", 0): 2}, 7, 1.5)
    text = listener.prometheus()
    assert (
        '# TYPE krust_spark_lag gauge\nkrust_spark_lag{query="q\\"1",topic="t",partition="0"} 2'
        in text
    )
    assert 'krust_spark_rows_per_second{query="q\\"1"} 1.5' in text


def test_a_refused_commit_is_logged_as_a_warning(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from krust.spark import KrustListener

    listener = KrustListener("127.0.0.1:1", groups={"*": "g"}, client={"request.timeout.ms": "100"})
    listener._commit("id", "name", {("t", 0): 3})
    assert "'g' was not committed for query 'name'" in caplog.text
