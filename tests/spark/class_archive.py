"""Writes Spark's classes to a file, as a JVM has them in memory.

    python -m tests.spark.class_archive FILE

A Spark in a test loads ten thousand classes and lives for seconds. From such a file (JEP 350) it
takes them ready to use: a start needs half the CPU time. A JVM that the file does not suit ignores
it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IN_VENV = Path(sys.prefix) / "spark.jsa"
"""where `make` has it written"""
LONGEST_S = 300
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = SparkSession.builder.master("local[2]").getOrCreate()
gateway = spark.sparkContext._gateway
frame = spark.range(100).selectExpr("id", "id % 7 AS k", "cast(id AS string) AS s")
frame.groupBy("k").count().orderBy("k").collect()
frame.write.parquet(f"{folder}/table")
spark.read.parquet(f"{folder}/table").createOrReplaceTempView("t")
spark.sql("SELECT k, max(s) FROM t GROUP BY k").collect()
frame.mapInArrow(lambda batches: batches, frame.schema).collect()
stream = spark.readStream.schema(frame.schema).parquet(f"{folder}/table")
writer = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
writer.format("memory").queryName("q").trigger(availableNow=True).start().awaitTermination()
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def options(archive: Path = IN_VENV) -> str:
    """What a JVM gets that is to use an archive; empty if it is not there."""
    if not archive.exists():
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"


def write(archive: Path) -> None:
    """Run a Spark that does some of all, and have its JVM write the archive as it ends.

    raises  SubprocessError: there is no Spark or no Java, or they take LONGEST_S; OSError: the JVM
            wrote none, or there is no room for it
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spark.jsa"
        java = f"--driver-java-options -XX:ArchiveClassesAtExit={file}"
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            check=True,
            timeout=LONGEST_S,
            env={
                **os.environ,
                "JAVA_TOOL_OPTIONS": QUICK,
                "PYSPARK_SUBMIT_ARGS": f"{java} pyspark-shell",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        file.chmod(0o644)
        shutil.move(file, archive)


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no archive of Spark's classes, it starts more slowly: {type(error).__name__}")
