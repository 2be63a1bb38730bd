"""What the file of a pipeline may contain, and how its errors are reported."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.errors import ConfigError, KrustError
from krust.spark import positions, recipe
from krust.spark.flow import Checkpoint, Flow
from krust.spark.recipe import Pipeline

WHOLE = """
[source]
topics = ["orders", "returns"]
bootstrap = "broker:9092"
since = "@2026-11-01"
options = { "failOnDataLoss" = false, "kafka.security.protocol" = "PLAINTEXT" }

[decode]
format = "json"
schema = "id bigint, name string"
keep = ["offset", "key"]
dead_letters = "orders.bad"

[transform]
sql = "SELECT id FROM input"

[sink]
delta = "lake/orders"
file_mb = 64
compression = "snappy"

[run]
name = "orders"
checkpoint = "here"
trigger = "500ms"
max_per_trigger = 1000
"""


def written(folder: Path, text: str, name: str = "orders.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_whole_file_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    made = recipe.read(written(tmp_path, WHOLE))
    assert made == Pipeline(
        topics=("orders", "returns"),
        sink="delta",
        place=str(tmp_path / "lake/orders"),
        name="orders",
        bootstrap="broker:9092",
        since="@2026-11-01",
        source_options={"failOnDataLoss": "false", "kafka.security.protocol": "PLAINTEXT"},
        decode={
            "valueFormat": "json",
            "valueSchema": "id bigint, name string",
            "keep": "offset,key",
            "deadLetterTopic": "orders.bad",
        },
        sql="SELECT id FROM input",
        file_mb=64,
        compression="snappy",
        checkpoint=str(tmp_path / "here"),
        trigger_ms=500,
        max_per_trigger=1000,
    )
    assert made.transforms


def test_fields_missing_from_a_file_have_defaults(tmp_path: Path) -> None:
    text = '[source]\ntopic = "orders"\n[sink]\nparquet = "t"'
    made = recipe.read(written(tmp_path, text, "flow.toml"), bootstrap="localhost:9092")
    assert (made.name, made.bootstrap, made.trigger_ms) == ("flow", "localhost:9092", 10_000)
    assert made.checkpoint_path == tmp_path / "t/_checkpoint/flow"
    assert not made.transforms


def test_python_makes_a_pipeline_and_functions(tmp_path: Path) -> None:
    written(tmp_path, "def clean(frame):\n    return frame\nnumber = 1", "clean.py")
    text = '[source]\ntopic = "o"\n[sink]\ndelta = "t"\n[transform]\npython = "clean.py:clean"'
    function = recipe.read(written(tmp_path, text)).function
    assert function is not None
    assert function(7) == 7
    code = "from krust.spark.recipe import Pipeline\npipeline = Pipeline(('o',), 'delta', '/t')"
    made = recipe.read(written(tmp_path, code, "flow.py"), bootstrap="b:1")
    assert (made.topics, made.bootstrap) == (("o",), "b:1")


SOURCE, SINK = '[source]\ntopic = "o"\n', '[sink]\ndelta = "t"\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", r"\[sink\] has none of"),
        ("[", "orders.toml: "),
        (SOURCE, r"\[sink\] has none of parquet, delta, iceberg, topic"),
        (SINK, r"\[source\] has none of topic, topics, pattern"),
        (SOURCE + '[sink]\ndelta = "a"\nparquet = "b"', "parquet and delta"),
        (SOURCE + SINK + "[sinks]", r"\[sinks\] is no part"),
        (SOURCE + SINK + "file_mbs = 1", "no key 'file_mbs'"),
        (SOURCE + SINK + 'file_mb = "1"', "a whole number is wanted"),
        (SOURCE + SINK + "file_mb = 0", "at least 1 is wanted"),
        (SOURCE + SINK + 'compression = "rar"', "compression must be"),
        (SOURCE + SINK + '[run]\ntrigger = "soon"', "trigger is 'soon'"),
        (SOURCE + SINK + '[run]\nname = "a/b"', "name 'a/b'"),
        (
            SOURCE + SINK + '[decode]\nformat = "xml"',
            "format: 'xml' is not supported: json, avro, protobuf",
        ),
        (SOURCE + SINK + '[decode]\nformat = "json"', "valueFormat=json needs valueSchema"),
        (SOURCE + SINK + '[transform]\nsql = "a"\npython = "os:getpid"', "both sql and python"),
        (SOURCE + SINK + '[transform]\npython = "clean"', "write file.py:function"),
        (SOURCE + SINK + '[transform]\npython = "no.such:f"', "No module named"),
        (SOURCE + SINK + '[transform]\npython = "os:f"', "no function 'f'"),
        (SOURCE + SINK + '[transform]\npython = "no.py:f"', "is not a Python file"),
        ('[source]\ntopic = "o"\nsince = "10:20"\n' + SINK, "has an end"),
        ('[source]\ntopic = "o"\nsince = "soon"\n' + SINK, "since: 'soon' is not a place"),
        ('[source]\ntopic = ""\n' + SINK, "needs a topic"),
        ('[source]\ntopic = ["a"]\n' + SINK, "names are wanted"),
        ('[source]\ntopic = "a"\npattern = "b"\n' + SINK, "topic and pattern"),
        ("source = 1", "write .source. above its keys"),
        (SOURCE + "options = 1\n" + SINK, "write options = {"),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        recipe.read(written(tmp_path, text))


@pytest.mark.parametrize("code", ["", "pipeline = 1", "1 / 0", "import no_such"])
def test_a_python_file_without_a_pipeline_is_refused(tmp_path: Path, code: str) -> None:
    with pytest.raises(ConfigError, match=r"flow\.py"):
        recipe.read(written(tmp_path, code, "flow.py"))


@given(
    st.dictionaries(st.sampled_from([*recipe._KEYS, "x"]), st.none() | st.integers() | st.text())
)
def test_no_file_content_raises_an_undocumented_error(tree: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        recipe.of(tree, Path("/"), "name")


def test_a_checkpoint_has_one_driver_and_a_job_of_its_own(tmp_path: Path) -> None:
    one = Checkpoint(tmp_path / "c")
    assert one.running() is None
    one.take()
    job = one.job()
    assert one.running() == os.getpid()
    code = (
        "import sys; from pathlib import Path; from krust.spark.flow import Checkpoint\n"
        f"Checkpoint(Path({str(one.path)!r})).take()"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"is the checkpoint of a pipeline that runs" in other.stderr
    with pytest.raises(KrustError, match=f"process {os.getpid()}"):
        Checkpoint(one.path).refuse_running()
    one.free()
    assert one.running() is None
    one.take()
    (one.path / "metadata").write_text("{}")
    assert one.job() != job, "no batch was planned with it"
    (one.path / "offsets").mkdir()
    (one.path / "offsets/.0.tmp").touch()
    assert one.new
    (one.path / "offsets/0").touch()
    kept = one.job()
    assert one.job() == kept
    one.free()


def test_a_run_that_failed_before_its_first_batch_leaves_the_start_open(tmp_path: Path) -> None:
    """The source's own default is `latest`: without the option all that is there would be lost."""
    nothing: Any = None
    flow = Flow(nothing, dataclasses.replace(made(), checkpoint=str(tmp_path)))
    (tmp_path / "metadata").write_text("{}")
    assert flow._begin() == {"startingOffsets": "earliest"}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").touch()
    assert flow._begin() == {}
    flow.__exit__()


def test_offsets_are_read_from_sparks_log(tmp_path: Path) -> None:
    one = Checkpoint(tmp_path)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    ends = {"t": {"0": 5}}
    (tmp_path / "offsets/3").write_text('v1\n{"batchWatermarkMs":0}\n' + json.dumps(ends))
    (tmp_path / "offsets/4").write_text('v1\n{"batchWatermarkMs":0}\n"-"')
    (tmp_path / "offsets/5").write_text("v1")
    assert [one.offsets(batch) for batch in (2, 3, 4, 5)] == [{}, ends, {}, {}]
    assert one.reached() == {}
    (tmp_path / "commits/3").touch()
    assert one.reached() == ends


def made(since: str = "start", bootstrap: str = "127.0.0.1:1") -> Pipeline:
    return Pipeline(("t",), "delta", "/t", since=since, bootstrap=bootstrap)


def test_a_new_pipeline_begins_at_its_start_and_continues_at_the_offsets_of_its_table() -> None:
    import krust

    assert positions.starting(made(), {}) == {"startingOffsets": "earliest"}
    assert positions.starting(made("end"), {}) == {"startingOffsets": "latest"}
    with krust.Broker() as broker:
        broker.create_topic("t", partitions=3)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(10):
                producer.produce("t", b"v", partition=0, timestamp_ms=1_000_000_000_000 + number)

        def begins(since: str, table: dict[str, dict[str, int]]) -> dict[str, int]:
            found = positions.starting(made(since, broker.bootstrap), table)
            chosen: dict[str, int] = json.loads(found["startingOffsets"])["t"]
            return chosen

        assert begins("+3", {}) == {"0": 3, "1": 0, "2": 0}
        assert begins("-3", {}) == {"0": 7, "1": 0, "2": 0}
        assert begins("@1000000000004", {}) == {"0": 4, "1": 0, "2": 0}
        assert begins("end", {"t": {"0": 5, "1": 0}}) == {"0": 5, "1": 0, "2": -2}
        position = positions.Position(made("start", broker.bootstrap))
        lags = positions.lags(position, {"t": {"0": 4}})
        assert [(lag.end, lag.reached, lag.records) for lag in lags] == [
            (10, 4, 6),
            (0, None, 0),
            (0, None, 0),
        ]


def test_a_pipeline_without_its_topic_or_broker_is_refused() -> None:
    import krust

    with krust.Broker() as broker, pytest.raises(KrustError, match='topic "t" does not exist'):
        positions.Position(made("start", broker.bootstrap)).spans()
    with pytest.raises(ConfigError, match="no broker is named"):
        positions.Position(made("start", ""))


def test_functions_that_make_pipelines_take_each_field_by_its_name_and_type() -> None:
    apart = {"topics", "sink", "place"}
    fields = {one.name: one.type for one in dataclasses.fields(recipe.Pipeline)}
    expected = {name: kind for name, kind in fields.items() if name not in apart}
    settings = recipe.TableSettings.__annotations__
    assert {name: kind.__forward_arg__ for name, kind in settings.items()} == expected
