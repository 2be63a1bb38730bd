"""`__consumer_offsets` as Apache's own tools see it: console formatters and DumpLogSegments of 3.9
and 4.3 read what krust wrote, and krust goes on with the groups of a directory that Kafka wrote."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from tests.adopted import description, unpack
from tests.coordinated import ready
from tests.foreign.conftest import jars
from tests.serving import ServedBroker

GROUPS = {"billing": 9, "orders": 31}
"""and their partitions of the offsets topic"""
TOPIC, OFFSETS = "sold", "__consumer_offsets"
SAID = "märk\0"
"""the metadata `märk` as confluent-kafka sends it: with C's last byte"""
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = {"3.9.1": "kafka.tools.DumpLogSegments", "4.3.0": "org.apache.kafka.tools.DumpLogSegments"}
TOOLS = "org.apache.kafka.tools.consumer"
OLD = "kafka.coordinator.group.GroupMetadataManager$"
JSON = pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])


@dataclass
class Written:
    """A broker with two groups: `billing` with a member that commits, `orders` without one."""

    broker: ServedBroker
    data: Path
    member: Consumer

    @classmethod
    def by(cls, broker: ServedBroker, data: Path) -> Self:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            producer.produce(TOPIC, str(number), partition=number % 2)
        assert producer.flush(60) == 0
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        named = {"group.id": "billing", "client.id": "till"}
        # It is not asked for records while tools run, however long they take.
        member = Consumer({**settings, **named, "max.poll.interval.ms": 86_400_000})
        member.subscribe([TOPIC])
        read = 0
        while read < 10:
            read += len(member.consume(10, 1))
        for offsets in ([3, 4], [5, 5]):
            places = [TopicPartition(TOPIC, p, o, "märk") for p, o in enumerate(offsets)]
            member.commit(offsets=places, asynchronous=False)
        loner = Consumer({**settings, "group.id": "orders"})
        loner.commit(offsets=[TopicPartition(TOPIC, 1, 2)], asynchronous=False)
        loner.close()
        admin.delete_consumer_groups(["orders"])["orders"].result(60)
        return cls(broker, data, member)

    def count(self, group: str) -> int:
        """Records in the partition of a group."""
        place = TopicPartition(OFFSETS, GROUPS[group])
        _, high = self.member.get_watermark_offsets(place, 60)
        return int(high)

    def console(self, version: str, formatter: str, group: str) -> str:
        """What the console consumer prints of a group's partition."""
        lib = jars(version)
        where = ["--partition", str(GROUPS[group]), "--offset", "earliest"]
        much = ["--max-messages", str(self.count(group)), "--timeout-ms", "120000"]
        first = ["java", "-cp", f"{lib}/*", CONSOLE, "--bootstrap-server", self.broker.bootstrap]
        command = [*first, "--topic", OFFSETS, "--formatter", formatter, *where, *much]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return run.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    jars("3.9.1")
    data = tmp_path_factory.mktemp("written") / "data"
    with ServedBroker(data, "--prod", options={"group.initial.rebalance.delay.ms": 0}) as broker:
        found = Written.by(broker, data)
        yield found
        found.member.close()


def rows(printed: str) -> list[dict[str, Any]]:
    """What the formatters print, one JSON after the other: the key's data, the value's or None."""
    found, at = [], 0
    while at < len(printed.rstrip()):
        each, at = json.JSONDecoder().raw_decode(printed, at)
        at += len(printed[at:]) - len(printed[at:].lstrip())
        found.append({**each["key"]["data"], "value": each["value"] and each["value"]["data"]})
    return found


@pytest.mark.java
@pytest.mark.timeout(300)
@JSON
def test_the_offsets_formatter_prints_what_was_committed(written: Written, version: str) -> None:
    found = rows(written.console(version, f"{TOOLS}.OffsetsMessageFormatter", "billing"))
    assert {(row["group"], row["topic"]) for row in found} == {("billing", TOPIC)}
    offsets = [(row["partition"], row["value"]["offset"]) for row in found]
    assert offsets == [(0, 3), (1, 4), (0, 5), (1, 5)]
    assert all(row["value"]["metadata"] == SAID for row in found)
    assert all(row["value"]["commitTimestamp"] > 0 for row in found)


@pytest.mark.java
@pytest.mark.timeout(300)
@JSON
def test_the_offsets_formatter_prints_the_tombstone_of_a_deleted_group(
    written: Written, version: str
) -> None:
    found = rows(written.console(version, f"{TOOLS}.OffsetsMessageFormatter", "orders"))
    assert [row["value"] and row["value"]["offset"] for row in found] == [2, None]
    assert all((row["group"], row["partition"]) == ("orders", 1) for row in found)


@pytest.mark.java
@pytest.mark.timeout(300)
@JSON
def test_the_group_formatter_prints_the_members(written: Written, version: str) -> None:
    found = rows(written.console(version, f"{TOOLS}.GroupMetadataMessageFormatter", "billing"))
    assert {row["group"] for row in found} == {"billing"}
    last = found[-1]["value"]
    assert (last["protocolType"], last["generation"], last["protocol"]) == ("consumer", 1, "range")
    (member,) = last["members"]
    assert member["clientId"] == "till"
    assert member["memberId"] == last["leader"]
    assert member["sessionTimeout"] == 45000
    assert member["subscription"]
    assert member["assignment"]


@pytest.mark.java
@pytest.mark.timeout(300)
def test_the_formatters_of_the_old_coordinator_read_krusts_records(written: Written) -> None:
    lines = written.console("3.9.1", f"{OLD}OffsetsMessageFormatter", "billing").splitlines()
    assert [line.partition("::")[0] for line in lines] == [
        f"[billing,{TOPIC},{partition}]" for partition in (0, 1, 0, 1)
    ]
    found = [re.search(r"offset=(\d+).*metadata=([^,]*),", line) for line in lines]
    assert [each and (each[1], each[2]) for each in found] == [
        (offset, SAID) for offset in ("3", "4", "5", "5")
    ]
    printed = written.console("3.9.1", f"{OLD}GroupMetadataMessageFormatter", "billing")
    lines = printed.splitlines()
    assert lines[-1].startswith("billing::GroupMetadata(groupId=billing, generation=1")
    assert "currentState=Stable" in lines[-1]


@pytest.mark.java
@pytest.mark.timeout(300)
@JSON
def test_dump_log_segments_decodes_every_record(written: Written, version: str) -> None:
    lib = jars(version)
    for group, partition in GROUPS.items():
        log = written.data / f"{OFFSETS}-{partition}" / f"{0:020}.log"
        command = [
            "java",
            "-cp",
            f"{lib}/*",
            DUMP[version],
            "--offsets-decoder",
            "--files",
            str(log),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        records = re.findall(r"^\| offset: (\d+).* key: (\{.*\}) payload: ?(.*)$", run.stdout, re.M)
        assert [int(offset) for offset, _, _ in records] == list(range(written.count(group)))
        assert {json.loads(key)["data"]["group"] for _, key, _ in records} == {group}
        payloads = [json.loads(payload)["data"] for _, _, payload in records if "{" in payload]
        offsets = [data["offset"] for data in payloads if "offset" in data]
        assert offsets == ([3, 4, 5, 5] if group == "billing" else [2])


@pytest.fixture
def adopted(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(unpack("kafka-3.9.1-clean", tmp_path)) as broker:
        ready(Client(broker.bootstrap), *GROUPS, *description("kafka-3.9.1-clean")["groups"])
        yield broker


def test_the_groups_of_a_directory_that_kafka_wrote_are_known(adopted: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": adopted.bootstrap})
    listed = admin.list_consumer_groups(request_timeout=60).result(60)
    assert not listed.errors
    assert {each.group_id for each in listed.valid} >= set(GROUPS)
    for group, described in admin.describe_consumer_groups(list(GROUPS)).items():
        assert described.result(60).state == ConsumerGroupState.EMPTY, group
    for group, offsets in description("kafka-3.9.1-clean")["groups"].items():
        wanted = [place.rpartition("-") for place in offsets]
        reader = Consumer({"bootstrap.servers": adopted.bootstrap, "group.id": group})
        places = [TopicPartition(topic, int(number)) for topic, _, number in wanted]
        found = {f"{each.topic}-{each.partition}": each.offset for each in reader.committed(places)}
        reader.close()
        assert found == offsets, group


def test_a_member_continues_at_the_offsets_of_kafkas_group(adopted: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": adopted.bootstrap})
    producer = Producer({"bootstrap.servers": adopted.bootstrap})
    producer.produce("codec-none", b"new", partition=1)
    assert producer.flush(60) == 0
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": adopted.bootstrap, "group.id": "billing", **settings})
    member.subscribe(["codec-none"])
    message = member.poll(60)
    assert message is not None
    assert (message.partition(), message.offset(), message.value()) == (1, 240, b"new")
    member.commit(message, asynchronous=False)
    (described,) = admin.describe_consumer_groups(["billing"]).values()
    assert described.result(60).state == ConsumerGroupState.STABLE
    member.close()
    assert (adopted.log.parent / "kafka-3.9.1-clean" / f"{OFFSETS}-9").is_dir()
