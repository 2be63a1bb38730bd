"""`krust log` reads what Kafkas of every age wrote, and finds what was broken by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import adopted
from tests.cli.conftest import Command

KRUST = Command("127.0.0.1:1")
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
