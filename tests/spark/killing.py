"""A driver that is killed in the commit of a micro-batch: `format("krust-killed")`.

python -m tests.spark.killing JOB
The driver copies a topic with exactlyOnce. JOB is JSON: a `Job`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from krust.spark import exactly_once
from krust.spark.commit_log import CommitLog
from krust.spark.options import sink
from krust.spark.sink import KrustStreamArrowWriter
from krust.spark.source import KrustDataSource
from krust.spark.transaction_client import TransactionClient
from tests.spark.conftest import environment

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

ROOT = Path(__file__).parents[2]
STEPS: dict[str, tuple[Any, str]] = {
    "before the decision": (CommitLog, "decide"),
    "after the decision": (exactly_once, "_finish"),
    "between two transactions": (TransactionClient, "end"),
}


class Job(TypedDict):
    """What a driver does.

    step     where in the commit of micro-batch `batch` its JVM gets kill -9; None: nowhere
    endless  whether it waits for more records when it has read all
    conf     Spark's settings
    """

    bootstrap: str
    topic: str
    out: str
    checkpoint: str
    step: str | None
    batch: int
    endless: bool
    conf: dict[str, str]


def start_driver(job: Job, log: Path) -> subprocess.Popen[bytes]:
    """A driver in a process group of its own. Its workers have others."""
    around = environment()
    around["PYTHONPATH"] = os.pathsep.join((str(ROOT), around["PYTHONPATH"]))
    command = [sys.executable, "-m", "tests.spark.killing", json.dumps(job)]
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=around,
            cwd=ROOT,
            start_new_session=True,
        )


def kill_jvm() -> None:
    """Kill the driver's JVM, which has started the daemon that has forked this process."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    os._exit(9)


class KilledStreamWriter(KrustStreamArrowWriter):
    """Kills its driver."""

    step, killed_batch = "", -1

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        if batchId == self.killed_batch:
            owner, name = STEPS[self.step]
            original, calls = getattr(owner, name), []

            def call(*args: Any, **more: Any) -> Any:
                calls.append(1)
                if len(calls) == 2 or name != "end":
                    kill_jvm()
                return original(*args, **more)

            setattr(owner, name, call)
        super().commit(messages, batchId)


class KilledDataSource(KrustDataSource):
    """krust's data source with the writer above; its step and batch are in `queryName`."""

    @classmethod
    def name(cls) -> str:
        return "krust-killed"

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        writer = KilledStreamWriter(sink(self.options), schema)
        writer.step, batch = self.options["queryName"].split("@")
        writer.killed_batch = int(batch)
        return writer


def main(job: Job) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in job["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(KilledDataSource)
    stream = (
        spark.readStream.format("krust")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("subscribe", job["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
        .selectExpr("key", "value")
    )
    query = (
        stream.writeStream.format("krust-killed" if job["step"] else "krust")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("topic", job["out"])
        .option("exactlyOnce", "true")
        .option("queryName", f"{job['step']}@{job['batch']}")
        .option("checkpointLocation", job["checkpoint"])
        .trigger(**({"processingTime": "0 seconds"} if job["endless"] else {"availableNow": True}))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
