"""`krust topic`: create, list, change and delete topics, on krust and on Kafka alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.three_brokers import Command, leader_count
from tests.waiting import until, until_is


def config(krust: Command, topic: str) -> Any:
    """The settings of its own that a topic has."""
    [described] = krust.ok("topic", "describe", topic, "--json").json()
    return described["config"]


def test_a_topic_is_created_listed_described_and_deleted(krust: Command, name: str) -> None:
    [made] = krust.ok("topic", "create", f"{name}:2", "-c", "retention.ms=3600000", "--json").json()
    assert (made["name"], made["partitions"], made["replicas"]) == (name, 2, 1)
    until(lambda: leader_count(krust.bootstrap, name) == 2)
    assert name in krust.ok("topic", "list", f"{name}*").text
    assert krust.ok("topic", "list", "--json", "no-such-*").json() == []
    until_is({"retention.ms": "3600000"}, lambda: config(krust, name))
    [described] = krust.ok("topic", "describe", name, "--json").json()
    assert described["topic_id"] == made["topic_id"]
    assert [p["partition"] for p in described["partitions"]] == [0, 1]
    assert all(p["start_offset"] == p["end_offset"] == 0 for p in described["partitions"])
    everything = krust.ok("topic", "describe", "-a", name, "--json").json()[0]["config"]
    assert {"cleanup.policy", "retention.ms", "segment.bytes"} <= everything.keys()
    assert "retention.ms  3600000" in krust.ok("topic", "describe", name).text
    krust.ok("topic", "delete", name)
    until_is(5, lambda: krust("topic", "describe", name).code)
    gone = krust("topic", "describe", name)
    assert (gone.code, gone.out) == (5, b"")
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in gone.err


def test_a_verbose_list_shows_bytes_and_end_offsets(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, "-p", "1", given=b"x" * 1000 + b"\nshort\n")
    [row] = krust.ok("topic", "list", "-v", topic, "--json").json()
    assert row["end_offsets"] == [0, 2, 0]
    assert 1000 < row["bytes"] < 2000
    [plain] = krust.ok("topic", "list", topic, "--json").json()
    assert plain == {name: row[name] for name in ("name", "partitions", "replicas", "internal")}
    heading, shown = krust.ok("topic", "list", "--verbose", topic).text.splitlines()
    assert heading.split() == ["NAME", "PARTITIONS", "REPLICAS", "BYTES", "END", "OFFSETS"]
    assert shown.split()[-1] == "0,2,0"


def test_an_existing_topic_is_exit_6_unless_if_not_exists_is_given(
    krust: Command, topic: str
) -> None:
    again = krust("topic", "create", topic)
    assert again.code == 6
    assert "TOPIC_ALREADY_EXISTS (36)" in again.err
    assert krust("topic", "create", topic, "--if-not-exists").code == 0


def test_a_partial_failure_is_exit_8_and_the_other_topics_are_created(
    krust: Command, topic: str
) -> None:
    made = krust("topic", "create", topic, f"{topic}-new")
    assert made.code == 8
    assert f"{topic}-new" in made.text
    gone = krust("topic", "delete", topic, f"{topic}-none", f"{topic}-new")
    assert gone.code == 8
    assert krust("topic", "delete", f"{topic}-none", "--if-exists").code == 0
    both = krust("topic", "delete", topic, f"{topic}-new")
    assert both.code == 5, "all failed: the first error's own code"


def test_settings_and_partitions_are_altered(krust: Command, topic: str) -> None:
    krust.ok("topic", "alter", topic, "-c", "retention.ms=77000", "-c", "segment.bytes=2097152")
    krust.ok("topic", "alter", topic, "-d", "segment.bytes", "-p", "5")
    until_is({"retention.ms": "77000"}, lambda: config(krust, topic))
    until(lambda: leader_count(krust.bootstrap, topic) == 5)
    [described] = krust.ok("topic", "describe", topic, "--json").json()
    assert len(described["partitions"]) == 5
    fewer = krust("topic", "alter", topic, "-p", "1")
    assert fewer.code == 1
    assert "INVALID_PARTITIONS (37)" in fewer.err
    bad = krust("topic", "alter", topic, "-c", "retention.ms=soon")
    assert bad.code == 1
    assert "INVALID_CONFIG (40)" in bad.err


def test_a_dry_run_changes_nothing(krust: Command, name: str) -> None:
    krust.ok("topic", "create", name, "--dry-run")
    assert name not in krust.ok("topic", "list").text
    assert krust("topic", "create", "no/name", "--dry-run").code == 1


def test_offsets_name_start_end_and_count(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, "-p", "1", given=b"a\nb\nc\n")
    rows = krust.ok("topic", "offsets", topic, "--json").json()
    assert [(row["partition"], row["offsets"]) for row in rows] == [(0, 0), (1, 3), (2, 0)]
    csv = krust.ok("topic", "offsets", f"{topic}:1", "--output", "csv").text.splitlines()
    assert csv == ["topic,partition,start_offset,end_offset,offsets", f"{topic},1,0,3,3"]
    assert krust("topic", "offsets", f"{topic}:9").code == 5


def test_config_shows_sets_and_unsets_settings(krust: Command, topic: str) -> None:
    krust.ok("config", "set", "--topic", topic, "segment.ms=5000")
    get = ("config", "get", "--topic", topic, "segment.ms")
    until_is("5000\n", lambda: krust.ok(*get).text)
    rows = krust.ok("config", "show", "--topic", topic, "--json").json()
    own = {row["name"]: row["value"] for row in rows if row["source"] == "topic"}
    assert own == {"segment.ms": "5000"}
    krust.ok("config", "unset", "--topic", topic, "segment.ms")
    until_is("604800000\n", lambda: krust.ok(*get).text)
    missing = krust("config", "get", "--topic", topic, "segment.sm")
    assert missing.code == 5
    assert "did you mean segment.ms?" in missing.err
    everything = krust.ok("config", "show", "--all", "--json").json()
    assert {"log.retention.hours", "num.partitions"} <= {row["name"] for row in everything}


def test_cluster_status_reports_the_state_of_the_cluster(krust: Command, topic: str) -> None:
    krust.ok("produce", topic, given=b"one\n")

    def shown() -> dict[str, Any]:
        [broker] = krust.ok("cluster", "brokers", "--json").json()
        return dict(broker)

    # What tests before this one deleted may be on its way out.
    until(lambda: (found := shown())["leads"] == found["replicas"])
    broker = shown()
    number = broker["node_id"]
    assert broker["leads"] >= 3
    assert broker["log_bytes"] > 0
    assert broker["error"] is None
    assert "PLAINTEXT://" in broker["listeners"]
    assert krust.ok("cluster", "controller", "--json").json()["node_id"] == number
    health = krust.ok("cluster", "health", "--json").json()
    assert (health["healthy"], health["problems"], health["brokers"]) == (True, [], 1)
    assert "healthy" in krust.ok("cluster", "health").text
    assert str(number) in krust.ok("cluster", "brokers").text


def test_leaders_are_elected_where_needed(krust: Command, topic: str) -> None:
    rows = krust.ok("cluster", "elect", f"{topic}:0,2", "--json").json()
    places = [{"topic": topic, "partition": number, "elected": False} for number in (0, 2)]
    assert sorted(rows, key=lambda row: int(row["partition"])) == places
    assert krust.ok("cluster", "elect", "--json").json() == []
    assert krust("cluster", "elect", f"{topic}-not").code == 5
    assert krust("cluster", "elect", f"{topic}:7").code == 5


def test_replicas_are_moved_or_refused(krust: Command, topic: str) -> None:
    number = krust.ok("cluster", "info", "--json").json()["brokers"][0]["node_id"]
    assert krust.ok("cluster", "reassign", "--json").json() == []
    stays = ("cluster", "reassign", f"{topic}:1={number}", "--json")
    planned = {"topic": topic, "partition": 1, "from": [number], "to": [number], "bytes": 0}
    assert krust.ok(*stays, "--dry-run").json() == [planned]
    assert krust.ok(*stays, "--yes").json() == [{**planned, "moved": True}]
    until_is([], lambda: krust.ok("cluster", "reassign", "--json").json())
    refused = krust("cluster", "reassign", f"{topic}:1={number},{number + 7}", "--yes")
    assert (refused.code, "INVALID_REPLICA_ASSIGNMENT" in refused.err) == (1, True)
    unknown = krust("cluster", "reassign", f"{topic}:1={number + 7}", "--dry-run")
    assert (unknown.code, f"live brokers: {number}" in unknown.err) == (1, True)
    nothing = krust("cluster", "reassign", "--cancel", f"{topic}:1", "--yes")
    assert (nothing.code, "NO_REASSIGNMENT_IN_PROGRESS" in nothing.err) == (1, True)
    assert krust("cluster", "reassign", topic, "--yes").code == 2


def test_cluster_commands_list_brokers_and_api_versions(krust: Command, topic: str) -> None:
    info = krust.ok("cluster", "info", "--json").json()
    assert len(info["cluster_id"]) == 22
    assert info["partitions"] >= 3
    [broker] = info["brokers"]
    assert f"{broker['host']}:{broker['port']}".endswith(krust.bootstrap.rpartition(":")[2])
    rows = krust.ok("cluster", "versions", "--json").json()
    assert {"Produce", "Fetch", "Metadata", "ApiVersions"} <= {row["api"] for row in rows}


def test_records_before_an_offset_are_deleted_as_arguments_and_kafkas_file_say(
    krust: Command, topic: str, tmp_path: Path
) -> None:
    for partition in (0, 1):
        krust.ok("produce", topic, "-p", str(partition), given=b"a\nb\nc\n")
    file = tmp_path / "offsets.json"
    one = {"topic": topic, "partition": 1, "offset": -1}
    file.write_text(json.dumps({"partitions": [one], "version": 1}))
    done = krust.ok("topic", "delete-records", f"{topic}:0:2", "--file", str(file), "--json")
    assert [(row["partition"], row["start_offset"]) for row in done.json()] == [(0, 2), (1, 3)]
    rows = krust.ok("topic", "offsets", topic, "--json").json()
    assert [row["start_offset"] for row in rows[:2]] == [2, 3]


def test_records_that_cannot_be_deleted_are_named(
    krust: Command, topic: str, tmp_path: Path
) -> None:
    beyond = krust("topic", "delete-records", f"{topic}:0:7")
    assert (beyond.code, "OFFSET_OUT_OF_RANGE (1)" in beyond.err) == (1, True)
    none = krust("topic", "delete-records", f"{topic}:99:0", f"{topic}:0:end")
    assert (none.code, f"{topic}:99: there is no such partition" in none.err) == (8, True)
    assert krust("topic", "delete-records", f"{topic}-none:0:end").code == 5
    for wrong in ([f"{topic}:0"], [f"{topic}:0:x"], [f"{topic}:0:1", f"{topic}:0:2"], []):
        assert krust("topic", "delete-records", *wrong).code == 2
    file = tmp_path / "offsets.json"
    for text in ("{", "[]", '{"partitions": [{"topic": 1, "partition": 0, "offset": 1}]}'):
        file.write_text(text)
        refused = krust("topic", "delete-records", "--file", str(file))
        assert (refused.code, str(file) in refused.err) == (2, True)
