"""Pipelines write each record of a topic to a table once, whichever process is killed.

KRUST_SPARK_TABLES says into which kinds (delta); `make spark` takes them all, more rows and kills.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
pytest.importorskip("deltalake", reason="the extra `tables` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyarrow.dataset as ds  # noqa: E402

import krust  # noqa: E402
from krust.errors import KrustError  # noqa: E402
from krust.spark import pipeline  # noqa: E402
from krust.spark.flow import transformed_columns  # noqa: E402
from krust.spark.tables import OverlapError, Table, open_table  # noqa: E402
from tests.ports import free_port  # noqa: E402
from tests.serving import ServedBroker  # noqa: E402
from tests.spark.conftest import ALL, create, environment, others  # noqa: E402
from tests.spark.processes import workers  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from krust.spark.flow import Flow

KINDS = os.environ.get("KRUST_SPARK_TABLES", "delta").split()
JSON = {"valueFormat": "json", "valueSchema": "id bigint, text string"}
WAIT_S = 120
SEED = random.SystemRandom().randrange(1 << 30)


def write(bootstrap: str, topic: str, first: int, last: int, *, bad_every: int = 0) -> None:
    """Records `first` .. `last` as JSON; of each `bad_every` one that is none."""
    with krust.Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for number in range(first, last):
            bad = bad_every and number % bad_every == 0
            value = b"no json" if bad else b'{"id": %d, "text": "%d"}' % (number, number)
            producer.produce(topic, value, key=b"k%d" % (number % 11))


def the_topic(bootstrap: str, topic: str) -> Counter[tuple[int, int, bytes | None]]:
    """Each record of a topic: partition, offset, value."""
    from krust import _krust

    client = _krust.Client(bootstrap, {})
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    partitions = client.request("Metadata", asked)["topics"][0]["partitions"]
    ends = client.list_offsets([(topic, one["partition_index"], -1) for one in partitions])
    consumer = _krust.Consumer(bootstrap, {})
    consumer.assign([(topic, partition, 0, end) for _, partition, _, end, _ in ends if end])
    found: Counter[tuple[int, int, bytes | None]] = Counter()
    while not consumer.done():
        for record in consumer.poll(1000, 10_000)[0]:
            found[record.partition, record.offset, record.value] += 1
    return found


def rows(table: Table) -> Any:
    return ds.dataset(table.files(), format="parquet").to_table()


def raw_rows(table: Table) -> Counter[tuple[int, int, bytes | None]]:
    """Each record of a table that keeps records as they are."""
    found = rows(table)
    columns = (found.column(name).to_pylist() for name in ("partition", "offset", "value"))
    return Counter(zip(*columns, strict=True))


def ids(table: Table) -> Counter[int]:
    return Counter(rows(table).column("id").to_pylist())


def to(kind: str, folder: Path) -> Callable[..., Flow]:
    """The function for a kind of table, with its place."""
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="the extra `tables` is not installed")
        (folder / "lake").mkdir(exist_ok=True)
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        catalog["warehouse"] = f"file://{folder}/lake"

        def iceberg(spark: SparkSession, topics: str, **more: Any) -> Flow:
            more = {"checkpoint": str(folder / "checkpoint"), "name": "flow", **more}
            return pipeline.to_iceberg(spark, topics, "shop.orders", catalog=catalog, **more)

        return iceberg
    function = {"parquet": pipeline.to_parquet, "delta": pipeline.to_delta}[kind]

    def place(spark: SparkSession, topics: str, **more: Any) -> Flow:
        return function(spark, topics, str(folder / "table"), **{"name": "flow", **more})

    return place


def ran(flow: Flow) -> Flow:
    """A flow of `once`, at its end."""
    with flow:
        assert flow.wait(WAIT_S * 1000), "it did not end"
    return flow


def table_of(flow: Flow) -> Table:
    assert flow.table is not None
    return flow.table


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_of_a_topic_is_in_the_table_once_and_unchanged(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, kind: str
) -> None:
    copy = to(kind, tmp_path)
    for first in (0, 300):
        write(bootstrap, topic, first, first + 300)
        flow = ran(copy(spark, topic, bootstrap=bootstrap, once=True))
        assert flow.counts.rows == 300
    assert raw_rows(table_of(flow)) == the_topic(bootstrap, topic)
    again = ran(copy(spark, topic, bootstrap=bootstrap, once=True))
    assert again.counts.rows == 0
    table = table_of(again)
    assert sum(table.offsets("flow")[topic].values()) == 600
    assert not list(table.staging.glob("*.parquet"))


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_decoded_and_bad_records_are_kept_apart(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, kind: str
) -> None:
    write(bootstrap, topic, 0, 200, bad_every=50)
    flow = ran(to(kind, tmp_path)(spark, topic, bootstrap=bootstrap, decode=JSON, once=True))
    assert (flow.counts.rows, flow.counts.bad_rows) == (196, 4)
    assert ids(table_of(flow)) == Counter(n for n in range(200) if n % 50)
    apart = ds.dataset(table_of(flow).path / "_bad").to_table()
    assert apart.column("value").to_pylist() == [b"no json"] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_of_dataframes_transforms_a_topic_into_a_table(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, kind: str
) -> None:
    def even(frame: DataFrame) -> DataFrame:
        return frame.where("id % 2 = 0").selectExpr("id", "upper(text) AS text", "_offset")

    copy = to(kind, tmp_path)
    for first in (0, 100):
        write(bootstrap, topic, first, first + 100, bad_every=25)
        more = {"bootstrap": bootstrap, "decode": JSON, "function": even}
        flow = ran(copy(spark, topic, once=True, **more))
    assert ids(table_of(flow)) == Counter(n for n in range(200) if n % 25 and n % 2 == 0)
    assert flow.counts.bad_rows == 4
    assert sum(table_of(flow).offsets("flow")[topic].values()) == 200


def test_sql_transforms_one_topic_into_another(
    spark: SparkSession, bootstrap: str, topic: str, name: str, tmp_path: Path
) -> None:
    create(bootstrap, f"{name}-out")
    write(bootstrap, topic, 0, 50)
    made = pipeline.Pipeline(
        (topic,), "topic", f"{name}-out", bootstrap=bootstrap, decode=JSON,
        sql="SELECT id * 2 AS double FROM input WHERE id < 10", checkpoint=str(tmp_path / "c"),
    )  # fmt: skip
    ran(pipeline.start(spark, made, once=True))
    values = [value for _, _, value in the_topic(bootstrap, f"{name}-out").elements()]
    found = sorted(json.loads(value or b"")["double"] for value in values)
    assert found == [2 * number for number in range(10)]


def test_a_lost_checkpoint_loses_and_duplicates_no_row(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    copy = to("delta", tmp_path)
    write(bootstrap, topic, 0, 100)
    ran(copy(spark, topic, bootstrap=bootstrap, once=True))
    shutil.rmtree(tmp_path / "table/_checkpoint")
    write(bootstrap, topic, 100, 200)
    flow = ran(copy(spark, topic, bootstrap=bootstrap, once=True))
    assert flow.counts.rows == 100
    assert raw_rows(table_of(flow)) == the_topic(bootstrap, topic)


def test_a_pipeline_refuses_offsets_that_its_table_contains(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    copy = to("delta", tmp_path)
    write(bootstrap, topic, 0, 100)
    ran(copy(spark, topic, bootstrap=bootstrap, once=True))
    shutil.rmtree(tmp_path / "table/_checkpoint")
    again = {"startingOffsets": "earliest"}
    with (
        pytest.raises(OverlapError, match="up to offset"),
        copy(spark, topic, bootstrap=bootstrap, source_options=again, once=True) as flow,
    ):
        flow.wait(WAIT_S * 1000)
    assert raw_rows(table_of(flow)) == the_topic(bootstrap, topic)


def test_a_failure_in_a_worker_is_reported_in_one_line(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    write(bootstrap, topic, 0, 10, bad_every=5)
    decode = JSON | {"badRecords": "fail"}
    with (
        pytest.raises(KrustError, match=r"the pipeline stopped: .* cannot be decoded: no JSON"),
        to("delta", tmp_path)(spark, topic, bootstrap=bootstrap, decode=decode, once=True) as flow,
    ):
        flow.wait(WAIT_S * 1000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "iceberg"])
def test_a_batch_published_before_a_crash_is_not_published_twice(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, kind: str
) -> None:
    """Spark forgets that it did the last batch: the commit log's newest file is gone."""
    copy = to(kind, tmp_path)
    for first in (0, 100, *others(200)):
        write(bootstrap, topic, first, first + 100)
        ran(copy(spark, topic, bootstrap=bootstrap, once=True))
        commits = tmp_path / "table/_checkpoint/flow/commits"
        newest = max((path for path in commits.iterdir() if path.name.isdecimal()),
                     key=lambda path: int(path.name))  # fmt: skip
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        flow = ran(copy(spark, topic, bootstrap=bootstrap, once=True))
        assert raw_rows(table_of(flow)) == the_topic(bootstrap, topic)


def test_a_table_is_replayed_into_a_topic_in_its_order(
    spark: SparkSession, bootstrap: str, topic: str, name: str, tmp_path: Path
) -> None:
    write(bootstrap, topic, 0, 300)
    ran(to("delta", tmp_path)(spark, topic, bootstrap=bootstrap, once=True))
    create(bootstrap, f"{name}-again", 3)
    place = str(tmp_path / "table")
    again = f"{name}-again"
    written = pipeline.replay(
        spark, "delta", place, again, bootstrap=bootstrap, keep_partition=True, per_second=3000
    )
    assert written == 300
    assert the_topic(bootstrap, f"{name}-again") == the_topic(bootstrap, topic)


# Kills


@contextmanager
def meanwhile(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Threads beside the test, stopped at its end; their failures fail the test."""
    over = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[threading.Event], None]) -> None:
        try:
            work(over)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def until_equal(run: Callable[[], object], equal: Callable[[], bool], rounds: int) -> None:
    """Run again after each failure, as the operator of a pipeline does."""
    for _ in range(rounds):
        with suppress(KrustError):
            run()
        if equal():
            return
    raise AssertionError(f"not equal after {rounds} runs (seed {SEED})")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_killed_at_random_and_the_table_equals_the_topic(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, kind: str
) -> None:
    chance = random.Random(f"{SEED} {kind}")
    killed, rows = 0, 20_000 if ALL else 8000

    def kill(over: threading.Event) -> None:
        nonlocal killed
        while not over.wait(chance.uniform(0.05, 1.0)):
            found = workers()
            if found and killed < (12 if ALL else 5):
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(found), signal.SIGKILL)
                    killed += 1

    def produce(over: threading.Event) -> None:
        for first in range(0, rows, 1000):
            write(bootstrap, topic, first, first + 1000)
            over.wait(0.3)

    copy = to(kind, tmp_path)
    more = {"bootstrap": bootstrap, "max_per_trigger": 1500, "decode": JSON}

    def run() -> None:
        ran(copy(spark, topic, once=True, **more))

    with meanwhile(kill, produce):
        for _ in range(4 if ALL else 2):
            with suppress(KrustError):
                run()
    table = None

    def equal() -> bool:
        nonlocal table
        table = table_of(ran(copy(spark, topic, once=True, **more)))
        return ids(table) == Counter(range(rows))

    until_equal(run, equal, 3)
    assert killed
    assert table is not None
    assert len(table.files()) == len(set(table.files()))


@pytest.mark.timeout(600)
def test_the_broker_is_killed_at_random_and_the_table_equals_the_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, count = random.Random(SEED), 30_000 if ALL else 15_000
    port = free_port()
    broker = ServedBroker(tmp_path / "data", "--prod", port=port)
    bootstrap = broker.bootstrap
    try:
        create(bootstrap, "orders", 3)
        write(bootstrap, "orders", 0, count)
        copy = to("delta", tmp_path)
        more = {"bootstrap": bootstrap, "max_per_trigger": 2000}

        def kill(over: threading.Event) -> None:
            nonlocal broker
            for _ in range(5):
                if over.wait(chance.uniform(0.3, 2.0)):
                    return
                broker.kill()
                time.sleep(chance.uniform(0.0, 0.5))  # how long the broker is away
                broker = ServedBroker(tmp_path / "data", "--prod", port=port)

        with meanwhile(kill):
            for _ in range(3):
                with suppress(KrustError):
                    ran(copy(spark, "orders", once=True, **more))
        flow = ran(copy(spark, "orders", once=True, **more))
        topic = the_topic(bootstrap, "orders")
        assert sum(topic.values()) == count
        assert raw_rows(table_of(flow)) == topic
    finally:
        broker.stop()


FILE = """
[source]
topic = "{topic}"
[decode]
format = "json"
schema = "id bigint, text string"
{transform}
[sink]
{sink}
[run]
max_per_trigger = 1000
trigger = "200ms"
"""


def command(bootstrap: str, file: Path, *flags: str) -> list[str]:
    first = [sys.executable, "-m", "krust", "-b", bootstrap, "pipeline", "run", str(file)]
    return [*first, "--local", "2", *flags]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "iceberg"])
def test_the_driver_is_killed_at_random_and_the_table_equals_the_topic(
    bootstrap: str, topic: str, tmp_path: Path, kind: str
) -> None:
    """`krust pipeline run` by SIGKILL, in the middle of its batches; a zombie JVM may go on."""
    chance = random.Random(f"{SEED} driver {kind}")
    file = tmp_path / "flow.toml"
    file.write_text(FILE.format(topic=topic, sink=f'{kind} = "table"', transform=""))
    count = 15_000 if ALL else 6000
    write(bootstrap, topic, 0, count, bad_every=1000)
    rounds = int(os.environ.get("KRUST_CRASH_ROUNDS", "3" if ALL else "1"))
    for _ in range(rounds):
        table = open_table(kind, str(tmp_path / "table"))
        before = table.state("flow").batch
        process = subprocess.Popen(
            command(bootstrap, file, "--once"), stdout=subprocess.DEVNULL, env=environment()
        )
        wanted = before + chance.randrange(1, 4)
        while process.poll() is None and table.state("flow").batch < wanted:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.4))  # a random moment within a batch
        process.kill()
        process.wait()
    done = subprocess.run(
        [*command(bootstrap, file, "--once"), "--json"],
        capture_output=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    table = open_table(kind, str(tmp_path / "table"))
    assert ids(table) == Counter(n for n in range(count) if n % 1000)
    on_disk = {path.name for path in table.path.glob("*.parquet")}
    assert on_disk == {Path(name).name for name in table.files()}


@pytest.mark.timeout(600)
def test_run_reads_old_and_then_new_records_until_ctrl_c(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "flow.toml"
    sql = '[transform]\nsql = "SELECT id + 1 AS id FROM input"'
    file.write_text(FILE.format(topic=topic, sink='delta = "table"', transform=sql))
    write(bootstrap, topic, 0, 100, bad_every=10)
    process = subprocess.Popen(
        [*command(bootstrap, file), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    table = open_table("delta", str(tmp_path / "table"))

    def wait_for(count: int) -> None:
        for _ in itertools.count():
            if table.state("flow").rows == count:
                return
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)

    wait_for(90)
    second = subprocess.run(command(bootstrap, file), capture_output=True, check=False)
    assert second.returncode == 1
    assert b"is the checkpoint of a pipeline that runs (process" in second.stderr
    write(bootstrap, topic, 100, 200, bad_every=10)
    wait_for(180)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert json.loads(out)["rows"] == 180
    assert b"Traceback" not in err
    assert b"backfill" in err
    assert ids(table) == Counter(n + 1 for n in range(200) if n % 10)


def test_an_invalid_transformation_is_reported_with_a_hint(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    made = pipeline.Pipeline(
        (topic,), "delta", str(tmp_path / "table"), bootstrap=bootstrap, decode=JSON,
        sql="SELECT nothing FROM input",
    )  # fmt: skip
    with pytest.raises(KrustError, match=r"^the pipeline cannot start: \[UNRESOLVED_COLUMN"):
        pipeline.start(spark, made, once=True)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT id FORM input", r"\[PARSE_SYNTAX_ERROR"),
        ("SELECT nothing FROM input", r"\[UNRESOLVED_COLUMN"),
    ],
)
def test_check_has_spark_parse_the_sql(
    spark: SparkSession, tmp_path: Path, sql: str, what: str
) -> None:
    made = pipeline.Pipeline(("t",), "delta", str(tmp_path / "table"), decode=JSON, sql=sql)
    with pytest.raises(KrustError, match=what) as refused:
        transformed_columns(spark, made)
    assert not refused.value.retriable


def test_a_column_whose_type_a_transformation_changed_is_refused_before_a_write(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    write(bootstrap, topic, 0, 10)
    made = pipeline.Pipeline(
        (topic,), "parquet", str(tmp_path / "table"), bootstrap=bootstrap, decode=JSON,
        sql="SELECT id FROM input",
    )  # fmt: skip
    table = table_of(ran(pipeline.start(spark, made, once=True)))
    changed = dataclasses.replace(made, sql="SELECT string(id) AS id FROM input")
    columns = transformed_columns(spark, changed)
    refused = pytest.raises(KrustError, match=r"column 'id' of .* would be string")
    with refused:
        table.refuse_changed(columns)
    with refused:
        pipeline.start(spark, changed, once=True)
    assert ids(table) == Counter(range(10))


def test_an_error_in_a_users_function_is_not_retried(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    def broken(frame: DataFrame) -> DataFrame:
        def fail(batches: Iterator[Any]) -> Iterator[Any]:
            for _ in batches:
                raise ValueError("connection timed out, retry")
            yield from ()

        return frame.select("id").mapInArrow(fail, "id bigint")

    write(bootstrap, topic, 0, 10)
    more = {"bootstrap": bootstrap, "decode": JSON, "function": broken}
    with (
        pytest.raises(KrustError, match=r"connection timed out, retry \(ValueError\)") as failed,
        to("parquet", tmp_path)(spark, topic, once=True, **more) as flow,
    ):
        flow.wait(WAIT_S * 1000)
    assert not failed.value.retriable
