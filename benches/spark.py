"""`format("krust")` beside Spark's own Kafka connector: rows a second and CPU a row.

    python benches/spark.py [--rounds 5] [--rows 8000000] [--large-rows 2000000] [--only batch,sink]

One Spark session (local[2]) and one broker, krust's, for both; two topics of 4 partitions, keys of
16 bytes, values of 100 bytes or 1 KiB that shrink to a half, no codec. The sources take turns
within a case and alternate in going first; the first round does not count. Time is the wall clock
of the whole action, with planning and (for streams) starting and stopping. For streams the program
also prints the micro-batches alone, as Spark reports them; a stream that runs for hours costs that.
CPU is that of the JVM and all Python processes, without the broker's. Both read into Spark's `noop`
sink, all columns, unless said otherwise. The connector's batches and streams are written as Parquet
by Spark, krust's by its tasks (`materialize`, and as a table by `pipeline.to_parquet`); snappy all.
Tables are in memory if there is a /dev/shm: krust syncs its files and Spark does not, and the disk
is not compared. The sink writes a quarter of the rows from a cached table. It is no test: it
reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy
import pyarrow as pa

import krust
from tests.serving import ServedBroker
from tests.spark import jars
from tests.spark.processes import descendants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL, LARGE = "100 B", "1 KiB"
SIZES = {SMALL: 100, LARGE: 1024}
KRUST, OFFICIAL = "krust", "kafka"
PARTITIONS = 4
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Bench:
    spark: SparkSession
    bootstrap: str
    tables: Path
    rows: dict[str, int]
    cached: dict[str, DataFrame] = field(default_factory=dict)
    hashes: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    count: int = 0

    def place(self) -> Path:
        """A new folder."""
        self.count += 1
        return self.tables / str(self.count)

    def reader(self, kind: str, size: str, *, stream: bool = False, **more: str) -> Any:
        reader = (self.spark.readStream if stream else self.spark.read).format(kind)
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic_of(size), **more}
        if stream:
            options["startingOffsets"] = "earliest"
        return reader.options(**options)


@dataclass
class Took:
    """What one action cost; `inner_s`: its micro-batches alone."""

    wall_s: float
    cpu_s: float
    rows: int
    inner_s: float | None = None


def topic_of(size: str) -> str:
    return f"bench-{SIZES[size]}"


Action = Callable[[Bench, str, str], "float | None"]
"""Does the case once with a source and a size; the seconds of micro-batches, where there are."""


def batch(bench: Bench, kind: str, size: str) -> None:
    noop(bench.reader(kind, size).load())


def batch_hash(bench: Bench, kind: str, size: str) -> None:
    """The JVM reads every byte of every column; both sources have to agree."""
    frame = bench.reader(kind, size).load()
    columns = ", ".join(frame.columns)
    [row] = frame.selectExpr("count(*)", f"bit_xor(xxhash64({columns}))").collect()
    assert tuple(row) == bench.hashes.setdefault(size, tuple(row)), kind


def narrow(bench: Bench, kind: str, size: str) -> None:
    reader = bench.reader(kind, size)
    if kind == KRUST:
        reader = reader.schema("offset long, timestamp timestamp")
    noop(reader.load().select("offset", "timestamp"))


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def stream(bench: Bench, kind: str, size: str) -> float:
    limit = str(bench.rows[size] // 4)
    frame = bench.reader(kind, size, stream=True, maxOffsetsPerTrigger=limit).load()
    return ran(bench, frame.writeStream.format("noop"))


def ran(bench: Bench, writer: Any) -> float:
    """Run a stream to its end; the seconds of the micro-batches that had rows."""
    place = bench.place()
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()
    found = [progress for progress in query.recentProgress if progress.numInputRows]
    return sum(progress.durationMs["triggerExecution"] for progress in found) / 1000


def parquet(bench: Bench, kind: str, size: str) -> None:
    place = bench.place()
    if kind == OFFICIAL:
        bench.reader(kind, size).load().write.option("compression", "snappy").parquet(str(place))
    else:
        more = {"materialize": "parquet", "path": str(place), "fileCompression": "snappy"}
        files = bench.reader(kind, size, **more).load().collect()
        assert sum(row.rows for row in files) == bench.rows[size]
    shutil.rmtree(place)


def table(target: str) -> Action:
    """A stream into a table that has each record once; the connector has no Delta without jars."""

    def run(bench: Bench, kind: str, size: str) -> float | None:
        from krust.spark import pipeline

        place = bench.place()
        if kind == OFFICIAL:
            frame = bench.reader(kind, size, stream=True).load()
            writer = frame.writeStream.format("parquet").option("compression", "snappy")
            inner = ran(bench, writer.option("path", str(place)))
            shutil.rmtree(place)
            return inner
        start = {"parquet": pipeline.to_parquet, "delta": pipeline.to_delta}[target]
        settings = {"bootstrap": bench.bootstrap, "compression": "snappy", "once": True}
        with start(bench.spark, topic_of(size), str(place), name="bench", **settings) as flow:
            assert flow.wait(600_000)
        assert flow.counts.rows == bench.rows[size]
        shutil.rmtree(place)
        return None

    return run


def sink(bench: Bench, kind: str, size: str) -> None:
    if size not in bench.cached:
        frame = bench.reader(OFFICIAL, size).load().where("partition = 0").select("key", "value")
        bench.cached[size] = frame.repartition(2).cache()
        assert bench.cached[size].count() == bench.rows[size] // PARTITIONS
    with krust.Admin(bootstrap_servers=bench.bootstrap) as admin:
        name = f"sink-{bench.place().name}"
        admin.create_topic(name, PARTITIONS)
        writer = bench.cached[size].write.format(kind).option("topic", name)
        writer.option("kafka.bootstrap.servers", bench.bootstrap).mode("append").save()
        admin.delete_topic(name)


CASES: dict[tuple[str, str], tuple[Action, float | None]] = {
    ("batch", SMALL): (batch, 1.4),
    ("batch", LARGE): (batch, 1.0),
    ("hash", SMALL): (batch_hash, None),
    ("stream", SMALL): (stream, 1.25),
    ("stream", LARGE): (stream, 1.0),
    ("schema", SMALL): (narrow, 5),
    ("schema", LARGE): (narrow, 5),
    ("parquet", SMALL): (parquet, 3.5),
    ("parquet", LARGE): (parquet, 2.5),
    ("table", SMALL): (table("parquet"), None),
    ("table", LARGE): (table("parquet"), None),
    ("delta", SMALL): (table("delta"), None),
    ("sink", SMALL): (sink, 1.3),
}
"""What is done, and how many times the connector's rate is wanted."""


def cpu_s(besides: int) -> float:
    """CPU of this process and its descendants, ended ones included, without `besides`."""
    total = 0
    for pid in {os.getpid(), *descendants(os.getpid())} - {besides}:
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total * TICK_S


def fill(bootstrap: str, size: str, rows: int) -> None:
    """Values are of some hundred words of 8 bytes, so that any codec finds them again."""
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic_of(size), PARTITIONS, config={"segment.bytes": 256 << 20})
    step, length = 50_000, SIZES[size]
    words = numpy.frombuffer(os.urandom(8 * 512), "S8")
    rng = numpy.random.default_rng(7)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        columns = {
            "key": pa.array([b"key-%012d" % number for number in range(first, first + count)]),
            "value": texts(words, rng, count, length),
            "partition": pa.array([number % PARTITIONS for number in range(count)], pa.int32()),
        }
        krust.append(
            topic_of(size),
            pa.table(columns),
            key="key",
            partition="partition",
            bootstrap=bootstrap,
        )


def texts(words: Any, rng: Any, count: int, length: int) -> pa.Array:
    """Values of random words."""
    data = words[rng.integers(0, len(words), count * length // 8 + 1)].tobytes()
    offsets = pa.array(range(0, (count + 1) * length, length), pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def session(folder: Path, jar_files: list[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(jar_files),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    builder = SparkSession.builder.appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def measured(bench: Bench, action: Action, kind: str, size: str, broker: int) -> Took:
    before_s, begin_s = cpu_s(broker), time.perf_counter()
    inner_s = action(bench, kind, size)
    wall_s = time.perf_counter() - begin_s
    rows = bench.rows[size] // (PARTITIONS if action is sink else 1)
    return Took(wall_s, cpu_s(broker) - before_s, rows, inner_s)


def middle(runs: list[Took], what: str) -> float | None:
    values = [getattr(took, what) for took in runs]
    return None if None in values else statistics.median(values)


def tell(case: tuple[str, str], seen: dict[str, list[Took]], wanted: float | None) -> str:
    line = f"{case[0]:8} {case[1]:6}"
    rows = seen[KRUST][0].rows
    for kind, runs in seen.items():
        wall_s, used_s, inner_s = (middle(runs, w) for w in ("wall_s", "cpu_s", "inner_s"))
        assert wall_s is not None
        assert used_s is not None
        best_s = min(took.wall_s for took in runs)
        line += f" | {kind} {rows / wall_s / 1e3:5.0f} k/s (best {rows / best_s / 1e3:5.0f})"
        line += f" {used_s / rows * 1e6:5.2f} us CPU"
        line += "" if inner_s is None else f", micro-batches {rows / inner_s / 1e3:5.0f} k/s"
    for what, name in (("wall_s", ""), ("inner_s", " micro-batches"), ("cpu_s", " CPU")):
        ours, theirs = (middle(seen[kind], what) for kind in (KRUST, OFFICIAL))
        if ours is not None and theirs is not None:
            line += f" |{name} {theirs / ours:.2f} x"
    return line + ("" if wanted is None else f" (wanted: {wanted} x)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--large-rows", type=int, default=2_000_000)
    parser.add_argument("--only", default="", help="names of cases, with commas")
    given = parser.parse_args()
    jar_files, problem = jars.official()
    if problem:
        sys.exit(problem)
    only = set(filter(None, given.only.split(",")))
    cases = {case: found for case, found in CASES.items() if not only or case[0] in only}
    rows = {SMALL: given.rows, LARGE: given.large_rows}
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory() as name,
        tempfile.TemporaryDirectory(dir=memory) as tables,
        ServedBroker(Path(name) / "data") as served,
    ):
        for size in sorted({size for _, size in cases}):
            fill(served.bootstrap, size, rows[size])
        bench = Bench(session(Path(name), jar_files), served.bootstrap, Path(tables), rows)
        print(f"Spark {bench.spark.version}, connector {jars.CONNECTOR}, {rows}", flush=True)
        seen: dict[tuple[str, str], dict[str, list[Took]]] = {
            case: {OFFICIAL: [], KRUST: []} for case in cases
        }
        for number in range(given.rounds + 1):
            for case, (action, _) in cases.items():
                kinds = (OFFICIAL, KRUST) if number % 2 else (KRUST, OFFICIAL)
                for kind in kinds:
                    took = measured(bench, action, kind, case[1], served.pid)
                    if number:
                        seen[case][kind].append(took)
        for case, (_, wanted) in cases.items():
            print(tell(case, seen[case], wanted), flush=True)
        bench.spark.stop()


if __name__ == "__main__":
    main()
