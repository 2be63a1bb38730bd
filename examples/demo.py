"""A real data set goes through three unrelated clients and a kill -9; SHA-256 checks each record.

    make demo     (python examples/demo.py, with confluent-kafka, kafka-python, vega_datasets)

Each client writes every record of vega_datasets' files to a topic of its own: confluent-kafka
(librdkafka) with zstd, kafka-python speaking as to a broker of 2015 with gzip, and krust's own
command line. Half way the broker is killed with SIGKILL and started again. Then each client reads
each topic, and the digest of every record must be the one that was sent, in order.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

warnings.simplefilter("ignore")  # of the clients, not of krust
logging.getLogger("kafka").setLevel(logging.CRITICAL)
WAIT_S = 30


class Broker:
    """`krust serve` as a process, on one port and directory through its crashes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self.start()

    def start(self) -> float:
        """Run it; seconds until clients could connect."""
        began = time.monotonic()
        ready, child = os.pipe()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "krust", "serve", "--quiet", "--port", str(self.port)),
                *("--data-dir", str(self.folder / "data"), "--ready-fd", str(child)),
                *("--log-level", "error", "--exit-on-stdin-close"),
            ],
            stdin=subprocess.PIPE,
            pass_fds=[child],
        )
        os.close(child)
        with os.fdopen(ready) as pipe:
            line = pipe.readline()
        if not line:
            sys.exit("the broker did not start")
        self.bootstrap = str(json.loads(line)["bootstrap"])
        self.port = int(self.bootstrap.rpartition(":")[2])
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: no warning, no flush."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(WAIT_S)


class Client(ABC):
    """Writes records to a topic, and reads so many back."""

    name: str
    topic: str
    config: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def write(self, bootstrap: str, records: list[bytes]) -> None:
        """Return when all are acknowledged."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        """The first `count` values."""


class Confluent(Client):
    """librdkafka, idempotent, zstd. Its topic is kept in gzip, so that the oldest can read it."""

    name, topic = "confluent-kafka, zstd", "by-confluent"
    config: ClassVar = {"compression.type": "gzip"}

    def write(self, bootstrap: str, records: list[bytes]) -> None:
        """Idempotent, acks=all."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": "zstd",
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        outcomes: list[object] = []
        for record in records:
            producer.produce(
                self.topic, record, on_delivery=lambda error, _: outcomes.append(error)
            )
        left, failed = producer.flush(WAIT_S), [error for error in outcomes if error]
        if left or failed:
            sys.exit(f"{self.name}: {left} not delivered, {failed[:1]}")

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        """By assignment, without a group."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            batch = consumer.consume(min(10_000, count - len(found)), WAIT_S)
            if not batch or any(message.error() for message in batch):
                sys.exit(f"{self.name}: {topic} ended at {len(found)} of {count}")
            found += [message.value() or b"" for message in batch]
        consumer.close()
        return found


class KafkaPython(Client):
    """kafka-python as it spoke to brokers of 2015: Produce v0, Fetch v0, magic 0."""

    name, topic = "kafka-python as 0.8.2, gzip", "by-kafka-python"

    def write(self, bootstrap: str, records: list[bytes]) -> None:
        """acks=all, wait for each."""
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            api_version=(0, 8, 2),
            compression_type="gzip",
            acks="all",
            linger_ms=20,
        )
        for sent in [producer.send(self.topic, record) for record in records]:
            sent.get(WAIT_S)
        producer.close()

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        """By assignment, without a group."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            api_version=(0, 8, 2),
            group_id=None,
            consumer_timeout_ms=WAIT_S * 1000,
        )
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found = [message.value for _, message in zip(range(count), consumer, strict=False)]
        consumer.close()
        return found


class CommandLine(Client):
    """`krust produce` and `krust consume`: a line a record."""

    name, topic = "krust command line, lz4", "by-krust"

    def _run(self, *args: str, stdin: bytes = b"") -> bytes:
        command = [sys.executable, "-m", "krust", *args]
        run = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True)
        return run.stdout

    def write(self, bootstrap: str, records: list[bytes]) -> None:
        """Lines on standard input."""
        lines = b"".join(record + b"\n" for record in records)
        self._run("produce", self.topic, "-b", bootstrap, "-z", "lz4", "-q", stdin=lines)

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        """Lines on standard output."""
        last = ("-o", "start", "-n", str(count), "-f", "%v\\n")
        return self._run("consume", topic, "-b", bootstrap, *last).splitlines()


def records() -> list[bytes]:
    """Every line of the CSV files and every object of the JSON files, in the order of names."""
    import vega_datasets

    found: list[bytes] = []
    for file in sorted((Path(vega_datasets.__file__).parent / "_data").iterdir()):
        if file.suffix == ".csv":
            found += [line for line in file.read_bytes().splitlines() if line]
        elif file.suffix == ".json":
            tree = json.loads(file.read_text())
            rows = tree if isinstance(tree, list) else [tree]
            found += [json.dumps(row).encode() for row in rows]
    return found


def digests(values: list[bytes]) -> list[str]:
    """SHA-256 of each."""
    return [hashlib.sha256(value).hexdigest() for value in values]


def main() -> None:
    """Write, crash, write, read, compare."""
    sent = records()
    wanted, half = digests(sent), len(sent) // 2
    clients: list[Client] = [Confluent(), KafkaPython(), CommandLine()]
    print(f"{len(sent):,} records, {sum(map(len, sent)):,} bytes of vega_datasets")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        create(broker.bootstrap, clients)
        for number, part in enumerate((sent[:half], sent[half:])):
            for client in clients:
                began = time.monotonic()
                client.write(broker.bootstrap, part)
                seconds = time.monotonic() - began
                print(f"  {client.name:<28} wrote {len(part):>6,} records in {seconds:5.2f} s")
            if number == 0:
                broker.kill()
                print(f"  kill -9; back on port {broker.port} in {broker.start():.2f} s")
        wrong = 0
        for client in clients:
            for writer in clients:
                found = digests(client.read(broker.bootstrap, writer.topic, len(sent)))
                same = sum(a == b for a, b in zip(found, wanted, strict=False))
                wrong += len(sent) - same + abs(len(found) - len(sent))
                print(
                    f"  {client.name:<28} read {writer.topic:<16} {same:,} of {len(sent):,} equal"
                )
        code = broker.stop()
    print("every record of every client is what was sent" if not wrong else f"{wrong} WRONG")
    sys.exit(1 if wrong or code else 0)


def create(bootstrap: str, clients: list[Client]) -> None:
    """A topic of one partition for each client."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = [NewTopic(client.topic, 1, 1, config=client.config) for client in clients]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)


if __name__ == "__main__":
    main()
