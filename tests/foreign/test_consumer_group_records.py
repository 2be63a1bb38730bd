"""Records of consumer groups between krust and Kafka 4.3: Kafka's dump tool reads what krust wrote,
and krust goes on with a group that Kafka wrote."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from krust.errors import Code
from tests.coordinated import ready
from tests.foreign.conftest import jars
from tests.serving import AT_ONCE, ServedBroker

OFFSETS, GROUP, PARTITION = "__consumer_offsets", "billing", 9
GOLDEN = Path(__file__).parents[1] / "data/consumer-group-4.3.0.log"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(r"^\| offset: \d+.* key: (\{.*\}) payload: ?(.*)$", re.M)


def rows(log: Path) -> Iterator[tuple[int, dict[str, Any], dict[str, Any] | None]]:
    """Kind, key and value of each record in a segment, as Kafka's dump tool reads them."""
    command = ["java", "-cp", f"{jars('4.3.0')}/*", DUMP, "--offsets-decoder", "--files", str(log)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for key, payload in RECORD.findall(run.stdout):
        read = json.loads(key)
        value = json.loads(payload)["data"] if payload.startswith("{") else None
        yield int(read["type"]), read["data"], value


@pytest.mark.java
@pytest.mark.timeout(300)
def test_kafka_loads_a_consumer_group_that_krust_wrote(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options=AT_ONCE) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("sold", 4, 1)])["sold"].result(60)
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "client.id": "till",
            "enable.auto.commit": False,
        }
        plain = Consumer({**settings, "group.instance.id": "first"})
        plain.subscribe(["sold"])
        pattern = Consumer({**settings, "group.remote.assignor": "range", "client.rack": "east"})
        pattern.subscribe(["^sol.*"])
        owned: set[tuple[int, int]] = set()
        while len({number for _, number in owned}) < 4 or len({who for who, _ in owned}) < 2:
            owned = set()
            for who, member in enumerate((plain, pattern)):
                member.poll(0.1)
                owned |= {(who, each.partition) for each in member.assignment()}
        [(place, _)] = [(each, None) for each in plain.assignment()[:1]]
        plain.commit(offsets=[TopicPartition("sold", place.partition, 7)], asynchronous=False)
        plain.close()
        pattern.close()
    found = list(rows(tmp_path / "data" / f"{OFFSETS}-{PARTITION}" / f"{0:020}.log"))
    assert {kind for kind, _, _ in found} >= {1, 3, 5, 6, 7, 8, 16}
    assert all((key.get("groupId") or key.get("group")) == GROUP for _, key, _ in found)
    members = [value for kind, _, value in found if kind == 5 and value]
    assert {each["instanceId"] for each in members} == {"first", None}
    assert {each["rackId"] for each in members} == {"east", None}
    assert {each["serverAssignor"] for each in members} == {"range", None}
    assert all(each["classicMemberMetadata"] is None for each in members), "none is classic"
    assert {each["clientId"] for each in members} == {"till"}
    epochs = [value["epoch"] for kind, _, value in found if kind == 3 and value]
    assert epochs == sorted(set(epochs))
    targets = [value["assignmentEpoch"] for kind, _, value in found if kind == 6 and value]
    assert set(targets) <= set(epochs)
    resolved = [value["topics"] for kind, _, value in found if kind == 16 and value]
    assert resolved[-1] == ["sold"]
    owners = [value for kind, _, value in found if kind == 8 and value]
    assert all(each["state"] in (0, 1, 2) for each in owners)
    offsets = [value["offset"] for kind, _, value in found if kind == 1 and value]
    assert offsets == [7]


def rebased(log: bytes) -> Iterator[bytes]:
    """The batches of a segment, numbered from 0."""
    base = at = 0
    while at < len(log):
        (size,) = struct.unpack_from(">i", log, at + 8)
        (last,) = struct.unpack_from(">i", log, at + 23)
        yield struct.pack(">q", base) + log[at + 8 : at + 12 + size]
        base, at = base + last + 1, at + 12 + size


def test_krust_loads_a_consumer_group_that_kafka_wrote(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServedBroker(data) as broker:
        client = Client(broker.bootstrap)
        partition = {"partition_index": 0, "committed_offset": 1}
        topics = [{"name": OFFSETS, "partitions": [partition]}]
        ready(client, GROUP)
        client.request("OffsetCommit", {"group_id": GROUP, "topics": topics}, 8)
    log = data / f"{OFFSETS}-{PARTITION}" / f"{0:020}.log"
    assert log.stat().st_size > 0, "of which nothing stays"
    log.write_bytes(b"".join(rebased(GOLDEN.read_bytes())))
    for marker in data.glob(".kafka_cleanshutdown*"):
        marker.unlink()
    (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with ServedBroker(data) as broker:
        assert "no sense" not in broker.stderr()
        assert "Traceback" not in broker.stderr()
        client = Client(broker.bootstrap)
        ready(client, GROUP)
        [group] = client.request("ConsumerGroupDescribe", {"group_ids": [GROUP]})["groups"]
        assert group["error_code"] == Code.NONE
        assert (group["group_epoch"] >= 4, group["assignor_name"]) == (True, "range")
        members = {each["member_id"]: each for each in group["members"]}
        static, pattern = members.pop("m-1"), members.pop("m-2")
        [classic] = members.values()
        assert (static["instance_id"], static["rack_id"]) == ("inst", "east")
        assert (static["member_epoch"], static["member_type"]) == (4, 1)
        assert static["subscribed_topic_names"] == ["gold"]
        assert (pattern["subscribed_topic_regex"], pattern["member_epoch"]) == ("gold.*", 4)
        assert (classic["member_type"], classic["client_id"]) == (0, "krust")
        listed = client.request("ListGroups", {"types_filter": ["consumer"]})["groups"]
        assert [each["group_id"] for each in listed] == [GROUP]
        # The static member goes on where it was.
        beat = {"group_id": GROUP, "member_id": "m-1", "member_epoch": 4, "instance_id": "inst"}
        answer = client.request("ConsumerGroupHeartbeat", beat)
        assert answer["error_code"] == Code.NONE
        assert answer["member_epoch"] >= 4
        ask = {"groups": [{"group_id": GROUP, "topics": None}]}
        [found] = client.request("OffsetFetch", ask, 8)["groups"]
        [topic] = found["topics"]
        assert (topic["name"], topic["partitions"][0]["committed_offset"]) == ("gold", 7)
