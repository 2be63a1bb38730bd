"""Apache Kafka 3.9 and krust clean the same log, which Kafka wrote, and leave the same behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
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
from tests.serving import Served

KAFKA = Path(__file__).parents[1] / "peers/kafka.sh"
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
def kafka(folder: Path, cleaner: dict[str, object]) -> Iterator[str]:
    """A Kafka 3.9 in `folder`, again and again the same. On a busy machine it may open its port and
    die: it misses the session of its own ZooKeeper. Then it is started again.
    """
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    more = {**cleaner, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    extra = "\n".join(f"{key}={value}" for key, value in more.items())
    start = [str(KAFKA), "start39", str(folder), *map(str, ports)]
    environment = {**os.environ, "EXTRA": extra}
    bootstrap = f"127.0.0.1:{ports[0]}"
    try:
        for _ in range(3):
            run = subprocess.run(
                start, capture_output=True, text=True, check=False, env=environment
            )
            if run.returncode == 0 and serves(bootstrap):
                break
            subprocess.run([KAFKA, "stop", folder], check=False, capture_output=True)
        else:
            pytest.skip(f"Kafka does not start: {(run.stderr or run.stdout)[-300:]}")
        yield bootstrap
    finally:
        subprocess.run([KAFKA, "stop", folder], check=False, capture_output=True)


def serves(bootstrap: str) -> bool:
    """Whether a broker answers there, and not its port alone."""
    try:
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S / 2)
    except KafkaException:
        return False
    return True


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
    with kafka(folder, OFF) as bootstrap:
        fill(bootstrap)
    shutil.copytree(folder / "data", ours)

    @contextmanager
    def krust(cleaner: dict[str, object]) -> Iterator[str]:
        with Served(ours, options=cleaner) as broker:
            yield broker.bootstrap

    clean_twice(lambda cleaner: kafka(folder, cleaner), folder / "data", tmp_path / "theirs")
    clean_twice(krust, ours, tmp_path / "mine")
    for times in ("once", "twice"):
        theirs, mine = content(tmp_path / "theirs" / times), content(tmp_path / "mine" / times)
        assert mine == theirs
        assert len(mine) > 10
    assert [log.stem for log in segments(ours)] == [log.stem for log in segments(folder / "data")]
    for log in segments(ours):
        files = sorted(log.parent.glob(f"{log.stem}.*"))
        sound(lib, files, "mismatch|found bytes|isvalid: false")
