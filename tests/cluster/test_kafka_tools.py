"""Kafka's own tools, of 3.9.1 and of 4.3.0, move, elect and compare the replicas of three krusts.

One cluster and one Java process for each version serve all tests; a test has topics of its own. The
tools print what a user reads, and the tests look for the part that names the partition.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from tests.cluster.brokers import Cluster
from tests.peers import kafka
from tests.peers.tools import PLACES, Tools, command, tools
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

SLOW = "20000"
"""bytes a second: LARGE takes minutes"""
LARGE = ["x" * 10_000] * 400
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def cluster(shared: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers; a leader stays where a test has put it."""
    if reason := kafka.missing():
        pytest.skip(reason)
    settings: dict[str, Any] = {
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": 3,
    }
    folder = tmp_path_factory.mktemp("tools")
    with Cluster(folder, f"{shared.connect}/tools", replicas=3, **settings) as three:
        yield three


@pytest.fixture(scope="module", params=kafka.VERSIONS)
def run(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Tools]:
    """The tools of a version."""
    with tools(request.param) as running:
        yield running


class Topic:
    """A topic on chosen brokers, and the tools that are asked about it.

    replicas  of each partition
    """

    def __init__(
        self, cluster: Cluster, run: Tools, folder: Path, replicas: list[list[int]], **config: str
    ) -> None:
        self.cluster, self._run, self._folder = cluster, run, folder
        self.name = f"{folder.name.strip('0123456789_').replace('_', '-')}-{run.version}"
        cluster.repair()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
        made = NewTopic(self.name, len(replicas), replica_assignment=replicas, config=config)
        admin.create_topics([made])[self.name].result(WAIT_S)
        self.partitions = len(replicas)
        self.wait_in_sync(*replicas)

    def ok(self, script: str, *words: str) -> str:
        """What a tool prints that ends well."""
        code, text = self._run(script, "--bootstrap-server", self.cluster.bootstrap(), *words)
        assert code == 0, text
        return text

    def reassign(self, what: str, *replicas: list[int], **flags: str) -> str:
        """kafka-reassign-partitions with these replicas of each partition."""
        plan = self._folder / "plan.json"
        partitions = [
            {"topic": self.name, "partition": number, "replicas": each}
            for number, each in enumerate(replicas)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        more = [word for flag, value in flags.items() for word in (f"--{flag}", value)]
        words = (f"--{what}", "--reassignment-json-file", str(plan), *more)
        return self.ok("kafka-reassign-partitions", *words)

    def elect(self, kind: str, *words: str) -> str:
        """kafka-leader-election; without more words, of partition 0."""
        which = words or ("--topic", self.name, "--partition", "0")
        return self.ok("kafka-leader-election", "--election-type", kind, *which)

    def described(self, *flags: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """kafka-topics: the leader (-1: none), replicas and in-sync replicas of each partition."""
        text = self.ok("kafka-topics", "--describe", "--topic", self.name, *flags)
        row = r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S*)\s+Isr: (\S*)"
        return {
            int(number): (
                -1 if leader == "none" else int(leader),
                _ids(replicas),
                sorted(_ids(isr)),
            )
            for number, leader, replicas, isr in re.findall(row, text)
        }

    def wait_in_sync(self, *replicas: list[int]) -> None:
        """Wait until the tool and every broker name just these replicas, all of them in sync."""
        isrs = [sorted(each) for each in replicas]
        until(lambda: all(self.cluster.in_sync(self.name, n) == isrs for n in self.cluster.brokers))
        whole = {number: (each, sorted(each)) for number, each in enumerate(replicas)}
        until(lambda: {n: row[1:] for n, row in self.described().items()} == whole)

    def settings(self, number: int) -> dict[str, str]:
        """The settings that broker `number` says the topic was given."""
        resource = {"resource_type": 2, "resource_name": self.name}
        with closing(Client(self.cluster.bootstrap(number), {})) as client:
            answer = client.request("DescribeConfigs", {"resources": [resource]}, 4)
        [found] = answer["results"]
        return {
            each["name"]: each["value"] for each in found["configs"] if each["config_source"] == 1
        }

    def wait_until_known(self) -> None:
        """Wait until all brokers name the same settings: a tool asks any of them."""
        until(lambda: len({str(self.settings(n)) for n in self.cluster.brokers}) == 1)

    def throttles(self) -> list[str]:
        """kafka-configs: every throttle of the brokers and of this topic, as key=value."""
        self.wait_until_known()
        entities = [("brokers", str(number)) for number in sorted(self.cluster.brokers)]
        found = []
        for kind, name in (*entities, ("topics", self.name)):
            words = ("--describe", "--entity-type", kind, "--entity-name", name)
            found += re.findall(r"^  (\S+throttled\S+) ", self.ok("kafka-configs", *words), re.M)
        return sorted(found)

    @contextmanager
    def without(self, *numbers: int) -> Iterator[None]:
        """Brokers are killed; then they run again."""
        for number in numbers:
            self.cluster.kill(number)
            self.cluster.missed(number)
        yield
        self.cluster.repair()


def _ids(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def test_generate_proposes_a_plan_that_execute_copies_and_verify_finds_complete(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2], [1, 2], [1, 2]])
    cluster.produce(topic.name, [str(number) for number in range(300)])
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic.name}]}))
    words = ("--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    text = topic.ok("kafka-reassign-partitions", "--generate", *words)
    proposed = json.loads(text.split("Proposed partition reassignment configuration\n")[1])
    plan = {each["partition"]: each["replicas"] for each in proposed["partitions"]}
    assert {frozenset(each) for each in plan.values()} == {frozenset({2, 3})}
    replicas = [plan[number] for number in range(3)]
    text = topic.reassign("execute", *replicas, throttle="10000000")
    assert f"Successfully started partition reassignments for {topic.name}-0" in text
    topic.wait_in_sync(*replicas)
    text = topic.reassign("verify", *replicas)
    for number in range(3):
        assert f"Reassignment of partition {topic.name}-{number} is completed." in text
    assert topic.throttles() == []
    assert sorted(cluster.consume(topic.name, 300, topic.name), key=int) == [
        str(number) for number in range(300)
    ]
    until(lambda: not list(cluster.folder(1).glob(f"{topic.name}-[0-9]")))


def test_a_throttled_move_is_in_progress_until_it_is_cancelled(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2]])
    cluster.produce(topic.name, LARGE)
    topic.reassign("execute", [1, 3], throttle=SLOW)
    lists = [f"{LISTS[0]}=0:1,0:2", f"{LISTS[1]}=0:3"]
    assert topic.throttles() == sorted([*lists, *[f"{rate}={SLOW}" for rate in RATES] * 3])
    listed = topic.ok("kafka-reassign-partitions", "--list")
    assert f"{topic.name}-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
    text = topic.reassign("verify", [1, 3])
    assert f"Reassignment of partition {topic.name}-0 is still in progress." in text
    assert 3 not in topic.described()[0][2]
    text = topic.reassign("cancel", [1, 3])
    assert f"Successfully cancelled partition reassignment for: {topic.name}-0" in text
    assert topic.throttles() == []
    topic.wait_in_sync([1, 2])
    until(lambda: not list(cluster.folder(3).glob(f"{topic.name}-0")))


def test_a_plan_changes_the_replication_factor_up_and_down(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1], [2]])
    cluster.produce(topic.name, [str(number) for number in range(100)])
    for replicas in ([[1, 2, 3], [2, 3, 1]], [[3, 1], [3]]):
        topic.reassign("execute", *replicas)
        topic.wait_in_sync(*replicas)
        assert "is completed." in topic.reassign("verify", *replicas)
    assert topic.described()[1][0] == 3
    assert len(cluster.consume(topic.name, 100, topic.name)) == 100


def test_preferred_leaders_are_elected_again_one_by_one_by_file_and_all_together(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2, 3]] * 4)
    with topic.without(1):
        until(lambda: 1 not in {row[0] for row in topic.described().values()})
    topic.wait_in_sync(*[[1, 2, 3]] * 4)
    assert f"{topic.name}-0" in topic.elect("preferred")
    until(lambda: topic.described()[0][0] == 1)
    plan = tmp_path / "elected.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic.name, "partition": 2}]}))
    assert f"{topic.name}-2" in topic.elect("preferred", "--path-to-json-file", str(plan))
    until(lambda: topic.described()[2][0] == 1)
    leaders = {number: row[0] for number, row in topic.described().items()}
    assert 1 not in (leaders[1], leaders[3])
    topic.elect("preferred", "--all-topic-partitions")
    until(lambda: {row[0] for row in topic.described().values()} == {1})
    text = topic.elect("preferred")
    assert "Valid replica already elected" in text


def test_an_unclean_election_gives_a_leader_to_a_partition_that_lost_its_in_sync_replicas(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2]])
    cluster.produce(topic.name, ["both"])
    cluster.kill(2)
    cluster.missed(2)
    until(lambda: topic.described()[0][2] == [1])
    cluster.produce(topic.name, ["only the first"])
    cluster.kill(1)
    cluster.missed(1)
    cluster.start(2)
    until(lambda: topic.described()[0] == (-1, [1, 2], [1]))
    code, text = run(
        "kafka-leader-election",
        *("--bootstrap-server", cluster.bootstrap(), "--election-type", "preferred"),
        *("--topic", topic.name, "--partition", "0"),
    )
    assert code == 1
    assert "PreferredLeaderNotAvailable" in text
    assert f"{topic.name}-0" in topic.elect("unclean")
    until(lambda: topic.described()[0] == (2, [1, 2], [2]))
    cluster.produce(topic.name, ["only the second"])
    cluster.start(1)
    topic.wait_in_sync([1, 2])
    cluster.repair()
    assert cluster.consume(topic.name, 2, topic.name) == ["both", "only the second"]


def test_partitions_that_lack_replicas_are_described_by_what_they_lack(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    replicas = [[1, 2], [1, 2, 3], [3]]
    topic = Topic(cluster, run, tmp_path, [[1, 2]] * 3, **{"min.insync.replicas": "2"})
    topic.reassign("execute", *replicas)
    topic.wait_in_sync(*replicas)
    assert set(topic.described("--at-min-isr-partitions")) == {0}
    assert topic.described("--under-replicated-partitions") == {}
    with topic.without(3):
        until(lambda: topic.described()[1][2] == [1, 2])
        assert set(topic.described("--under-replicated-partitions")) == {1}
        assert set(topic.described("--at-min-isr-partitions")) == {0, 1}
        assert set(topic.described("--under-min-isr-partitions")) == {2}
        assert set(topic.described("--unavailable-partitions")) == {2}
    topic.wait_in_sync(*replicas)
    assert topic.described("--unavailable-partitions") == {}


def test_offsets_and_sizes_are_the_same_on_every_replica(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2, 3], [2, 3, 1]])
    for number in range(2):
        cluster.produce(topic.name, ["x"] * (number + 1) * 50, partition=number)

    def offsets(time: str) -> list[str]:
        words = ("--topic", topic.name, "--time", time)
        return [
            line
            for line in topic.ok("kafka-get-offsets", *words).splitlines()
            if line.startswith(topic.name)
        ]

    assert offsets("latest") == [f"{topic.name}:0:50", f"{topic.name}:1:100"]
    assert offsets("earliest") == [f"{topic.name}:0:0", f"{topic.name}:1:0"]
    assert offsets("1") == [f"{topic.name}:0:0", f"{topic.name}:1:0"]
    words = ("--describe", "--topic-list", topic.name)
    text = topic.ok("kafka-log-dirs", *words)
    [line] = [each for each in text.splitlines() if each.startswith("{")]
    sizes: dict[str, set[tuple[int, int]]] = {}
    for broker in json.loads(line)["brokers"]:
        assert [each["logDir"] for each in broker["logDirs"]] == [
            str(cluster.folder(broker["broker"]))
        ]
        for each in broker["logDirs"][0]["partitions"]:
            sizes.setdefault(each["partition"], set()).add((each["size"], each["offsetLag"]))
    assert {name: len(each) for name, each in sizes.items()} == {
        f"{topic.name}-0": 1,
        f"{topic.name}-1": 1,
    }


def test_throttles_are_set_described_and_deleted(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2]])
    entities = {("brokers", "2"): dict.fromkeys(RATES, "1000")}
    entities["topics", topic.name] = {LISTS[0]: "0:1", LISTS[1]: "*"}
    for (kind, name), wanted in entities.items():
        whose = ("--entity-type", kind, "--entity-name", name)
        added = ",".join(f"{key}=[{value}]" for key, value in wanted.items())
        topic.ok("kafka-configs", "--alter", *whose, "--add-config", added)
        topic.wait_until_known()
        text = topic.ok("kafka-configs", "--describe", *whose)
        assert dict(re.findall(r"^  (\S+)=(\S+) sensitive", text, re.M)) == wanted
        topic.ok("kafka-configs", "--alter", *whose, "--delete-config", ",".join(wanted))
    assert topic.throttles() == []


def test_replica_verification_reads_every_replica_and_finds_no_lag(
    cluster: Cluster, run: Tools, tmp_path: Path
) -> None:
    topic = Topic(cluster, run, tmp_path, [[1, 2, 3], [2, 3, 1]])
    cluster.produce(topic.name, [str(number) for number in range(1000)])
    words = ("--broker-list", cluster.bootstrap(), "--topics-include", topic.name)
    main = command(run.version, PLACES["kafka-replica-verification"])
    with subprocess.Popen(
        [*main, *words, "--report-interval-ms", "200"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "max lag is" in line:
                break
        process.kill()
    assert re.search(
        rf"max lag is 0 for partition {topic.name}-[01] at offset \d+ among 2 partitions", lines[-1]
    ), lines


def test_the_tool_finalizes_a_feature_that_every_broker_then_names(
    cluster: Cluster, run: Tools
) -> None:
    def ok(*words: str) -> str:
        code, text = run("kafka-features", "--bootstrap-server", cluster.bootstrap(), *words)
        assert code == 0, text
        return text

    def level() -> str:
        found = re.search(r"FinalizedVersionLevel: (\d+)", ok("describe"))
        return found[1] if found is not None else "0"

    assert level() == "0"
    ok("upgrade", "--feature", "transaction.version=2")
    until(lambda: level() == "2")
    ok("downgrade", "--feature", "transaction.version=0")
    until(lambda: level() == "0")
