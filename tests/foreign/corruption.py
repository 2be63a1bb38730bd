"""Damaged log directories under krust and Apache Kafka 3.9.1: the same image, the same places.

    python -m tests.foreign.corruption [--partitions N] [--seed N] [--kinds KIND,...]
        [--brokers kafka,krust]

Kafka writes a directory of one topic with N partitions (24), each with several segments, and is
stopped in order. For each kind of file: one bit of one such file of every partition is flipped, in
a copy; then each broker starts on a copy of that and a client reads every partition. What a
partition gives is one of: whole; wrong (a record that is not the one written at its offset); silent
(records are missing, and neither an error nor a line of the broker's log names the partition);
named. A broker that ends, or takes the directory offline, counts every partition as refused.
Needs Java 17 and Kafka's jars (tests/peers). Takes minutes: no test.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.serving import NotReadyError, ServedBroker

TOPIC = "damaged"
RECORDS = 300
SETTINGS = {"log.segment.bytes": 9000, "log.index.interval.bytes": 512, "log.retention.ms": -1}
KINDS = ("log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint", "partition.metadata")
LOST_AFTER_S = 8.0

LOG4J = """log4j.rootLogger=WARN, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%p %m (%c)%n
"""


def content(partition: int, offset: int) -> tuple[bytes, bytes]:
    """Key and value of the record at an offset."""
    return b"%d-%d" % (partition, offset), (b"%d/%d " % (partition, offset)) * 12


def write(bootstrap: str, partitions: int) -> None:
    """Make the topic and its records, in batches of ten."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10}
    )
    for offset in range(RECORDS):
        for partition in range(partitions):
            key, value = content(partition, offset)
            producer.produce(TOPIC, value, key, partition)
        if offset % 10 == 9:
            producer.flush()
    producer.flush()


def damage(data: Path, kind: str, partitions: int, rng: random.Random) -> None:
    """Flip one bit of one file of `kind` in every partition."""
    for partition in range(partitions):
        folder = data / f"{TOPIC}-{partition}"
        whole = sorted(path for path in folder.iterdir() if path.name.endswith(kind))
        files = [path for path in whole if path.stat().st_size > 0]
        if not files:
            continue
        path = rng.choice(files)
        found = bytearray(path.read_bytes())
        # The active segment's index of a Kafka ends in zeros that nobody reads.
        end = len(bytes(found).rstrip(b"\0")) or len(found)
        found[rng.randrange(end)] ^= 1 << rng.randrange(8)
        path.write_bytes(found)


def read(bootstrap: str, partition: int) -> tuple[dict[int, tuple[bytes, bytes]], list[str]]:
    """The records of a partition by offset, and the errors that its reader met."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
    found: dict[int, tuple[bytes, bytes]] = {}
    errors: list[str] = []
    end = time.monotonic() + LOST_AFTER_S
    try:
        while time.monotonic() < end and len(errors) < 3:
            for message in consumer.consume(500, 0.5):
                error = message.error()
                if error is None:
                    found[message.offset() or 0] = (message.key() or b"", message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found, errors
                else:
                    errors.append(str(error))
        return found, errors or ["nothing came"]
    finally:
        consumer.close()


def count_read_records(bootstrap: str, partitions: int, log: Path) -> Counter[str]:
    """What each partition gives."""
    tally: Counter[str] = Counter()
    for partition in range(partitions):
        found, errors = read(bootstrap, partition)
        wrong = sum(found[offset] != content(partition, offset) for offset in found)
        lines = log.read_text(errors="replace")
        named = errors or re.search(rf"{TOPIC}-{partition}\b", lines)
        if wrong:
            tally["wrong"] += 1
        elif len(found) == RECORDS:
            tally["whole"] += 1
        else:
            tally["named" if named else "silent"] += 1
    return tally


@contextmanager
def krust(data: Path) -> Iterator[tuple[str, Path]]:
    """krust on a directory: address, log."""
    served = ServedBroker(data)
    with served as broker:
        yield broker.bootstrap, served.log


@contextmanager
def apache(folder: Path) -> Iterator[tuple[str, Path]]:
    """Kafka on the directory in a folder: address, log."""
    log = folder / "server.log"
    (folder / "log4j.properties").write_text(LOG4J.format(log=log))
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dlog4j.configuration=file:{folder}/log4j.properties"
    with kafka.running("3.9.1", folder, SETTINGS) as bootstrap:
        yield bootstrap, log


def sample(image: Path, kind: str, given: argparse.Namespace) -> Iterator[tuple[str, Counter[str]]]:
    """The same damage under each broker."""
    partitions = given.partitions
    for name in given.brokers.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "image"
            shutil.copytree(image, folder)
            damage(folder / "data", kind, partitions, random.Random(f"{given.seed} {kind}"))
            try:
                opened = apache(folder) if name == "kafka" else krust(folder / "data")
                with opened as (bootstrap, log):
                    yield name, count_read_records(bootstrap, partitions, log)
            except (NotReadyError, AbsentError) as error:
                print(f"{name}, {kind}: {str(error)[-300:]}")
                yield name, Counter(refused=partitions)


def main() -> None:
    """Print a row for each kind of file and broker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--brokers", default="kafka,krust")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "image"
        image.mkdir()
        with kafka.running("3.9.1", image, SETTINGS) as bootstrap:
            write(bootstrap, given.partitions)
        for kind in given.kinds.split(","):
            for name, tally in sample(image, kind, given):
                counts = "  ".join(f"{what} {tally[what]}" for what in OUTCOMES)
                print(f"{kind:26} {name:6} {counts}", flush=True)


OUTCOMES = ("whole", "named", "silent", "wrong", "refused")

if __name__ == "__main__":
    main()
