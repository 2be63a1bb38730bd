"""Retention policies on a broker, and every way in which they can fail."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import pytest

import krust
from krust._krust import Server
from krust.runtime.retention_rounds import RetentionRounds, RetentionSettings
from krust.settings import Values
from tests.waiting import until

MODULE = '''
import os, time

class KeepsTwo:
    """All sealed segments but one go."""
    name = "keeps_two"

    def expired(self, disk, partitions, now_ms):
        print("not for the broker's ears")
        assert 0 < disk.free <= disk.total
        return {each.key: max(0, len(each.may_go) - 1) for each in partitions}

class Raises(KeepsTwo):
    def expired(self, disk, partitions, now_ms):
        raise LookupError("planted")

class Slow(KeepsTwo):
    def expired(self, disk, partitions, now_ms):
        time.sleep(60)

class Dies(KeepsTwo):
    def expired(self, disk, partitions, now_ms):
        os._exit(7)

class Greedy(KeepsTwo):
    def expired(self, disk, partitions, now_ms):
        return {each.key: len(each.segments) for each in partitions}
'''
VALUES: Values = {"retention.ms": 100, "retention.bytes": -1, "cleanup.policy": ["delete"]}


class Double:
    """A core with one partition of four segments; the oldest is beyond its time."""

    def __init__(self) -> None:
        self.dropped: list[tuple[str, int, int]] = []

    def segments(self, topics: list[str]) -> list[Any]:
        ages = (500, 50, 50, 0)
        segments = [(n * 10, n * 10 + 10, 100, 1000 - age) for n, age in enumerate(ages)]
        return [("/d", topic, 0, 40, segments) for topic in topics]

    def disk_space(self, directory: str) -> tuple[int, int]:
        return 500, 1000

    def drop_segments(self, topic: str, partition: int, below: int) -> int:
        self.dropped.append((topic, partition, below))
        return 1


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policies_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def one_round(policy: str, timeout_s: float = 60.0) -> Double:
    double = Double()
    settings = RetentionSettings([("t*", policy)], 1000.0, timeout_s)
    retaining = RetentionRounds(settings, cast("Server", double))
    assert retaining.values_for_core("other", dict(VALUES)) == VALUES
    values = retaining.values_for_core("t", dict(VALUES))
    assert (values["retention.ms"], values["retention.bytes"]) == (-1, -1)
    retaining.values_for_core("t-compact", {**VALUES, "cleanup.policy": ["compact"]})
    retaining.round(1000)
    retaining.close()
    return double


def test_a_custom_policy_chooses_the_segments_to_delete() -> None:
    assert one_round("policies_of_mine:KeepsTwo").dropped == [("t", 0, 20)]


def test_a_built_in_policy_chooses_the_segments_to_delete() -> None:
    assert one_round("time").dropped == [("t", 0, 10)]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Raises", "planted"),
        ("Slow", "in expired"),
        ("Dies", "no answer within"),
        ("Greedy", "the active one among them"),
        ("Missing", "has no Missing"),
    ],
)
def test_a_failing_policy_is_logged_and_the_default_decides(
    name: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "krust.retention"):
        timeout_s = 6.0 if name == "Slow" else 60.0
        assert one_round(f"policies_of_mine:{name}", timeout_s).dropped == [("t", 0, 10)]
    assert says in caplog.text
    assert "time_and_size decides instead" in caplog.text


def test_a_broker_deletes_the_segments_that_a_policy_releases() -> None:
    config = {
        "krust.retention.policy": "logs-*=policies_of_mine:KeepsTwo",
        "log.retention.check.interval.ms": 100,
        "log.segment.bytes": 200,
    }
    with (
        krust.Broker(config=config) as broker,
        krust.Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        for topic in ("logs-a", "others"):
            for number in range(10):
                producer.produce(topic, b"%d" % number * 60)
                assert producer.flush(60_000) == 0
        admin = krust.Admin(bootstrap_servers=broker.bootstrap)
        until(lambda: _start(admin, "logs-a") >= 7)
        assert _start(admin, "others") == 0
        admin.close()


def _start(admin: krust.Admin, topic: str) -> int:
    asked = {"partition_index": 0, "timestamp": -2}
    topics = [{"name": topic, "partitions": [asked]}]
    answer = admin.request("ListOffsets", {"replica_id": -1, "topics": topics})
    start: int = answer["topics"][0]["partitions"][0]["offset"]
    return start
