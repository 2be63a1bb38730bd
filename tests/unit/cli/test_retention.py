"""`krust retention` needs no broker, changes nothing, and names the policy at fault."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import krust
from tests.waiting import until

MINE = """
class All:
    name = "all"
    def expired(self, disk, partitions, now_ms):
        return {each.key: len(each.may_go) for each in partitions}
class Raises(All):
    def expired(self, disk, partitions, now_ms):
        return {}[len(partitions)]
class Lies(All):
    def expired(self, disk, partitions, now_ms):
        return {each.key: len(each.segments) for each in partitions}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module with policies, and a data directory with a topic of five segments."""
    folder = tmp_path_factory.mktemp("retention")
    (folder / "mine.py").write_text(MINE)
    with (
        krust.Broker(folder / "data", config={"log.segment.bytes": 200}) as broker,
        krust.Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        for number in range(10):
            producer.produce("t", b"%d" % number * 60)
            assert producer.flush(10_000) == 0
    return folder


def retention(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; del sys.path[0]; from krust.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, "retention", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def would_go(folder: Path, *args: str) -> dict[str, Any]:
    before = sorted((folder / "data/t-0").iterdir())
    run = retention(folder, "check", *args, "data", "--json")
    assert run.returncode == 0, run.stderr
    assert sorted((folder / "data/t-0").iterdir()) == before
    return next(row for row in json.loads(run.stdout) if row["partition"] == "t-0")


def test_a_retention_check_shows_the_segments_to_delete(folder: Path) -> None:
    young = would_go(folder, "--policy", "time")
    assert (young["would_go"], young["may_go"]) == (0, young["segments"] - 1)
    everything = would_go(folder, "--policy", "mine:All")
    assert everything["would_go"] == everything["may_go"] > 2
    assert everything["new_start"] == 9
    assert would_go(folder, "--policy", "size", "--retention-bytes", "0")["would_go"] > 2
    full = would_go(folder, "--policy", "keep_free_disk_space", "--free", "0")
    assert full["would_go"] == full["may_go"]


@pytest.mark.parametrize(
    ("policy", "code", "says"),
    [
        ("mine:Raises", 1, "raised KeyError"),
        ("mine:Lies", 9, "the active one among them"),
        ("mine:None", 2, "mine has no None"),
        ("tiem", 2, "there is no retention policy"),
    ],
)
def test_a_failing_retention_policy_is_named(
    folder: Path, policy: str, code: int, says: str
) -> None:
    run = retention(folder, "check", "--policy", policy, "data")
    assert says in run.stderr
    assert run.returncode == code


def test_policies_are_listed(folder: Path) -> None:
    run = retention(folder, "policies", "--json")
    names = [row["name"] for row in json.loads(run.stdout)]
    assert names[:4] == ["time_and_size", "time", "size", "keep_free_disk_space"]


def test_a_deleted_partition_is_not_checked(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder / "data", data)
    for kind in ("stray", "delete", "future"):
        shutil.copytree(data / "t-0", data / f"t-0.{'0' * 32}-{kind}")
    run = retention(tmp_path, "check", "--policy", "size", "data", "--json")
    assert run.returncode == 0, run.stderr
    assert [row["partition"] for row in json.loads(run.stdout)].count("t-0") == 1
    assert not [row for row in json.loads(run.stdout) if "0" * 32 in row["partition"]]


SETTINGS = {
    "log.segment.bytes": 200,
    "log.retention.ms": 86_400_000,
    "log.cleaner.enable": "false",
    "krust.retention.policy": "ruled*=size",
}
TOPICS: dict[str, dict[str, str]] = {
    "all-is-old": {},
    "kept-for-ever": {"retention.ms": "-1"},
    "by-size": {"retention.ms": "-1", "retention.bytes": "500"},
    "compacted": {"cleanup.policy": "compact"},
    "compacted-and-deleted": {"cleanup.policy": "compact,delete"},
    "ruled": {"retention.bytes": "350"},
    "ruled-compacted": {"cleanup.policy": "compact", "retention.bytes": "350"},
    "own-policy": {"krust.retention.policy": "time"},
    "records-deleted": {"retention.ms": "-1"},
}


def test_a_retention_check_equals_what_a_broker_deletes(tmp_path: Path) -> None:
    data, quiet = tmp_path / "data", {"log.retention.check.interval.ms": 86_400_000}
    with (
        krust.Broker(data, config=SETTINGS | quiet) as broker,
        krust.Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        for topic, config in TOPICS.items():
            broker.create_topic(topic, config=config)
            for number in range(10):
                producer.produce(topic, b"x" * 60, key=b"%d" % number, timestamp_ms=10**12)
                assert producer.flush(10_000) == 0
        admin = krust.Admin(bootstrap_servers=broker.bootstrap)
        at = {"partition_index": 0, "offset": 5}
        topics = [{"name": "records-deleted", "partitions": [at]}]
        admin.request("DeleteRecords", {"topics": topics, "timeout_ms": 9000})
        admin.close()
    pairs = [part for name, text in SETTINGS.items() for part in ("-o", f"{name}={text}")]
    run = retention(tmp_path, "check", "data", "--json", *pairs)
    assert run.returncode == 0, run.stderr
    rows = {row["partition"]: row for row in json.loads(run.stdout)}
    would_go_of_topics = {topic: rows[f"{topic}-0"]["would_go"] for topic in TOPICS}
    assert would_go_of_topics["all-is-old"] == rows["all-is-old-0"]["segments"], (
        "the active one goes as well"
    )
    assert would_go_of_topics["own-policy"] == would_go_of_topics["compacted-and-deleted"] - 1 > 1
    assert 0 < would_go_of_topics["ruled"] < would_go_of_topics["own-policy"]
    assert 0 < would_go_of_topics["records-deleted"] < would_go_of_topics["own-policy"]
    assert (
        would_go_of_topics["compacted"]
        == would_go_of_topics["ruled-compacted"]
        == would_go_of_topics["kept-for-ever"]
        == 0
    )

    before = {topic: segments(data, topic) for topic in TOPICS}
    with krust.Broker(data, config=SETTINGS | {"log.retention.check.interval.ms": 50}):
        until(lambda: {t: len(before[t] - segments(data, t)) for t in TOPICS} == would_go_of_topics)
        producing = {topic: segments(data, topic) for topic in TOPICS}
    for topic, names in producing.items():
        gone = before[topic] - names
        if gone:
            assert rows[f"{topic}-0"]["new_start"] == min(names, key=int, default=None) or (
                int(min(names, key=int)) == rows[f"{topic}-0"]["new_start"]
            )


def segments(data: Path, topic: str) -> set[str]:
    return {file.stem for file in (data / f"{topic}-0").glob("*.log")}
