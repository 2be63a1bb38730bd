"""Parameters of plug-ins: settings `SETTING.NAME.KEY`, given as to Kafka's Configurable."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import krust
from krust.config import RETENTION, load
from krust.errors import KafkaError
from krust.plugins import RETENTION_POLICIES, FindError, parameters
from krust.retention.policies import BUILT_IN, POLICIES, KeepFreeDiskSpace, Size
from krust.retention.policy import Disk, PartitionLog, Segment
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = """
class Keeps:
    name = "keeps"
    def __init__(self):
        self.kept = 99
    def configure(self, configs):
        self.kept = int(configs["segments"])
    def expired(self, disk, partitions, now_ms):
        return {each.key: max(0, len(each.may_go) - self.kept) for each in partitions}

class First:
    name = "first"
    def configure(self, configs):
        self.configs = configs
    def assign(self, group, topics):
        if self.configs != {"tenant": "red"}:
            raise ValueError(f"configured with {self.configs}")
        from krust.coordinator.assignors.even import Sticky
        return Sticky().assign(group, topics)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plug_ins_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_parameters_are_settings_below_the_name_of_the_plug_in() -> None:
    given = {f"{RETENTION}.keeps.segments": "2", f"{RETENTION}.keeps.a.b": "x", "num.x": "1"}
    assert parameters(given, RETENTION) == {"keeps": {"segments": "2", "a.b": "x"}}
    assert load(options={f"{RETENTION}.keeps.segments": 2}).text(f"{RETENTION}.keeps.segments")


def test_a_plug_in_is_configured_after_its_creation() -> None:
    found = POLICIES.find("plug_ins_of_mine:Keeps", {"keeps": {"segments": "2"}})
    assert vars(found) == {"kept": 2}
    full = POLICIES.find("keep_free_disk_space", {"keep_free_disk_space": {"share": "0.25"}})
    assert isinstance(full, KeepFreeDiskSpace)
    assert full.share == 0.25


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("time", {"time": {"x": "1"}}, "takes no parameters"),
        ("keep_free_disk_space", {"keep_free_disk_space": {"shar": "1"}}, "refuses its parameters"),
        (
            "keep_free_disk_space",
            {"keep_free_disk_space": {"share": "2"}},
            "refuses its parameters",
        ),
        ("plug_ins_of_mine:Keeps", {}, "refuses its parameters"),
    ],
)
def test_parameters_that_a_plug_in_does_not_take_are_an_error(
    name: str, given: dict[str, dict[str, str]], says: str
) -> None:
    with pytest.raises(FindError, match=says) as caught:
        POLICIES.find(name, given)
    assert caught.value.hint


def test_the_names_of_built_in_policies_are_those_of_their_classes() -> None:
    assert [kind.name for kind in BUILT_IN.values()] == list(RETENTION_POLICIES)


class Counted(list[PartitionLog]):
    """Counts how often it is gone through, and asked for one."""

    steps = 0

    def __iter__(self) -> Iterator[PartitionLog]:
        for each in super().__iter__():
            self.steps += 1
            yield each

    def index(self, *_: object) -> int:
        raise AssertionError("a search in all partitions for each segment")


@pytest.mark.parametrize("count", [100, 1000])
def test_the_disk_space_policy_visits_each_partition_a_fixed_number_of_times(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    may_go = PartitionLog.may_go.fget  # type: ignore[attr-defined]

    def counted(self: PartitionLog) -> tuple[Segment, ...]:
        nonlocal asked
        asked += 1
        found: tuple[Segment, ...] = may_go(self)
        return found

    monkeypatch.setattr(PartitionLog, "may_go", property(counted))
    segments = tuple(Segment(at, at + 1, 10, at) for at in range(20))
    them = Counted(PartitionLog("t", number, segments, 10**6) for number in range(count))
    gone = KeepFreeDiskSpace().expired(Disk(0, 10**9), them, 0)
    assert sum(gone.values()) == 19 * count
    assert them.steps <= 5 * count
    assert asked <= 5 * count


def test_a_topic_selects_its_policy_with_parameters_without_a_restart() -> None:
    config = {
        RETENTION: "never-*=plug_ins_of_mine:Keeps",
        f"{RETENTION}.keeps.segments": 2,
        "log.retention.check.interval.ms": 100,
        "log.segment.bytes": 200,
    }
    with (
        krust.Broker(config=config) as broker,
        krust.Producer(bootstrap_servers=broker.bootstrap) as producer,
        closing(krust.Admin(bootstrap_servers=broker.bootstrap)) as admin,
    ):
        broker.create_topic("t")
        for number in range(10):
            producer.produce("t", b"%d" % number * 60)
            assert producer.flush(60_000) == 0
        for refused in ("os:path", "sizes"):
            with pytest.raises(KafkaError, match=r"this broker has .*keep_free_disk_space"):
                broker.create_topic("x", config={RETENTION: refused})
            assert alter(admin, refused) == 40
        assert alter(admin, "plug_ins_of_mine:Keeps") == 0
        until(lambda: start(admin) > 0)
        before = start(admin)
        assert before == 7
        assert alter(admin, "") == 0
        for _ in range(3):
            producer.produce("t", b"x" * 60)
            assert producer.flush(60_000) == 0
        assert start(admin) == before


def alter(admin: krust.Admin, policy: str) -> int:
    pair = {"name": RETENTION, "config_operation": 0, "value": policy}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [pair]}
    body = {"resources": [resource], "validate_only": False}
    code: int = admin.request("IncrementalAlterConfigs", body)["responses"][0]["error_code"]
    return code


def start(admin: krust.Admin) -> int:
    asked = {"partition_index": 0, "timestamp": -2}
    topics = [{"name": "t", "partitions": [asked]}]
    answer = admin.request("ListOffsets", {"replica_id": -1, "topics": topics})
    found: int = answer["topics"][0]["partitions"][0]["offset"]
    return found


def test_an_assignor_on_a_broker_has_its_parameters(caplog: pytest.LogCaptureFixture) -> None:
    config = {
        "krust.group.server.assignor": "g=plug_ins_of_mine:First",
        "krust.group.server.assignor.first.tenant": "red",
    }
    with caplog.at_level(logging.ERROR), krust.Broker(config=config) as broker:
        broker.create_topic("t")
        options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "group_id": "g"}
        with krust.Consumer("t", **options) as consumer:

            def assigned() -> bool:
                consumer.poll(100)
                return bool(consumer.assignment())

            until(assigned)
    assert "configured with" not in caplog.text
    assert "failed" not in caplog.text


def test_size_takes_no_parameters_and_needs_none() -> None:
    assert isinstance(POLICIES.find("size"), Size)
