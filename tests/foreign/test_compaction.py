"""Apache Kafka 3.9 and krust clean the same log, which Kafka wrote, and leave the same behind."""

from __future__ import annotations

import shutil
import time
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

from krust import _krust
from tests.foreign.conftest import jars
from tests.foreign.test_dump_log_segments import sound
from tests.peers import kafka
from tests.serving import Served

PARTITION = "table-0"
WAIT_S = 60
NOW_MS = int(time.time() * 1000)
OFF: dict[str, object] = {"log.cleaner.enable": "false"}
ON: dict[str, object] = {"log.cleaner.backoff.ms": 50, "log.cleaner.dedupe.buffer.size": 10_000_000}
Start = Callable[[dict[str, object]], AbstractContextManager[str]]
SEGMENTS = {"segment.bytes": "16384", "retention.ms": "-1"}
SETTINGS = {**SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
SETTINGS |= {"delete.retention.ms": "0"}


@contextmanager
def apache(folder: Path, cleaner: dict[str, object]) -> Iterator[str]:
    """A Kafka 3.9 in `folder`, again and again the same."""
    one = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    try:
        with kafka.running("3.9.1", folder, {**cleaner, **one}) as bootstrap:
            yield bootstrap
    except kafka.AbsentError as error:
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
        shutil.copytree(data / PARTITION, keep / times / PARTITION)


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
                    del batch[own]
                found.append(batch)
    return found


@pytest.mark.java
@pytest.mark.timeout(600)
def test_both_leave_the_same_batches_and_records(tmp_path: Path) -> None:
    lib = jars("3.9.1")
    folder, ours = tmp_path / "kafka", tmp_path / "krust"
    folder.mkdir()
    with apache(folder, OFF) as bootstrap:
        fill(bootstrap)
    shutil.copytree(folder / "data", ours)

    @contextmanager
    def krust(cleaner: dict[str, object]) -> Iterator[str]:
        with Served(ours, options=cleaner) as broker:
            yield broker.bootstrap

    clean_twice(lambda cleaner: apache(folder, cleaner), folder / "data", tmp_path / "theirs")
    clean_twice(krust, ours, tmp_path / "mine")
    for times in ("once", "twice"):
        theirs, mine = content(tmp_path / "theirs" / times), content(tmp_path / "mine" / times)
        assert mine == theirs
        assert len(mine) > 10
    assert [log.stem for log in segments(ours)] == [log.stem for log in segments(folder / "data")]
    for log in segments(ours):
        files = sorted(log.parent.glob(f"{log.stem}.*"))
        sound(lib, files, "mismatch|found bytes|isvalid: false")
