"""Clients of every age read an answer of ApiVersions that names a finalized feature.

The broker has `transaction.version` 2: a client of Kafka 4 bumps its epoch at each transaction, and
adds partitions by Produce. An older one must not notice.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from krust._krust import Client
from tests.peers.absent import AbsentError
from tests.peers.java_producer import JavaProducer

ENDS = ("commit", "abort", "commit")


@pytest.mark.java
@pytest.mark.parametrize(("version", "epochs"), [("0.11.0.3", 0), ("3.8.1", 0), ("4.3.0", 3)])
def test_java_producers_of_every_age_commit_and_those_of_kafka_4_bump_the_epoch_each_time(
    bootstrap: str, topic: str, tmp_path: Path, version: str, epochs: int
) -> None:
    name = f"features-{version}"
    client = Client(bootstrap, {})
    try:
        producer = JavaProducer(version, bootstrap, name, tmp_path)
    except AbsentError as error:
        pytest.skip(str(error))
    with producer:
        first = epoch(client, name)
        for number, end in enumerate(ENDS):
            producer.ok("begin")
            producer.ok("send", topic, 0, number)
            producer.ok("offsets", f"group-{topic}", topic, 0, number)
            producer.ok(end)
    assert epoch(client, name) - first == epochs
    partitions = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    (described,) = client.request("DescribeProducers", partitions)["topics"]
    (of_log,) = described["partitions"][0]["active_producers"]
    assert of_log["producer_epoch"] - first == epochs
    assert of_log["current_txn_start_offset"] == -1
    assert committed_offset(client, f"group-{topic}", topic) == 2


def epoch(client: Client, name: str) -> int:
    """The producer's epoch as the coordinator knows it."""
    found = client.request("DescribeTransactions", {"transactional_ids": [name]})
    return int(found["transaction_states"][0]["producer_epoch"])


def committed_offset(client: Client, group: str, topic: str) -> int:
    """The group's committed offset of partition 0."""
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = client.request("OffsetFetch", {"groups": [asked], "require_stable": True}, version=9)
    return int(answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])


def test_kcat_writes_and_reads(bootstrap: str, topic: str) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("no kcat here")
    common = [kcat, "-b", bootstrap, "-t", topic]
    subprocess.run([*common, "-P", "-X", "enable.idempotence=true"], input=b"one\n", check=True)
    read = subprocess.run([*common, "-C", "-e", "-q"], capture_output=True, check=True)
    assert read.stdout == b"one\n"
