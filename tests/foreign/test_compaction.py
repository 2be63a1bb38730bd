"""Apache Kafka 3.9 and krust clean the same log, which Kafka wrote, and leave the same behind; so
they do with one whose first segments hold messages of magic 0 and 1."""

from __future__ import annotations

import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import codec as codecs

from krust import _krust
from tests.foreign.conftest import jars
from tests.foreign.test_dump_log_segments import sound
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.serving import ServedBroker

PARTITION = "table-0"
WAIT_S = 60
NOW_MS = int(time.time() * 1000)
OFF: dict[str, object] = {"log.cleaner.enable": "false"}
ON: dict[str, object] = {"log.cleaner.backoff.ms": 50, "log.cleaner.dedupe.buffer.size": 10_000_000}
Start = Callable[[dict[str, object]], AbstractContextManager[str]]
LAG = "min.compaction.lag.ms"
DAY_MS = 86_400_000
SEGMENTS = {"segment.bytes": "16384", "retention.ms": "-1"}
SETTINGS = {**SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
SETTINGS |= {"delete.retention.ms": "0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a Kafka may lie; the test is skipped, with the reason, where there is none."""
    jars("3.9.1")
    found = tmp_path / "kafka"
    found.mkdir()
    return found


@contextmanager
def apache(folder: Path, cleaner: dict[str, object]) -> Iterator[str]:
    """A Kafka 3.9 in `folder`, again and again the same."""
    one = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    try:
        with kafka.running("3.9.1", folder, {**cleaner, **one}) as bootstrap:
            yield bootstrap
    except AbsentError as error:
        pytest.skip(str(error))


def alter(bootstrap: str, settings: dict[str, str]) -> None:
    def entry(name: str, value: str) -> ConfigEntry:
        return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)

    entries = [entry(name, value) for name, value in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, "table", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def done() -> bool:
        try:
            admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
        except KafkaException as error:  # it answers before it has loaded its topics
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    until(done, "the topic is not there")


def write(bootstrap: str, records: Sequence[tuple[str, str | None]], **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, **config})
    if "transactional.id" in config:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    for number, (key, value) in enumerate(records):
        headers = [("n", str(number).encode())] if number % 3 == 0 else None
        producer.produce("table", value, key, timestamp=NOW_MS + number, headers=headers)
    if "transactional.id" not in config:
        assert producer.flush(WAIT_S) == 0
    elif config["transactional.id"].startswith("abort"):
        producer.flush(WAIT_S)
        producer.abort_transaction(WAIT_S)
    else:
        producer.commit_transaction(WAIT_S)


def fill(bootstrap: str) -> None:
    """Some of everything: codecs, producers of each kind, tombstones, several segments."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("table", 1, 1, config=SEGMENTS)])["table"].result(WAIT_S)
    for turn in range(3):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            rows = [(f"{codec}-{n % 40}", f"{turn} of {n} " * 5) for n in range(turn, 70)]
            write(bootstrap, rows, **{"compression.type": codec})
            gone = [(f"{codec}-{n}", None) for n in range(turn * 5)]
            write(bootstrap, gone, **{"compression.type": codec, "enable.idempotence": True})
        for name in ("commit", "abort", "commit-2", "abort-2"):
            rows = [(f"in-{name}-{n % 3}", f"{turn}") for n in range(turn, 9)]
            write(bootstrap, rows, **{"transactional.id": f"{name}-of-{turn % 2}"})


def more(bootstrap: str, what: str) -> None:
    """Fills the active segment with batches of one record, so that what came before is sealed."""
    for number in range(40):
        write(bootstrap, [(f"{what}-{number % 7}", "x" * 800)], **{"linger.ms": 0})


def until(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def cleaned(data: Path) -> bool:
    """Whether the log is clean up to its active segment."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return False
    rows = dict(line.rsplit(" ", 1) for line in lines)
    return int(rows.get("table 0", -1)) == max(int(log.stem) for log in segments(data))


def segments(data: Path) -> list[Path]:
    return sorted((data / PARTITION).glob("*.log"))


def clean_twice(start: Start, data: Path, keep: Path) -> None:
    """Cleans; keeps a copy; writes more; cleans, when the time of tombstones has come."""
    for times in ("once", "twice"):
        with start(OFF) as bootstrap:
            alter(bootstrap, SETTINGS)
            more(bootstrap, times)
        with start(ON):
            until(lambda: cleaned(data), f"not cleaned {times}")
        keep_copy(data, keep / times)


def clean_twice_in_one_run(bootstrap: str, data: Path, keep: Path) -> None:
    """The same without a restart: the cleaner runs, and waits a day for records while they come."""
    for times in ("once", "twice"):
        alter(bootstrap, SETTINGS | {LAG: f"{DAY_MS}"})
        more(bootstrap, times)
        alter(bootstrap, {LAG: "0"})
        until(lambda: cleaned(data), f"not cleaned {times}")
        keep_copy(data, keep / times)


def keep_copy(data: Path, folder: Path) -> None:
    """Copy the partition, without the files that its broker is about to delete."""
    leaving = shutil.ignore_patterns("*.deleted")
    shutil.copytree(data / PARTITION, folder / PARTITION, ignore=leaving)


def content(folder: Path) -> list[dict[str, Any]]:
    """Every batch of the sealed segments with its records, without what is the cleaner's own."""
    found = []
    for log in sorted((folder / PARTITION).glob("*.log"))[:-1]:
        reader = _krust.LogDump(str(log))
        while batches := reader.read(100, records=True):
            for batch in batches:
                assert batch["crc_ok"], batch
                assert "problem" not in batch, batch
                for own in ("position", "size_bytes", "leader_epoch"):
                    batch.pop(own, None)
                found.append(batch)
    return found


def message(
    magic: int, offset: int, row: tuple[int, bytes | None, bytes | None], attributes: int = 0
) -> bytes:
    """A message of before 2017: time, key, value; magic 0 has no time."""

    def field(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    timestamp, key, value = row
    time_ms = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bb", magic, attributes) + time_ms + field(key) + field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(magic: int, first: int, turn: int) -> tuple[bytes, int]:
    """Messages, plain and in a wrapper of each codec, and where they end."""
    lz4 = codecs.lz4_encode if magic else codecs.lz4_encode_old_kafka
    found, offset = b"", first
    for number, compress in enumerate((None, codecs.gzip_encode, codecs.snappy_encode, lz4)):
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        for n in range(30):
            of_this_set = f"{magic}-{turn}-" if n % 5 == 0 else ""
            key = f"{of_this_set}{number}-{(n + 3 * turn) % 17}".encode()
            gone = n % 11 == turn
            value = None if gone else f"{magic}.{turn} of {n} ".encode() * 9
            rows.append((NOW_MS + offset + n, None if n == 7 else key, value))
        if compress is None:
            found += b"".join(message(magic, offset + n, row) for n, row in enumerate(rows))
        else:
            base = 0 if magic else offset
            inner = b"".join(message(magic, base + n, row) for n, row in enumerate(rows))
            wrapper = (rows[-1][0], None, compress(inner))
            found += message(magic, offset + len(rows) - 1, wrapper, number)
        offset += len(rows)
    return found, offset


def fill_as_before_2017(data: Path) -> None:
    """Two segments of magic 0 and two of magic 1 in place of a log that was never written to."""
    folder = data / PARTITION
    for old in folder.glob("0*"):
        old.unlink()
    (data / ".kafka_cleanshutdown").unlink()
    offset = 0
    for magic in (0, 1):
        for turn in range(2):
            name = f"{offset:020}.log"
            content, offset = message_set(magic, offset, turn)
            (folder / name).write_bytes(content)


def compare(folder: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """Have both clean a copy of Kafka's data in `folder`; what both left the second time."""
    lib = jars("3.9.1")
    ours = tmp_path / "krust"
    shutil.copytree(folder / "data", ours)

    @contextmanager
    def krust(cleaner: dict[str, object]) -> Iterator[str]:
        with ServedBroker(ours, options=cleaner) as broker:
            yield broker.bootstrap

    with apache(folder, ON) as bootstrap:
        clean_twice_in_one_run(bootstrap, folder / "data", tmp_path / "theirs")
    clean_twice(krust, ours, tmp_path / "mine")
    ours_left: list[dict[str, Any]] = []
    for times in ("once", "twice"):
        kafkas_left, ours_left = (
            content(tmp_path / "theirs" / times),
            content(tmp_path / "mine" / times),
        )
        assert ours_left == kafkas_left
        assert len(ours_left) > 10
    assert [log.stem for log in segments(ours)] == [log.stem for log in segments(folder / "data")]
    for log in segments(ours):
        files = sorted(log.parent.glob(f"{log.stem}.*"))
        sound(lib, files, "mismatch|found bytes|isvalid: false")
    return ours_left


@pytest.mark.java
@pytest.mark.timeout(600)
def test_kafka_and_krust_clean_a_log_to_the_same_batches_and_records(
    folder: Path, tmp_path: Path
) -> None:
    with apache(folder, OFF) as bootstrap:
        fill(bootstrap)
    compare(folder, tmp_path)


@pytest.mark.java
@pytest.mark.timeout(600)
def test_kafka_and_krust_clean_magic_0_1_and_2_alike(folder: Path, tmp_path: Path) -> None:
    with apache(folder, OFF) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("table", 1, 1, config=SEGMENTS)])["table"].result(WAIT_S)
    fill_as_before_2017(folder / "data")
    left = compare(folder, tmp_path)
    assert {batch["magic"] for batch in left} == {0, 1, 2}
    gone = [row for batch in left for row in batch["records"] if row[3] is None]
    assert not gone
