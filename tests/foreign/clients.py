"""The foreign clients behind one interface: write records with a codec, read this many back.

A record is (key, value), each bytes or None. Every client writes to and reads from partition 0, by
offset, without a group. Clients that cannot share this interpreter run as child processes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

Record = tuple[bytes | None, bytes | None]
ROOT = Path(__file__).parents[2]
OLD = Path(sys.prefix) / "old"
WAIT_S = 60
BACKOFF_MS = 10
"""kafka-python pauses for so long at its first request; 100 ms by default"""
ALL = ("none", "gzip", "snappy", "lz4", "zstd")


class Client(ABC):
    """One client at one version."""

    name: str
    codecs: tuple[str, ...] = ALL

    def missing(self) -> str | None:
        """Why this client cannot run here; None: it can."""
        return None

    def reads(self, codec: str) -> bool:
        """Whether it can read records written with a codec."""
        return codec in self.codecs

    @abstractmethod
    def write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        """Produce and wait for every acknowledgement."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """The first `count` records of partition 0."""

    def __repr__(self) -> str:
        return self.name


class Confluent(Client):
    """librdkafka, the client under most languages."""

    name = "confluent-kafka"

    def __init__(self, **settings: object) -> None:
        self.settings = settings
        if settings:
            self.name += "-" + "-".join(key.replace(".", "") for key in settings)

    def write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        from confluent_kafka import Producer

        errors: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "linger.ms": 5,
                **self.settings,
            }
        )
        for key, value in records:
            producer.produce(
                topic,
                value,
                key,
                partition=0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        left = producer.flush(WAIT_S)
        assert (left, errors) == (0, [])

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Record] = []
        try:
            while len(found) < count:
                messages = consumer.consume(count - len(found), WAIT_S)
                assert messages, f"{len(found)} of {count}"
                for message in messages:
                    if message.error():
                        raise KafkaException(message.error())
                    found.append((message.key(), message.value()))
        finally:
            consumer.close()
        return found


class KafkaPython(Client):
    """kafka-python as installed, told to speak as to a broker of some version."""

    def __init__(self, api_version: tuple[int, ...] | None = None) -> None:
        self.api_version = api_version
        spoken = ".".join(map(str, api_version)) if api_version else "any"
        self.name = f"kafka-python-as-{spoken}"
        if api_version and api_version < (2, 1):
            self.codecs = ("none", "gzip", "snappy", "lz4")
        if api_version and api_version < (0, 8, 2):
            self.codecs = ("none", "gzip", "snappy")

    def _settings(self, bootstrap: str) -> dict[str, object]:
        version = {"api_version": self.api_version} if self.api_version else {}
        return {"bootstrap_servers": bootstrap, "retry_backoff_ms": BACKOFF_MS, **version}

    def write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            **self._settings(bootstrap),
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            enable_idempotence=False,
        )
        try:
            sent = [
                producer.send(topic, key=key, value=value, partition=0) for key, value in records
            ]
            offsets = [one.get(WAIT_S).offset for one in sent]
            assert offsets == list(range(offsets[0], offsets[0] + len(records)))
        finally:
            producer.close(WAIT_S)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            **self._settings(bootstrap), group_id=None, consumer_timeout_ms=WAIT_S * 1000
        )
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found = [
                (message.key, message.value)
                for _, message in zip(range(count), consumer, strict=False)
            ]
        finally:
            consumer.close()
        assert len(found) == count
        return found


class Child(Client):
    """A client of another environment: `old_client.py` under that environment's packages."""

    def __init__(self, package: str, *dialect: str, codecs: tuple[str, ...]) -> None:
        self.package, self.dialect, self.codecs = package, dialect, codecs
        self.name = "-as-".join((package, *dialect))

    def missing(self) -> str | None:
        if sys.version_info >= (3, 12):
            return f"{self.package} cannot be imported by Python 3.12 or newer"
        return None if (OLD / self.package).is_dir() else f"no {OLD / self.package} (make dev)"

    def _run(self, *args: str, text: str = "") -> str:
        script = Path(__file__).with_name("old_client.py")
        run = subprocess.run(
            [sys.executable, str(script), self.package, "/".join(self.dialect), *args],
            input=text,
            capture_output=True,
            text=True,
            timeout=WAIT_S * 2,
            env={"PYTHONPATH": str(OLD / self.package), "PATH": ""},
            check=False,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        self._run("write", bootstrap, topic, codec, text=to_json(records))

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        return from_json(self._run("read", bootstrap, topic, str(count)))


class AioKafka(Client):
    """aiokafka, asynchronous."""

    name = "aiokafka"

    def write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        asyncio.run(self._write(bootstrap, topic, codec, records))

    async def _write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
        ) as producer:
            sent = [await producer.send(topic, value, key, partition=0) for key, value in records]
            await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        return asyncio.run(self._read(bootstrap, topic, count))

    async def _read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found: list[Record] = []
            while len(found) < count:
                message = await asyncio.wait_for(consumer.getone(), WAIT_S)
                found.append((message.key, message.value))
            return found


class Kcat(Client):
    """kcat, the command line of librdkafka, as Debian ships it."""

    name = "kcat"

    def missing(self) -> str | None:
        return None if shutil.which("kcat") else "kcat is not installed (Debian: apt install kcat)"

    def _run(self, *args: str, stdin: bytes = b"") -> bytes:
        run = subprocess.run(
            ["kcat", *args], input=stdin, capture_output=True, timeout=WAIT_S * 2, check=False
        )
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout

    def write(self, bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
        """A line a record; a record that fits no line (None key, None value) needs its own call."""
        for key, value in records:
            empty = ["-Z"] if value is None else []
            keyed = ["-K", "\x01"] if key is not None else []
            line = (key + b"\x01" if key is not None else b"") + (value or b"")
            self._run(
                *("-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec, "-D", "\x02"),
                *(*empty, *keyed),
                stdin=line,
            )

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        text = self._run(
            *("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "0", "-c", str(count)),
            *("-q", "-f", "%K %S\\n%k%s\\n"),
        )
        found: list[Record] = []
        while text:
            head, _, text = text.partition(b"\n")
            key_size, value_size = map(int, head.split())
            key = text[:key_size] if key_size >= 0 else None
            text = text[max(key_size, 0) :]
            value = text[:value_size] if value_size >= 0 else None
            text = text[max(value_size, 0) + 1 :]
            found.append((key, value))
        return found


def to_json(records: list[Record]) -> str:
    """Records as JSON lines of base64."""
    coded = (
        [part if part is None else base64.b64encode(part).decode() for part in record]
        for record in records
    )
    return "".join(json.dumps(record) + "\n" for record in coded)


def from_json(text: str) -> list[Record]:
    """The reverse of `to_json`."""
    rows = [json.loads(line) for line in text.splitlines()]
    return [(_bytes(key), _bytes(value)) for key, value in rows]


def _bytes(coded: str | None) -> bytes | None:
    return None if coded is None else base64.b64decode(coded)


OLDEST = ("none", "gzip", "snappy")
OLDER = (*OLDEST, "lz4")
VERSIONS = ((0, 8, 0), (0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1), (0, 11), (1, 0), (2, 1), (2, 5))
CLIENTS: list[Client] = [
    Confluent(),
    AioKafka(),
    Kcat(),
    KafkaPython(),
    *(KafkaPython(version) for version in (*VERSIONS, (3, 9))),
    Child("kafka-python-1.4.7", "0.8.0", codecs=OLDEST),
    Child("kafka-python-1.4.7", "0.8.2", codecs=OLDER),
    Child("kafka-python-1.4.7", "0.9", codecs=OLDER),
    Child("kafka-python-1.4.7", "0.10", codecs=OLDER),
    Child("kafka-python-1.4.7", "0.10.1", codecs=OLDER),
    Child("kafka-python-1.4.7", "0.11", codecs=OLDER),
    Child("kafka-python-1.4.7", "1.0", codecs=OLDER),
    Child("kafka-python-2.0.2", "2.5", codecs=OLDER),
    Child("pykafka-2.8.0", "0.9.0", codecs=OLDEST),
]
