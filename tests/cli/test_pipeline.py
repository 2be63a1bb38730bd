"""`krust pipeline check`, `list`, `status` and `compact`: all that needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.three_brokers import Command

pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
pytest.importorskip("deltalake", reason="the extra `tables` is not installed")


@pytest.fixture
def file(tmp_path: Path, topic: str) -> Path:
    path = tmp_path / "orders.toml"
    path.write_text(
        f'[source]\ntopic = "{topic}"\n[decode]\nformat = "json"\nschema = "id bigint"\n'
        '[sink]\ndelta = "table"\n'
    )
    return path


def test_check_reports_what_it_finds_and_what_is_invalid(
    krust: Command, file: Path, topic: str
) -> None:
    def looked(code: int) -> dict[str, tuple[str, str]]:
        done = krust("pipeline", "check", str(file), "--json")
        assert done.code in (code, 9), done.err
        rows = json.loads(done.out)
        return {row["check"]: (row["result"], row["detail"]) for row in rows}

    found = looked(0)
    assert found["source"] == ("ok", f"3 partitions of {topic}")
    assert found["decode"] == ("ok", "1 column: id")
    assert found["values"] == ("ok", "no records yet")
    assert found["table"] == ("ok", "0 rows in 0 files")
    krust.ok("produce", topic, given=b'{"id": 1}\nnonsense\n')
    result, detail = looked(0)["values"]
    assert (result, detail[:33]) == ("warning", "1 of 2 records is bad, such as: n")
    krust.ok("produce", topic, given=b"nonsense\n")
    result, detail = looked(9)["values"]
    assert (result, detail[:34]) == ("PROBLEM", "2 of 3 records are bad, such as: n")
    file.write_text(file.read_text().replace("id bigint", "other timestamp, id string"))
    result, detail = looked(9)["values"]
    assert result == "PROBLEM"
    assert detail.startswith("3 of 3 records are bad")


def test_a_missing_topic_is_exit_9_with_a_hint(krust: Command, file: Path, topic: str) -> None:
    file.write_text(file.read_text().replace(topic, f"{topic}-none"))
    done = krust("pipeline", "check", str(file))
    assert done.code == 9
    assert f"krust topic create {topic}-none" in done.text


def test_status_and_list_know_a_pipeline_that_never_ran(
    krust: Command, file: Path, topic: str
) -> None:
    krust.ok("produce", topic, given=b"1\n2\n")
    found = krust.ok("pipeline", "status", str(file), "--json").json()
    assert (found["name"], found["state"], found["rows"], found["lag"]) == (
        "orders",
        "stopped",
        0,
        2,
    )
    assert sum(one["end"] for one in found["partitions"]) == 2
    assert {one["reached"] for one in found["partitions"]} == {None}
    broken = file.with_name("broken.toml")
    broken.write_text("[source]\n[sink]\n")
    file.with_name("other.toml").write_text("[tool]\n")
    listed = krust.ok("pipeline", "list", str(file.parent), "--json").json()
    assert [row["name"] for row in listed] == ["broken", "orders"]
    assert listed[0]["state"].startswith("broken: ")
    assert krust.ok("pipeline", "compact", str(file), "--json").json() == {
        "files_gone": 0,
        "files_new": 0,
    }


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (["run", "no.toml"], 2, "there is no file"),
        (["check", "no.toml"], 2, "there is no file"),
        (["run", "FILE", "--local", "2", "--spark", "yarn"], 2, "say different places"),
        (["run", "FILE", "--local", "two"], 2, "a number of cores"),
        (["run", "BAD"], 2, "no key 'topik'"),
    ],
)
def test_an_invalid_pipeline_is_refused_before_spark_starts(
    file: Path, args: list[str], code: int, what: str
) -> None:
    bad = file.with_name("bad.toml")
    bad.write_text(file.read_text().replace("topic =", "topik ="))
    places = {"FILE": str(file), "BAD": str(bad)}
    done = Command("127.0.0.1:1")("pipeline", *(places.get(one, one) for one in args))
    assert (done.code, done.out) == (code, b"")
    assert what in done.err
    assert "Traceback" not in done.err
