"""Tables without Spark: a batch is in a table entirely and once, whatever dies or repeats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")

import pyarrow.parquet as pq  # noqa: E402

from krust.errors import ConfigError  # noqa: E402
from krust.spark import table as base  # noqa: E402
from krust.spark.dead_letters import BadRecordError  # noqa: E402
from krust.spark.files import StagingTarget, TaskNaming, manifest_schema, materialize  # noqa: E402
from krust.spark.tables import Commit, OverlapError, Table, open_table  # noqa: E402

RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
Opener = Callable[[], Table]


def records(start: int, end: int, values: Callable[[int], bytes | None] | None = None) -> Any:
    rows = range(start, end)
    made = [values(n) if values else b"value %d" % n for n in rows]
    columns: list[Any] = [
        [b"key %d" % n for n in rows], made, ["t"] * len(rows), [0] * len(rows), list(rows),
        [1_795_000_000_000_000 + n for n in rows], [0] * len(rows),
    ]  # fmt: skip
    arrays = [pa.array(one, kind) for one, kind in zip(columns, RECORD.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD)


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same table each time, as another process would."""
    kind = request.param
    if kind == "delta":
        pytest.importorskip("deltalake", reason="the extra `tables` is not installed")
    if kind != "iceberg":
        return lambda: open_table(kind, str(tmp_path / "table"))
    pytest.importorskip("pyiceberg", reason="the extra `tables` is not installed")
    (tmp_path / "lake").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog["warehouse"] = f"file://{tmp_path}/lake"
    return lambda: open_table(kind, "shop.orders", dict(catalog), schema=RECORD)


def written(table: Table, start: int, end: int, *, job: str = "q", batch: int = 0) -> Commit:
    """Stage what a task would, and what its driver would publish."""
    target = StagingTarget(str(table.path), file_bytes=1 << 20)
    naming = TaskNaming(job, batch, 0, "t", 0, start, end)
    manifest = materialize([records(start, end)], target, naming)
    return Commit(job, batch, manifest.to_pylist(), {"t": {"0": end}}, pipeline="orders")


def offsets(table: Table) -> list[int]:
    found = [
        pq.read_table(name, columns=["offset"]).column(0).to_pylist() for name in table.files()
    ]
    return sorted(offset for one in found for offset in one)


def parquet_files(table: Table) -> set[str]:
    """All that lie in the table's folder, whether they count or not."""
    return {path.name for path in table.path.rglob("*.parquet")}


def test_a_batch_published_twice_is_in_the_table_once(opener: Opener) -> None:
    table = opener()
    assert table.publish(written(table, 0, 10))
    again = opener()
    assert again.committed("q") == 0
    assert not again.publish(written(again, 0, 10))
    assert again.publish(written(again, 10, 20, batch=1))
    assert offsets(opener()) == list(range(20))
    assert parquet_files(again) == {Path(name).name for name in again.files()}
    assert again.offsets("orders") == {"t": {"0": 20}}
    assert again.offsets("another") == {}
    state = again.state("orders")
    assert (state.files, state.rows, state.job, state.batch) == (2, 20, "q", 1)
    assert state.bytes > 0
    assert state.time_ms > 0


def test_a_task_that_ran_twice_leaves_no_second_file(opener: Opener) -> None:
    table = opener()
    written(table, 0, 10)  # its manifest rows were lost with the worker
    zombie = written(table, 10, 20, batch=1)
    assert table.publish(written(table, 0, 10))
    assert offsets(table) == list(range(10))
    later = {Path(row["path"]).name for row in zombie.files}
    assert parquet_files(table) == {Path(name).name for name in table.files()} | later
    assert table.publish(written(table, 10, 20, batch=1))
    assert parquet_files(table) == {Path(name).name for name in table.files()}


def test_a_driver_that_dies_anywhere_in_publish_loses_and_duplicates_no_row(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(BaseException):
        pass

    steps = ["krust.spark.table.write_once", "pathlib.Path.rename", "pathlib.Path.unlink"]
    steps += ["krust.spark.parquet.write_once", "krust.spark.moving_table.write_once", "os.link"]
    steps += ["os.fsync", "krust.spark.table.sync_folder", "krust.spark.moving_table.sync_folder"]
    start, died = 0, 0
    for step in steps:
        for after in (False, True):
            for nth in range(3):
                table = opener()
                commit = written(table, start, start + 5, batch=start // 5)
                with monkeypatch.context() as patch:
                    publish = partial(table.publish, commit)
                    died += dies(patch, step, nth, after, publish, DiedError)
                next_driver = opener()
                next_driver.publish(written(next_driver, start, start + 5, batch=start // 5))
                start += 5
                assert offsets(next_driver) == list(range(start)), (step, after, nth)
                found = parquet_files(next_driver)
                assert found == {Path(name).name for name in next_driver.files()}, (step, nth)
                left = [path.name for path in next_driver.staging.iterdir()]
                assert not [name for name in left if not name.startswith(".")], (step, nth)
    assert died > 10


def dies(
    patch: pytest.MonkeyPatch,
    step: str,
    nth: int,
    after: bool,
    work: Callable[[], object],
    error: type[BaseException],
) -> bool:
    """Do some work that ends before or after its nth call of a step; whether it came so far."""
    import importlib

    place, _, name = step.rpartition(".")
    owner: Any
    try:
        owner = importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, kind = place.rpartition(".")
        owner = getattr(importlib.import_module(module), kind)
    real, calls = getattr(owner, name), 0

    def call(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth + 1 and not after:
            raise error
        found = real(*args, **more)
        if calls == nth + 1:
            raise error
        return found

    patch.setattr(owner, name, call)
    try:
        work()
    except error:
        return True
    return False


def test_of_two_drivers_that_publish_one_batch_at_once_one_wins(opener: Opener) -> None:
    for batch in range(5):
        drivers = [opener() for _ in range(4)]
        commits = [written(one, batch * 5, batch * 5 + 5, batch=batch) for one in drivers]
        won: list[object] = []
        together = threading.Barrier(len(drivers))

        def publish(driver: Table, commit: Commit) -> None:
            together.wait()  # noqa: B023
            try:
                won.append(driver.publish(commit))  # noqa: B023
            except Exception as error:
                won.append(error)  # noqa: B023

        threads = [
            threading.Thread(target=publish, args=pair)
            for pair in zip(drivers, commits, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won, key=str) == [False, False, False, True]
        assert offsets(opener()) == list(range(batch * 5 + 5))


def test_a_driver_that_read_the_state_before_another_commit_does_not_commit_again(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's whole publish happens between this one's first look and its own commit."""
    table = opener()
    table.publish(written(table, 0, 5))
    slow, quick = opener(), opener()
    commit, twin = written(slow, 5, 10, batch=1), written(quick, 5, 10, batch=1)
    real = base._continues

    def meanwhile(*args: Any) -> None:
        monkeypatch.setattr(base, "_continues", real)
        assert quick.publish(twin)
        real(*args)

    monkeypatch.setattr(base, "_continues", meanwhile)
    assert not slow.publish(commit)
    assert offsets(opener()) == list(range(10))


def test_a_new_checkpoint_may_not_write_offsets_of_the_table(opener: Opener) -> None:
    table = opener()
    table.publish(written(table, 0, 10))
    with pytest.raises(OverlapError, match="t/0 up to offset 10, and this batch begins at 5"):
        table.publish(written(table, 5, 15, job="another"))
    begins = Commit("another", 0, [], {"t": {"0": 5}}, pipeline="orders")
    assert table.publish(begins)
    assert table.offsets("orders") == {"t": {"0": 10}}, "a table never goes back"
    with pytest.raises(OverlapError):
        table.publish(written(table, 5, 15, job="another", batch=1))
    assert table.publish(written(table, 10, 15, job="another", batch=1))
    assert offsets(table) == list(range(15))
    assert table.offsets("orders") == {"t": {"0": 15}}


def test_a_batch_without_records_moves_the_offsets(opener: Opener) -> None:
    table = opener()
    table.publish(written(table, 0, 5))
    empty = materialize([], StagingTarget(str(table.path)), TaskNaming("q", 1, 0, "t", 0, 5, 9))
    assert [row["path"] for row in empty.to_pylist()] == [None]
    commit = Commit("q", 1, empty.to_pylist(), {"t": {"0": 9}}, pipeline="orders")
    assert table.publish(commit)
    assert table.offsets("orders") == {"t": {"0": 9}}
    assert table.committed("q") == 1
    assert offsets(table) == list(range(5))


def test_compaction_keeps_every_row_and_the_committed_offsets(opener: Opener) -> None:
    table = opener()
    for batch in range(6):
        table.publish(written(table, batch * 5, batch * 5 + 5, batch=batch))
    before = opener().state("orders")
    assert table.compact(1 << 20) == (6, 1)
    after = opener()
    assert offsets(after) == list(range(30))
    assert after.state("orders").rows == before.rows
    assert after.state("orders").files == 1
    assert after.committed("q") == 5
    assert after.offsets("orders") == {"t": {"0": 30}}
    assert not after.publish(written(after, 25, 30, batch=5))
    assert after.publish(written(after, 30, 35, batch=6))
    assert offsets(opener()) == list(range(35))
    assert after.compact(1) == (0, 0) or table.kind == "parquet"


def test_new_columns_join_a_table(opener: Opener) -> None:
    table = opener()
    table.publish(written(table, 0, 5))
    more = records(5, 10)
    wider = more.append_column("note", pa.array(["x"] * 5))
    rows = materialize(
        [wider], StagingTarget(str(table.path)), TaskNaming("q", 1, 0, "t", 0, 5, 10)
    )
    table.publish(Commit("q", 1, rows.to_pylist(), {"t": {"0": 10}}, pipeline="orders"))
    assert offsets(opener()) == list(range(10))
    table.compact(1 << 20)
    (whole,) = opener().files()
    assert (
        sorted(pq.read_table(whole).column("note").to_pylist(), key=str) == [None] * 5 + ["x"] * 5
    )


def test_a_column_of_another_type_is_refused_before_a_write(opener: Opener) -> None:
    table = opener()
    table.publish(written(table, 0, 5))
    place = RECORD.get_field_index("value")
    changed = records(5, 10)
    text = changed.column(place).cast(pa.string())
    other = changed.set_column(place, "value", text)
    with pytest.raises(ConfigError, match=r"column 'value' of .* now it would be"):
        opener().refuse_changed(other.schema)
    opener().refuse_changed(RECORD)
    opener().refuse_changed(RECORD.append(pa.field("note", pa.string())))
    rows = materialize(
        [other], StagingTarget(str(table.path)), TaskNaming("q", 1, 0, "t", 0, 5, 10)
    )
    with pytest.raises(ConfigError, match="column 'value'"):
        opener().publish(Commit("q", 1, rows.to_pylist(), {"t": {"0": 10}}, pipeline="orders"))
    assert offsets(opener()) == list(range(5))


def test_a_parquet_table_knows_its_columns_after_a_compaction(tmp_path: Path) -> None:
    table: Any = open_table("parquet", str(tmp_path / "table"))
    for batch in range(2):
        table.publish(written(table, 5 * batch, 5 * batch + 5, batch=batch))
    before = table.columns()
    assert before["offset"] == "int64"
    table.compact(1 << 20)
    again: Any = open_table("parquet", str(tmp_path / "table"))
    assert again.columns() == before


def test_the_sweep_deletes_old_orphans_and_no_file_of_the_table(opener: Opener) -> None:
    table = opener()
    table.publish(written(table, 0, 5))
    orphan = Path(written(table, 5, 10, job="gone", batch=7).files[0]["path"])
    assert table.sweep() == []
    assert orphan.exists()
    os.utime(orphan, (1, 1))
    assert table.sweep() == [orphan.name]
    assert offsets(table) == list(range(5))


def test_a_job_with_a_path_in_its_name_is_refused(tmp_path: Path) -> None:
    table = open_table("parquet", str(tmp_path))
    for job in ("../q", "", "a/b", "-"):
        with pytest.raises(ConfigError, match="job"):
            table.publish(Commit(job, 0, []))


# The worker's side


def test_files_roll_by_size_and_the_manifest_describes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("krust.spark.files.GROUP_BYTES", 4096)
    batches = (records(n, n + 100) for n in range(0, 1000, 100))
    target = StagingTarget(str(tmp_path), file_bytes=8192, codec="none")
    manifest = materialize(batches, target, TaskNaming("q", 3, 2, "t", 0, 0, 1001))
    assert manifest.schema == manifest_schema()
    rows = manifest.to_pylist()
    assert len(rows) > 3
    assert sum(row["rows"] for row in rows) == 1000
    ends = [(row["first_offset"], row["last_offset"]) for row in rows]
    assert ends[0][0] == 0
    assert ends[-1][1] == 999
    assert [first for first, _ in ends[1:]] == [last + 1 for _, last in ends[:-1]]
    for row in rows:
        found = pq.read_table(row["path"])
        assert (found.schema, found.num_rows) == (RECORD, row["rows"])
        assert row["bytes"] == Path(row["path"]).stat().st_size
        stats = json.loads(row["stats"])
        assert stats["numRecords"] == row["rows"]
        assert stats["minValues"]["offset"] == row["first_offset"]
        assert stats["nullCount"]["partition"] == 0
        assert row["min_timestamp"] == 1_795_000_000_000_000 + row["first_offset"]
        assert (row["start_offset"], row["end_offset"]) == (0, 1001)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krust.spark.files.GROUP_BYTES", 1)

    def broken() -> Iterator[Any]:
        yield records(0, 10)
        yield records(10, 20)
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError):
        materialize(broken(), StagingTarget(str(tmp_path), file_bytes=1), TaskNaming("q", 0, 0))
    assert not list(tmp_path.rglob("*.parquet"))


JSON = {"valueFormat": "json", "valueSchema": "n bigint, name string"}


def a_value(n: int) -> bytes | None:
    return {3: b"{", 4: None}.get(n, b'{"n": %d, "name": "x"}' % n)


def test_values_are_decoded_and_bad_records_kept_apart(tmp_path: Path) -> None:
    target = StagingTarget.of({"path": str(tmp_path), **JSON})
    manifest = materialize([records(0, 8, a_value)], target, TaskNaming("q", 0, 0, "t", 0, 0, 8))
    (row,) = manifest.to_pylist()
    assert (row["rows"], row["bad_rows"], row["first_offset"], row["last_offset"]) == (7, 1, 0, 7)
    found = pq.read_table(row["path"])
    assert found.schema.names == [
        "n",
        "name",
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_key",
    ]
    assert found.column("n").to_pylist() == [0, 1, 2, None, 5, 6, 7]
    assert found.column("_offset").to_pylist() == [0, 1, 2, 4, 5, 6, 7]
    (bad,) = pq.read_table(next((tmp_path / "_bad").iterdir())).to_pylist()
    assert (bad["offset"], bad["value"], bad["reason"][:8]) == (3, b"{", "no JSON:")


def test_bad_records_fail_the_task_or_are_dropped_by_option(tmp_path: Path) -> None:
    naming = TaskNaming("q", 0, 0)
    target = StagingTarget.of({"path": str(tmp_path), **JSON, "badRecords": "fail"})
    with pytest.raises(BadRecordError, match="t/0 offset 3 cannot be decoded: no JSON"):
        materialize([records(0, 8, a_value)], target, naming)
    target = StagingTarget.of(
        {"path": str(tmp_path), **JSON, "badRecords": "drop", "keep": "offset"}
    )
    (row,) = materialize([records(0, 8, a_value)], target, naming).to_pylist()
    assert (row["rows"], row["bad_rows"]) == (7, 1)
    assert pq.read_schema(row["path"]).names == ["n", "name", "_offset"]
    assert not (tmp_path / "_bad").exists()


def test_bad_records_go_to_a_topic_with_their_origin_and_reason(tmp_path: Path) -> None:
    import krust

    with krust.Broker() as broker:
        broker.create_topic("dead")
        options = {"path": str(tmp_path), **JSON, "deadLetterTopic": "dead"}
        options["kafka.bootstrap.servers"] = broker.bootstrap
        materialize([records(0, 8, a_value)], StagingTarget.of(options), TaskNaming("q", 0, 0))
        with krust.Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            consumer.assign([krust.TopicPartition("dead", 0)])
            consumer.seek_to_beginning()
            found = next(iter(consumer))
    assert (found.key, found.value) == (b"key 3", b"{")
    headers = dict(found.headers)
    assert headers["krust.offset"] == b"3"
    assert (headers["krust.topic"], headers["krust.partition"]) == (b"t", b"0")
    assert headers["krust.reason"].startswith(b"no JSON: ")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "s3://bucket/table"},
        {"path": "t", "fileMegabytes": "0"},
        {"path": "t", "fileCompression": "rar"},
        {"path": "t", "valueFormat": "xml"},
    ],
)
def test_invalid_options_of_a_target_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        StagingTarget.of(options)


def test_an_unknown_kind_of_table_and_a_missing_package_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no tables of kind 'hudi'"):
        open_table("hudi", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="deltalake, which is not installed"):
        open_table("delta", str(tmp_path))


def test_table_names_are_known_without_heavy_imports() -> None:
    code = (
        "import sys, krust.spark.tables, krust.decode.options, krust.spark.dead_letters\n"
        "heavy = {'pyarrow', 'deltalake', 'pyiceberg', 'fastavro', 'google', 'pyspark', 'numpy'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
