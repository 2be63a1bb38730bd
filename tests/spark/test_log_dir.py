"""`logDir` reads segment files beside a running broker; `test_equality` reads old ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import fill, fingerprint, reading, values
from tests.spark.test_stream import Job
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = "127.0.0.1:1"


def test_files_beside_a_running_broker_give_the_whole_topic(
    spark: SparkSession, bootstrap: str, log_dir: str, topic: str
) -> None:
    """The same rows for every way to say where to begin and to end; no broker is asked."""
    fill(bootstrap, topic, 300, compression_type="zstd")
    moment = reading(spark, "krust", bootstrap, topic).selectExpr("max(timestamp)").first()[0]
    for more in (
        {"includeHeaders": "true"},
        {
            "startingOffsets": f'{{"{topic}":{{"0":10,"1":-2,"2":30}}}}',
            "endingOffsets": f'{{"{topic}":{{"0":90,"1":-1,"2":31}}}}',
            "minPartitions": "8",
        },
        {"startingTimestamp": str(round(moment.timestamp() * 1000)), "maxBytesPerPartition": "99"},
    ):
        expected = fingerprint(reading(spark, "krust", bootstrap, topic, **more))
        found = reading(spark, "krust", NOBODY, topic, logDir=log_dir, **more)
        assert fingerprint(found) == expected
    chosen = {"subscribePattern": f"^{topic}$", "logDir": log_dir}
    assert values(reading(spark, "krust", NOBODY, None, **chosen)) == list(range(300))
    with pytest.raises(Exception, match=f"no topic or partition no-such at .*{log_dir}"):
        reading(spark, "krust", NOBODY, "no-such", logDir=log_dir).collect()


def test_a_stream_moves_between_broker_and_files(
    spark: SparkSession, bootstrap: str, log_dir: str, topic: str, tmp_path: Path
) -> None:
    job = Job(spark, bootstrap, topic, tmp_path)
    fill(bootstrap, topic, 30)
    job.run()
    job.options["logDir"], job.bootstrap = log_dir, NOBODY
    fill(bootstrap, topic, 60, first=30)
    job.run()
    assert job.values() == list(range(90))
    del job.options["logDir"]
    job.bootstrap = bootstrap
    fill(bootstrap, topic, 30, first=90)
    job.run()
    assert job.values() == list(range(120))


def test_deleted_files_are_reported_as_data_loss(
    spark: SparkSession, bootstrap: str, log_dir: str, topic: str
) -> None:
    import krust

    fill(bootstrap, topic, 30)
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records(topic, 1, 4)
    checkpoint = Path(log_dir) / "log-start-offset-checkpoint"
    until(lambda: checkpoint.exists() and f"{topic} 1 4\n" in checkpoint.read_text())
    more = {"startingOffsets": f'{{"{topic}":{{"0":2,"1":2,"2":2}}}}', "logDir": log_dir}
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.START_OFFSET_RESET"):
        reading(spark, "krust", NOBODY, topic, **more).collect()
    found = values(reading(spark, "krust", NOBODY, topic, failOnDataLoss="false", **more))
    assert found == [n for n in range(6, 30) if n % 3 != 1 or n >= 13]
