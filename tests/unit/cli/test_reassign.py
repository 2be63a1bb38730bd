"""`krust cluster reassign` and `elect`: what they plan, send, follow and report.

A cluster in memory answers. Each time it is asked what moves, it ends one move afterwards.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from krust.cli import main, move_progress, reassign_plan, session
from krust.cli.move_progress import progress_line

SIZE = 1_000_000
TopicPartition = tuple[str, int]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class Brokers:
    """Four brokers: 0 to 2 share the partitions, 3 has nothing."""

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, list[int]] = {
            **{("orders", number): [number % 3, (number + 1) % 3] for number in range(3)},
            ("audit", 0): [0],
        }
        self.moving: dict[TopicPartition, list[int]] = {}
        self.leaderless: set[TopicPartition] = set()
        self.live = [0, 1, 2, 3]
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.configs_seen: list[dict[tuple[int, str], dict[str, str]]] = []
        """the settings each time somebody asked what moves"""
        self.refuses = 0
        self.refuses_settings_of = ""
        self.elected: dict[str, Any] = {}

    def request(
        self, api: str, body: dict[str, Any], version: int | None = None, broker: int = -1
    ) -> dict[str, Any]:
        if api == "DescribeLogDirs":
            return self.log_dirs(broker)
        answers = {
            "Metadata": self.metadata,
            "AlterPartitionReassignments": self.alter,
            "ListPartitionReassignments": self.ongoing,
            "IncrementalAlterConfigs": self.alter_configs,
            "DescribeConfigs": self.describe_configs,
            "ElectLeaders": self.elect,
        }
        return answers[api](body)

    def metadata(self, body: dict[str, Any]) -> dict[str, Any]:
        known = {name for name, _ in self.replicas}
        asked = known if body["topics"] is None else [each["name"] for each in body["topics"]]
        topics = [
            {
                "name": name,
                "error_code": 0 if name in known else 3,
                "partitions": [
                    self.partition(place) for place in self.replicas if place[0] == name
                ],
            }
            for name in asked
        ]
        brokers = [{"node_id": each, "rack": None} for each in self.live]
        return {"brokers": brokers, "topics": topics}

    def partition(self, place: TopicPartition) -> dict[str, Any]:
        replicas = self.replicas[place]
        return {
            "partition_index": place[1],
            "leader_id": -1 if place in self.leaderless else replicas[0],
            "replica_nodes": replicas,
            "isr_nodes": replicas,
        }

    def log_dirs(self, broker: int) -> dict[str, Any]:
        one = {"partition_size": SIZE, "is_future_key": False}
        topics = [
            {"name": name, "partitions": [{"partition_index": number, **one}]}
            for (name, number), replicas in self.replicas.items()
            if broker in replicas
        ]
        return {"results": [{"topics": topics}]}

    def alter(self, body: dict[str, Any]) -> dict[str, Any]:
        responses = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": each["partition_index"],
                        "error_code": self.altered(topic["name"], **each),
                        "error_message": None,
                    }
                    for each in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
        return {"error_code": 0, "error_message": None, "responses": responses}

    def altered(self, name: str, partition_index: int, replicas: list[int] | None) -> int:
        place = (name, partition_index)
        if replicas is None:
            return 0 if self.moving.pop(place, None) else 85
        if not self.refuses:
            self.moving[place] = replicas
        return self.refuses

    def ongoing(self, body: dict[str, Any]) -> dict[str, Any]:
        self.configs_seen.append({key: dict(value) for key, value in self.configs.items()})
        topics = []
        for (name, number), wanted in self.moving.items():
            has = self.replicas[name, number]
            partition = {
                "partition_index": number,
                "replicas": [*wanted, *(each for each in has if each not in wanted)],
                "adding_replicas": [each for each in wanted if each not in has],
                "removing_replicas": [each for each in has if each not in wanted],
            }
            topics.append({"name": name, "partitions": [partition]})
        if self.moving:
            place = next(iter(self.moving))
            self.replicas[place] = self.moving.pop(place)
        return {"error_code": 0, "error_message": None, "topics": topics}

    def alter_configs(self, body: dict[str, Any]) -> dict[str, Any]:
        for each in body["resources"]:
            if each["resource_name"] == self.refuses_settings_of:
                return {"responses": [{"error_code": 42, "error_message": None}]}
            configs = self.configs.setdefault((each["resource_type"], each["resource_name"]), {})
            for config in each["configs"]:
                if config["config_operation"] == 0:
                    configs[config["name"]] = config["value"]
                else:
                    configs.pop(config["name"], None)
        return {"responses": [{"error_code": 0} for _ in body["resources"]]}

    def describe_configs(self, body: dict[str, Any]) -> dict[str, Any]:
        results = []
        for each in body["resources"]:
            own = self.configs.get((each["resource_type"], each["resource_name"]), {})
            configs = [{"name": name, "value": value} for name, value in own.items()]
            results.append({"resource_name": each["resource_name"], "configs": configs})
        return {"results": results}

    def elect(self, body: dict[str, Any]) -> dict[str, Any]:
        self.elected = body
        results = [
            {
                "topic": topic["topic"],
                "partition_result": [
                    {"partition_id": number, "error_code": 0, "error_message": None}
                    for number in topic["partitions"]
                ],
            }
            for topic in body["topic_partitions"] or ()
        ]
        return {"error_code": 0, "replica_election_results": results}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(session, "client", lambda options: made)
    monkeypatch.setattr(move_progress, "_BETWEEN_S", 0.0)
    monkeypatch.setattr(reassign_plan, "_BETWEEN_S", 0.0)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], brokers: Brokers) -> Any:
    def ran(*args: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(["cluster", *args, "--timeout", "100ms"])
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return ran


def test_a_plan_shows_what_each_partition_gets_and_the_bytes_that_are_copied(
    brokers: Brokers, run: Any
) -> None:
    shown = run("reassign", "--remove", "2", "--dry-run")
    assert shown.code == 0
    assert "2 partitions would change; copied: 2.0 MB to broker 3" in shown.err
    assert "nothing is changed; --yes does it" in shown.err
    rows = run("reassign", "--remove", "2", "--dry-run", "--json").json()
    assert [(row["topic"], row["partition"], row["from"]) for row in rows] == [
        ("orders", 1, [1, 2]),
        ("orders", 2, [2, 0]),
    ]
    assert [(sorted(row["to"]), row["bytes"]) for row in rows] == [([1, 3], SIZE), ([0, 3], SIZE)]
    assert brokers.moving == {}


def test_a_plan_that_is_agreed_to_is_sent_and_followed_to_its_end(
    brokers: Brokers, run: Any
) -> None:
    rows = run("reassign", "--add", "3", "--yes", "--json").json()
    assert rows
    for row in rows:
        assert row["moved"] is True
        assert brokers.replicas[row["topic"], row["partition"]] == row["to"]
    assert any(3 in row["to"] for row in rows)
    assert sum(map(len, brokers.replicas.values())) == 7


def test_a_topic_gets_another_replication_factor(brokers: Brokers, run: Any) -> None:
    done = run("reassign", "-r", "3", "--topic", "audit", "--yes")
    assert done.code == 0
    assert "moving  1 of 1 partition" in done.err
    assert len(brokers.replicas["audit", 0]) == 3
    assert brokers.replicas["audit", 0][0] == 0
    assert run("reassign", "-r", "3", "--topic", "audit", "--yes", "--json").json() == []
    refused = run("reassign", "-r", "5", "--topic", "audit", "--dry-run")
    assert (refused.code, "needs 5 brokers of: 0, 1, 2, 3" in refused.err) == (1, True)


def test_a_throttle_holds_during_the_moves_and_is_gone_afterwards(
    brokers: Brokers, run: Any
) -> None:
    done = run("reassign", "orders:0=0,3", "audit:0=1", "--throttle", "10M", "--yes")
    assert done.code == 0, done.err
    during = brokers.configs_seen[0]
    assert during[2, "orders"] == {
        "leader.replication.throttled.replicas": "0:0,0:1",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert during[2, "audit"]["follower.replication.throttled.replicas"] == "0:1"
    for broker in "013":
        assert during[4, broker] == {
            "leader.replication.throttled.rate": "10000000",
            "follower.replication.throttled.rate": "10000000",
        }
    assert (4, "2") not in during
    assert not any(brokers.configs.values())


def test_a_broker_that_refuses_a_throttle_leaves_everything_as_it_was(
    brokers: Brokers, run: Any
) -> None:
    brokers.refuses_settings_of = "1"
    done = run("reassign", "orders:0=0,3", "audit:0=1", "--throttle", "10M", "--yes")
    assert (done.code, "INVALID_REQUEST" in done.err) == (1, True)
    assert brokers.moving == {}
    assert not any(brokers.configs.values())


def test_a_throttle_that_was_left_is_removed(brokers: Brokers, run: Any) -> None:
    done = run("reassign", "orders:0=0,3", "--throttle", "1Mi", "--yes", "--no-wait", "--json")
    assert [row["moved"] for row in done.json()] == [False]
    assert "--unthrottle" in done.err
    assert brokers.configs[4, "3"]["leader.replication.throttled.rate"] == "1048576"
    assert run("reassign", "--watch", "--json").json()[0]["adding"] == [3]
    assert run("reassign", "--unthrottle", "--json").json() == [{"topic": "orders"}]
    assert not any(brokers.configs.values())


def test_a_file_of_kafkas_tool_is_read_and_written(
    brokers: Brokers, run: Any, tmp_path: Path
) -> None:
    file, saved = tmp_path / "plan.json", tmp_path / "saved.json"
    one = {"topic": "orders", "partition": 2, "replicas": [3, 0], "log_dirs": ["any", "any"]}
    file.write_text(json.dumps({"version": 1, "partitions": [one]}))
    assert run("reassign", "--file", str(file), "--save", str(saved), "--yes").code == 0
    assert brokers.replicas["orders", 2] == [3, 0]
    [written] = json.loads(saved.read_text())["partitions"]
    assert written == {"topic": "orders", "partition": 2, "replicas": [3, 0]}
    assert run("reassign", "--file", f"{saved}.back", "--yes").code == 0
    assert brokers.replicas["orders", 2] == [2, 0]
    for wrong in (
        "{",
        "[]",
        json.dumps({"version": 2, "partitions": [one]}),
        json.dumps({"version": 1, "partitions": [one, one]}),
        json.dumps({"version": 1, "partitions": [{**one, "log_dirs": ["/data"]}]}),
    ):
        file.write_text(wrong)
        refused = run("reassign", "--file", str(file), "--yes")
        assert (refused.code, str(file) in refused.err) == (2, True)


def test_a_broker_that_does_not_exist_is_refused(brokers: Brokers, run: Any) -> None:
    for asked in (["orders:0=0,7"], ["--to", "0,7"], ["--add", "7"]):
        refused = run("reassign", *asked, "--yes")
        assert (refused.code, "there is no live broker 7" in refused.err) == (1, True)
        assert "live brokers: 0, 1, 2, 3" in refused.err
    brokers.live.remove(1)
    assert run("reassign", "orders:0=1,0", "--yes").code == 1
    assert run("reassign", "--remove", "1", "--yes").code == 0
    assert not any(1 in replicas for replicas in brokers.replicas.values())


def test_moves_are_given_up_by_name_and_all_at_once(brokers: Brokers, run: Any) -> None:
    brokers.moving = {("audit", 0): [3]}
    rows = run("reassign", "--cancel", "audit", "--dry-run", "--json").json()
    assert rows == [{"topic": "audit", "partition": 0, "from": [3, 0], "to": [0]}]
    refused = run("reassign", "--cancel", "audit", "--yes")
    assert (refused.code, "NO_REASSIGNMENT_IN_PROGRESS" in refused.err) == (1, True)
    brokers.moving = {("audit", 0): [1], ("orders", 0): [3, 2], ("orders", 1): [3, 0]}
    done = run("reassign", "--cancel-all", "--yes")
    assert done.code == 8, "the first of them has ended meanwhile"
    assert brokers.moving == {}
    assert brokers.replicas["orders", 1] == [1, 2]
    assert run("reassign", "--cancel-all", "--yes", "--json").json() == []


def test_a_move_that_somebody_else_replaces_is_reported(
    brokers: Brokers, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: dict[str, Any] = {"error_code": 0, "error_message": None, "topics": []}
    monkeypatch.setattr(brokers, "ongoing", lambda body: nothing)
    done = run("reassign", "orders:0=0,3", "--yes")
    assert (done.code, "orders:0 is on [0, 1], not on [0, 3]" in done.err) == (1, True)


def test_partitions_that_are_refused_are_named(brokers: Brokers, run: Any) -> None:
    brokers.refuses = 39
    done = run("reassign", "orders:0=0,3", "orders:1=0,1", "--yes")
    assert (done.code, "orders:0: invalid replica assignment" in done.err) == (1, True)


@pytest.mark.parametrize(
    "wrong",
    [
        ["orders:0=1", "--to", "1"],
        ["orders:0=1", "--watch"],
        ["--to", "1", "--cancel-all"],
        ["--to", "1", "--add", "2"],
        ["--add", "1", "--remove", "1"],
        ["--topic", "orders", "orders:0=1"],
        ["orders=1"],
        ["--to", "x"],
        ["--throttle", "fast", "orders:0=1"],
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    brokers: Brokers, run: Any, wrong: list[str]
) -> None:
    assert run("reassign", *wrong, "--yes").code == 2


def test_progress_has_partitions_bytes_rate_and_time_left() -> None:
    line = progress_line(12, 40, 8_000_000_000, [(0.0, 1_000_000_000), (10.0, 2_000_000_000)])
    assert line.split("  ") == [
        "moving",
        "12 of 40 partitions",
        "[#####---------------]",
        " 25%",
        "2.0 GB of 8.0 GB",
        "100 MB/s",
        "eta 60s",
    ]
    assert progress_line(1, 2, 0, [(0.0, 0)]).endswith("50%")


def test_an_unclean_election_concerns_partitions_without_a_leader_and_needs_consent(
    brokers: Brokers, run: Any
) -> None:
    assert run("elect", "--unclean", "--yes", "--json").json() == []
    assert brokers.elected == {}
    brokers.leaderless.add(("orders", 1))
    rows = run("elect", "--unclean", "--json").json()
    assert [(row["topic"], row["partition"], row["leader"]) for row in rows] == [("orders", 1, -1)]
    assert brokers.elected == {}
    rows = run("elect", "--unclean", "--yes", "--json").json()
    assert rows == [{"topic": "orders", "partition": 1, "elected": True}]
    assert brokers.elected["election_type"] == 1
    assert brokers.elected["topic_partitions"] == [{"topic": "orders", "partitions": [1]}]


def test_partitions_for_an_election_may_be_in_a_file(
    brokers: Brokers, run: Any, tmp_path: Path
) -> None:
    file = tmp_path / "places.json"
    file.write_text(json.dumps({"partitions": [{"topic": "orders", "partition": 2}]}))
    assert run("elect", "--file", str(file), "--dry-run", "--json").json() == []
    assert run("elect", "--file", str(file)).code == 0
    assert brokers.elected["topic_partitions"] == [{"topic": "orders", "partitions": [2]}]
    file.write_text("{}")
    assert run("elect", "--file", str(file)).code == 2
