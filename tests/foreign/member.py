"""One member of a consumer group, as a process: it can be killed, and clients of any age can be it.

    python -m tests.foreign.member CLIENT BOOTSTRAP GROUP TOPIC

It subscribes, prints one JSON object a line, commits after each record, and leaves its group when
its standard input ends:

    {"assigned": [partition], "generation": n}  {"revoked": [partition], "generation": n}
    {"record": [partition, offset, value]}  {"committed": [partition, next offset]}
    {"refused": why}  {"left": true}
each with "at", the monotonic clock in seconds. What is revoked tells the generation that the member
knew then; -1: none. MEMBER_LOG=DEBUG in the environment: a Python client's log on standard error.
CLIENT: confluent-range, -cooperative, -consumer; kafka-python, kafka-python-0.9; aiokafka;
java-3.9.1 and java-4.3.0 (VerifiableConsumer), -cooperative,
-migrating; java-4.3.0-consumer. "consumer" is the protocol of KIP-848, its generation the member's
epoch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.peers import kafka

SESSION_MS = int(os.environ.get("MEMBER_SESSION_MS", "20000"))
"""longer than any process stands still on a busy machine"""
POLL_S = 0.1
# kafka-python 3.0.12 forgets a rejoin that the end of a poll interrupts, if new metadata was its
# cause: it never joins again, nor heartbeats. A machine is seldom too busy for so long a poll.
PATIENT_POLL_S = 1.0
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
TOLD_BY_LIBRDKAFKA = re.compile(
    r"(?:JoinGroup response: GenerationId|Heartbeat response received .* with epoch) (\d+)"
)
TOLD_BY_JAVA = re.compile(
    r"(?:joined group with generation Generation\{generationId=|Member \S+ with epoch )(\d+)"
)
LOG_LINE = "%(asctime)s %(name)s %(message)s"
JAVA = Path(__file__).with_name("java")
JAVA_CLASSIC = (
    "--session-timeout",
    str(SESSION_MS),
    "--consumer.config",
    f"{JAVA}/classic.properties",
)
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
# Between two ways, as in a rolling upgrade: it may vote for the new one and is still eager.
MIGRATING = f"{COOPERATIVE},org.apache.kafka.clients.consumer.RangeAssignor"
JAVA_PROTOCOLS = {
    "": JAVA_CLASSIC,
    "cooperative": (*JAVA_CLASSIC, "--assignment-strategy", COOPERATIVE),
    "migrating": (*JAVA_CLASSIC, "--assignment-strategy", MIGRATING),
    "consumer": ("--group-protocol", "consumer", "--consumer.config", f"{JAVA}/any.properties"),
}
JVM = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def report(**content: Any) -> None:
    print(json.dumps({"at": time.monotonic(), **content}), flush=True)


def asked_to_leave() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not sys.stdin.readline()


class Generation(logging.Handler):
    """The generation that librdkafka is in, which it tells in its log only."""

    newest = -1

    def settings(self) -> dict[str, Any]:
        logger = logging.getLogger("librdkafka")
        logger.propagate = False
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        return {"debug": "cgrp", "logger": logger}

    def emit(self, record: logging.LogRecord) -> None:
        if found := TOLD_BY_LIBRDKAFKA.search(record.getMessage()):
            self.newest = int(found[1])


def confluent(protocol: dict[str, Any], bootstrap: str, group: str, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    generation = Generation()
    consumer = Consumer(
        {
            **generation.settings(),
            **protocol,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )

    def reporting(what: str) -> Any:
        return lambda _, partitions: report(
            **{what: sorted(each.partition for each in partitions)}, generation=generation.newest
        )

    consumer.subscribe(
        [topic],
        on_assign=reporting("assigned"),
        on_revoke=reporting("revoked"),
        on_lost=reporting("revoked"),
    )
    while not asked_to_leave():
        message = consumer.poll(POLL_S)
        if message is None or message.error():
            continue
        partition, offset = message.partition(), message.offset()
        report(record=[partition, offset, message.value().decode()])
        try:
            place = TopicPartition(topic, partition, offset + 1)
            done = consumer.commit(offsets=[place], asynchronous=False)
        except Exception as error:
            report(refused=str(error))
            continue
        if done[0].error:
            report(refused=str(done[0].error))
        else:
            report(committed=[partition, offset + 1])
    consumer.close()


def listening(base: Any, generation: Callable[[], int]) -> Any:
    """A listener as kafka-python and aiokafka want it."""

    class Listener(base):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            report(assigned=sorted(each.partition for each in assigned), generation=generation())

        def on_partitions_revoked(self, revoked: Any) -> None:
            report(revoked=sorted(each.partition for each in revoked), generation=generation())

    return Listener


def kafka_python(api_version: str, bootstrap: str, group: str, topic: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.errors import KafkaConnectionError
    from kafka.structs import OffsetAndMetadata

    listener = listening(
        ConsumerRebalanceListener, lambda: consumer._coordinator.group_metadata().generation_id
    )
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 500,
    }
    if api_version:
        settings["api_version"] = tuple(map(int, api_version.split(".")))
    consumer = KafkaConsumer(**settings)
    consumer.subscribe([topic], listener=listener())
    fields, wait_ms = len(OffsetAndMetadata._fields), int(PATIENT_POLL_S * 1000)
    while not asked_to_leave():
        try:
            polled = consumer.poll(timeout_ms=wait_ms, max_records=1)
        except KafkaConnectionError:  # 3.0 lets one out where the broker is away as it asks
            continue
        for records in polled.values():
            for record in records:
                report(record=[record.partition, record.offset, record.value.decode()])
                place = (record.offset + 1, "", -1)[:fields]
                try:
                    one = TopicPartition(topic, record.partition)
                    consumer.commit({one: OffsetAndMetadata(*place)})
                except Exception as error:
                    report(refused=str(error))
                    continue
                report(committed=[record.partition, record.offset + 1])
    consumer.close(autocommit=False)


async def aio(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    listener = listening(ConsumerRebalanceListener, lambda: consumer._coordinator.generation)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    consumer.subscribe([topic], listener=listener())
    await consumer.start()
    while not asked_to_leave():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=1)
        for records in found.values():
            for record in records:
                report(record=[record.partition, record.offset, record.value.decode()])
                one = TopicPartition(topic, record.partition)
                try:
                    await consumer.commit({one: record.offset + 1})
                except Exception as error:
                    report(refused=str(error))
                    continue
                report(committed=[record.partition, record.offset + 1])
    await consumer.stop()


def java(version: str, strategy: str, bootstrap: str, group: str, topic: str) -> None:
    # Kafka 4's artifacts bring no logger: 3.9's serves both.
    jars = [*map(str, kafka.jars("3.9.1").glob("*reload4j-*.jar")), f"{kafka.jars(version)}/*"]
    command = ["java", *JVM, f"-Dlog4j.configuration=file:{JAVA}/log4j.properties"]
    command += ["-cp", ":".join(jars), "org.apache.kafka.tools.VerifiableConsumer"]
    command += ["--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic, "--verbose"]
    command += JAVA_PROTOCOLS[strategy]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None

    def end_it() -> None:
        sys.stdin.read()
        child.terminate()

    threading.Thread(target=end_it, daemon=True).start()
    generation, clocks_s = -1, clocks()
    for line in child.stdout:
        if found := TOLD_BY_JAVA.search(line):
            generation = int(found[1])
        elif line.startswith("{"):
            verifiable(json.loads(line), generation, clocks_s)
        else:
            sys.stderr.write(line)
    child.wait()


def clocks() -> float:
    """How far the monotonic clock is from the one that VerifiableConsumer tells times by."""
    while True:
        before = time.monotonic()
        wall = time.time()
        if time.monotonic() - before < 0.0005:
            return before - wall


def verifiable(event: dict[str, Any], generation: int, clocks_s: float) -> None:
    """Report what VerifiableConsumer reported, and when: this process may read it much later.

    Its times are cut to milliseconds: what begins, or is known, did so by the end of that one.
    """
    began = event["timestamp"] / 1000 + clocks_s
    known = min(began + 0.001, time.monotonic())
    match event["name"]:
        case "partitions_assigned":
            report(assigned=_numbers(event), generation=generation, at=known)
        case "partitions_revoked":
            report(revoked=_numbers(event), generation=generation, at=began)
        case "record_data":
            report(record=[event["partition"], event["offset"], event["value"]], at=began)
        case "offsets_committed" if event["success"]:
            for each in event["offsets"]:
                report(committed=[each["partition"], each["offset"]], at=known)
        case "offsets_committed":
            report(refused=event["error"])


def _numbers(event: dict[str, Any]) -> list[int]:
    return sorted(each["partition"] for each in event["partitions"])


def main(client: str, *where: str) -> None:
    logging.basicConfig(level=os.environ.get("MEMBER_LOG", "WARNING"), format=LOG_LINE)
    if client.startswith("confluent-"):
        confluent(PROTOCOLS[client.removeprefix("confluent-")], *where)
    elif client == "aiokafka":
        asyncio.run(aio(*where))
    elif client.startswith("java-"):
        version, _, strategy = client.removeprefix("java-").partition("-")
        java(version, strategy, *where)
    else:
        kafka_python(client.removeprefix("kafka-python").removeprefix("-"), *where)
    report(left=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
