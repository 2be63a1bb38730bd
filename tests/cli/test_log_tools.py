"""`krust log` reads what Kafkas of every age wrote, and finds what was broken by hand."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import adopted
from tests.serving import ServedBroker
from tests.three_brokers import Command
from tests.waiting import WAIT_S

KRUST = Command("127.0.0.1:1")
TRANSACTIONAL = ("txn", "open-txn")
DIRECTORIES = ["kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-clean"]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_record_of_an_adopted_directory_is_dumped(directory: str, tmp_path: Path) -> None:
    found = adopted.unpack(directory, tmp_path)
    partitions = sorted(path for path in found.glob("*-0") if any(path.glob("*.log")))
    assert partitions
    for partition in partitions:
        batches = KRUST.ok("log", "dump", str(partition), "--records", "--json").lines()
        assert all(batch["crc_ok"] for batch in batches)
        assert all(batch["records"] for batch in batches)
    assert KRUST("log", "verify", str(found)).code == 0


def test_a_flipped_bit_is_found_by_dump_and_verify(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    sizes = {path: path.stat().st_size for path in found.glob("*-0/*.log")}
    log = max(sizes, key=lambda path: sizes[path])
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    dumped = KRUST("log", "dump", str(log))
    assert dumped.code == 9
    verified = KRUST("log", "verify", str(log.parent), "--json")
    assert verified.code == 9
    assert log.name in verified.text


def test_a_range_of_offsets_is_cut_out(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    log = max(found.glob("*-0/*.log"), key=lambda path: path.stat().st_size)
    first = KRUST.ok("log", "dump", str(log), "--json").lines()[0]["base_offset"]
    where = f"{first + 1}:+2"
    batches = KRUST.ok("log", "dump", str(log), "--records", "-o", where, "--json").lines()
    offsets = [record["offset"] for batch in batches for record in batch["records"]]
    assert offsets == [offset for offset in (first + 1, first + 2) if offset in offsets]
    assert offsets


def test_topic_and_partition_name_a_directory(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    partition = next(path.parent for path in found.glob("*-0/*.log") if path.stat().st_size)
    topic = partition.name.removesuffix("-0")
    assert KRUST.ok("log", "dump", f"{found}/{topic}/0").text.startswith("batch  base ")
    shutil.rmtree(partition)
    missing = KRUST("log", "dump", f"{found}/{topic}/0")
    assert (missing.code, missing.out) == (5, b"")


def test_records_of_kafkas_own_topics_are_decoded(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for log in sorted(found.glob("__*/*.log")):
        for batch in KRUST.ok("log", "dump", str(log), "--records", "--json").lines():
            if not batch["control"]:
                for record in batch["records"]:
                    meaning = record["decoded"]
                    kinds.setdefault(meaning["kind"], []).append(meaning)
    offsets = {(one["group"], one["topic"]): one["value"]["offset"] for one in kinds["offset"]}
    assert offsets[("orders", "codec-none")] > 0
    assert "orders" in {one["group"] for one in kinds["group"]}
    assert kinds["transaction"][0]["value"]["producer_id"] >= 0


def largest(found: Path) -> Path:
    """The largest .log file of an adopted directory."""
    return max(found.glob("*-0/*.log"), key=lambda path: path.stat().st_size)


def test_stat_shows_sizes_offsets_and_checkpoints(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    topics = adopted.description("kafka-3.9.1-clean")["topics"]
    rows = {row["partition"]: row for row in KRUST.ok("log", "stat", str(found), "--json").json()}
    for topic, partitions in topics.items():
        for partition, expected in partitions.items():
            row = rows[f"{topic}-{partition}"]
            assert row["first_offset"] == expected["low"]
            assert row["end_offset"] == row["recovery_point"]
            if topic not in TRANSACTIONAL:
                assert row["end_offset"] == expected["high"]
            assert row["bytes"] > 0
            assert row["problem"] is None


def test_stat_shows_future_replicas_strays_and_an_unreadable_directory(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    log = largest(found)
    name, aside = log.parent.name, "0123456789abcdef" * 2
    shutil.copytree(log.parent, found / f"{name}.{aside}-stray")
    copy = found / f"{name}.{aside}-future"
    copy.mkdir()
    (copy / log.name).write_bytes(log.read_bytes()[:-7])
    shown = KRUST("log", "stat", str(found), str(tmp_path / "gone"), "--json")
    assert shown.code == 9
    rows = json.loads(shown.out)
    kinds = {row["kind"]: row for row in rows if row["partition"] == name}
    assert kinds.keys() == {"live", "stray", "future"}
    assert kinds["live"]["recovery_point"] is not None
    assert kinds["stray"]["end_offset"] == kinds["live"]["end_offset"]
    assert (kinds["future"]["recovery_point"], kinds["future"]["problem"]) == (None, None)
    assert rows[-1]["kind"] == "offline"
    assert "gone" in rows[-1]["problem"]
    assert KRUST("log", "verify", str(found)).code == 0


def test_tail_shows_the_last_batches_and_a_torn_end(tmp_path: Path) -> None:
    log = largest(adopted.unpack("kafka-3.9.1-clean", tmp_path))
    every = KRUST.ok("log", "dump", str(log.parent), "--json").lines()
    last = KRUST.ok("log", "tail", str(log.parent), "-n", "2", "--json").lines()
    assert [batch["base_offset"] for batch in last] == [b["base_offset"] for b in every[-2:]]
    with max(log.parent.glob("*.log")).open("ab") as torn:
        torn.write(b"\0" * 40)
    assert KRUST("log", "tail", str(log.parent)).code == 9


def test_repair_shows_its_plan_then_truncates_and_keeps_a_copy(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    log = largest(found)
    batches = KRUST.ok("log", "dump", str(log), "--json").lines()
    bad = batches[len(batches) // 2]
    data = bytearray(log.read_bytes())
    data[bad["position"] + bad["size_bytes"] - 1] ^= 1
    log.write_bytes(data)
    shown = KRUST("log", "repair", str(found), "--json")
    assert shown.code == 9
    [row] = json.loads(shown.out)
    assert (row["offset"], row["position"]) == (bad["base_offset"], bad["position"])
    later = [each for each in log.parent.glob("*.log") if each > log]
    behind = sum(each.stat().st_size for each in later)
    assert row["bytes_to_cut"] == len(data) - bad["position"] + behind
    assert log.read_bytes() == data
    [row] = KRUST.ok("log", "repair", str(found), "--yes", "--json").json()
    assert log.read_bytes() == data[: bad["position"]]
    assert Path(row["kept_in"][0]).read_bytes() == data[bad["position"] :]
    assert not any(each.exists() for each in later)
    assert sum(Path(each).stat().st_size for each in row["kept_in"]) == row["bytes_to_cut"]
    assert KRUST.ok("log", "repair", str(found), "--json").json() == []
    with ServedBroker(found) as broker:
        topic, _, partition = log.parent.name.rpartition("-")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        place = TopicPartition(topic, int(partition))
        assert consumer.get_watermark_offsets(place, WAIT_S)[1] == bad["base_offset"]
        consumer.close()


def test_repair_makes_a_log_writable_that_lost_its_end(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServedBroker(data, options={"log.segment.bytes": 500}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(20):
            producer.produce("events", b"v" * 100, partition=0)
            assert producer.flush(WAIT_S) == 0
    logs = sorted((data / "events-0").glob("*.log"))
    end = int(logs[-1].stem)
    assert 0 < end < 20
    for kind in ("log", "index", "timeindex"):
        logs[-1].with_suffix(f".{kind}").unlink(missing_ok=True)
    with ServedBroker(data) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 500})
        refused: list[object] = []
        producer.produce("events", b"v", partition=0, on_delivery=lambda it, _: refused.append(it))
        producer.flush(WAIT_S)
        assert refused[0] is not None
    shown = KRUST("log", "repair", str(data), "--json")
    assert shown.code == 9
    [row] = json.loads(shown.out)
    assert (row["offset"], row["bytes_to_cut"]) == (end, 0)
    assert f"offsets {end} to 19 are lost" in row["problem"]
    before = [log.read_bytes() for log in logs[:-1]]
    [row] = KRUST.ok("log", "repair", str(data), "--yes", "--json").json()
    assert row["kept_in"] == []
    assert [log.read_bytes() for log in logs[:-1]] == before
    assert KRUST.ok("log", "repair", str(data), "--json").json() == []
    with ServedBroker(data) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        offsets: list[int] = []
        producer.produce(
            "events", b"v", partition=0, on_delivery=lambda _, it: offsets.append(it.offset())
        )
        assert producer.flush(WAIT_S) == 0
        assert offsets == [end]


def test_repair_refuses_the_directory_of_a_running_broker(tmp_path: Path) -> None:
    found = adopted.unpack("kafka-3.9.1-clean", tmp_path)
    with ServedBroker(found):
        log = largest(found)
        before = log.stat().st_size
        with log.open("ab") as torn:
            torn.write(b"\0" * 40)
        refused = KRUST("log", "repair", str(log.parent), "--yes")
        assert refused.code not in (0, 9)
        assert "stop the broker, then repair again" in refused.err
        assert log.stat().st_size == before + 40
        os.truncate(log, before)


def test_compaction_reports_what_it_would_remove(tmp_path: Path) -> None:
    found = tmp_path / "data"
    with ServedBroker(
        found, options={"log.segment.bytes": 2000, "log.cleaner.enable": "false"}
    ) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("table", b"v" * 50, b"%d" % (number % 10))
            assert producer.flush(WAIT_S) == 0
    options = ("log", "compact", "--dry-run", str(found / "table-0"), "--json")
    [row] = KRUST.ok(*options).json()
    assert (row["keys"], row["would_stay"]) == (10, 10)
    assert row["records"] == row["would_go"] + 10
    assert 60 < row["records"] < 100
    assert KRUST("log", "compact", str(found / "table-0")).code == 2
