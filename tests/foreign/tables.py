"""A compacted topic, and the offsets of a group, as brokers by turns must keep them.

The model is a list of what was acknowledged. What is left of it after any number of cleanings has
its offsets and its order, and is the same table: the last value of each key, and no key whose last
record is a tombstone. That a cleaner ran is seen by its checkpoint and by keys that are there once.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krust import _krust
from tests.peers.java_source import program
from tests.waiting import WAIT_S, until

CLEANER: dict[str, object] = {
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.dedupe.buffer.size": 10_000_000,
    "log.cleaner.min.cleanable.ratio": 0.001,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": 4096,
}
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "8192",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
}
COMPLAINTS = "mismatch|found bytes|isvalid: false|out of order|should|exception"
COMMITS = 60
GROUP = "readers of the table"
KEYS = 40
RECORDS = 150
TOPIC = "table"
PLACE = TopicPartition(TOPIC, 0)
Row = tuple[int, bytes, bytes | None]
"""offset, key, value"""


class Table:
    """What was acknowledged, and the last offset that was committed."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.rows: list[Row] = []
        self.committed = -1001
        self.clean: dict[str, int] = {f"{TOPIC}-0": 0, "__consumer_offsets-0": 0}

    def goes_on(self, bootstrap: str) -> None:
        """It is there, becomes more, and is cleaned up to its active segments by who serves it."""
        if not self.rows:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)])[TOPIC].result(WAIT_S)
        settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        consumer = Consumer(settings)
        if self.rows:
            self.check(self.read(consumer))
        assert consumer.committed([PLACE], WAIT_S)[0].offset == self.committed
        self.write(bootstrap)
        for offset in range(len(self.rows) - COMMITS, len(self.rows)):
            place = TopicPartition(TOPIC, 0, offset)
            consumer.commit(offsets=[place], asynchronous=False)
            self.committed = offset
        consumer.close()
        for partition in self.clean:
            self.clean[partition] = until(partial(self.cleaned, partition))

    def check(self, found: list[Row]) -> None:
        """What is left is the same table, in the same order, at the same offsets."""
        assert [row[0] for row in found] == sorted({row[0] for row in found})
        assert set(found) <= set(self.rows)
        assert table(found) == table(self.rows)

    def write(self, bootstrap: str) -> None:
        """Every key again but a few, some of them for the last time."""
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.size": 2000}
        producer, begin, new = Producer(settings), len(self.rows), []

        def delivered(error: object, message: Message) -> None:
            assert error is None
            new.append((message.offset(), message.key(), message.value()))

        for number in range(begin, begin + RECORDS):
            key = f"key-{number * 7 % KEYS if number % 5 else number}"
            value = None if number % 9 == 0 else f"{number} by {bootstrap} ".encode() * 8
            producer.produce(TOPIC, value, key, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0
        assert [row[0] for row in new] == list(range(begin, begin + RECORDS))
        self.rows += new

    def read(self, consumer: Consumer) -> list[Row]:
        """What a consumer sees, from the first record to the last."""
        assert consumer.get_watermark_offsets(PLACE, WAIT_S) == (0, len(self.rows))
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[Row] = []
        while not found or found[-1][0] < len(self.rows) - 1:
            message = consumer.poll(WAIT_S)  # a cleaned log has fewer records than any count says
            assert message is not None
            assert not message.error()
            found.append((message.offset(), message.key(), message.value()))
        return found

    def cleaned(self, partition: str) -> int | None:
        """Up to where it is clean, when that is its active segment, and new."""
        topic, _, number = partition.rpartition("-")
        try:
            lines = (self.data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        except FileNotFoundError:
            return None
        rows = dict(line.rsplit(" ", 1) for line in lines)
        clean = int(rows.get(f"{topic} {number}", -1))
        active = max(int(log.stem) for log in (self.data / partition).glob("*.log"))
        return clean if clean == active > self.clean[partition] else None

    def is_sound(self, dumps: Dumps, *, killed: bool) -> None:
        """On disk each key is there once below where it is clean; Kafka's tool has no complaint.

        killed  the indexes of the active segment were not closed: Kafka leaves them full of zeros
        """
        for partition, clean in self.clean.items():
            found = list(rows(self.data / partition))
            assert [row[0] for row in found] == sorted({row[0] for row in found})
            keys = [row[1] for row in found if row[0] < clean]
            assert len(keys) == len(set(keys))
            if partition == f"{TOPIC}-0":
                self.check(found)
            logs = sorted((self.data / partition).glob("*.log"))
            closed = logs[:-1] if killed else logs
            indexes = [log.with_suffix(kind) for log in closed for kind in (".index", ".timeindex")]
            snapshots = list((self.data / partition).glob("*.snapshot"))
            files = [*logs, *(index for index in indexes if index.exists()), *snapshots]
            printed = dumps.of(files)
            assert printed.count("Dumping") == len(files)
            bad = re.findall(rf"(?im)^.*(?:{COMPLAINTS}).*$", printed)
            assert not bad, (partition, bad[:5])


def table(found: list[Row]) -> dict[bytes, Row]:
    """The last record of each key that has a value."""
    last = {row[1]: row for row in found}
    return {key: row for key, row in last.items() if row[2] is not None}


def rows(folder: Path) -> Iterator[Row]:
    """Every record of a partition, from its files."""
    for log in sorted(folder.glob("*.log")):
        reader = _krust.LogDump(str(log))
        while batches := reader.read(100, records=True):
            for batch in batches:
                assert batch["crc_ok"], batch
                assert "problem" not in batch, batch
                for offset, _, key, value, _ in batch["records"]:
                    yield offset, key, value


class Dumps:
    """Kafka 3.9's DumpLogSegments, in one JVM for many questions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def of(self, files: list[Path]) -> str:
        """What it says of them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(",".join(map(str, files)) + "\n")
        self.process.stdin.flush()
        printed: list[str] = []
        for line in self.process.stdout:
            if line == ".\n":
                return "".join(printed)
            printed.append(line)
        raise AssertionError("".join(printed))


@contextmanager
def dumping(lib: str) -> Iterator[Dumps]:
    """It runs."""
    source = Path(__file__).parent / "java/Dumps.java"
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    with subprocess.Popen(
        ["java", *options, *program(source, lib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Dumps(process)
