"""One member of a consumer group, as a process: it can be killed, and clients of any age can be it.

    member.py CLIENT BOOTSTRAP GROUP TOPIC

It subscribes, prints one JSON object a line, commits after each record, and leaves its group when
its standard input ends:

    {"assigned": [partition]}  {"revoked": [partition]}  {"record": [partition, offset, value]}
    {"committed": [partition, next offset]}  {"left": true}
CLIENT: confluent-range, confluent-cooperative, kafka-python, kafka-python-0.9, aiokafka
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
from typing import Any

SESSION_MS = 6000
POLL_S = 0.1


def say(**fact: Any) -> None:
    print(json.dumps(fact), flush=True)


def asked_to_leave() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not sys.stdin.readline()


def confluent(strategy: str, bootstrap: str, group: str, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
        }
    )

    def told(what: str) -> Any:
        return lambda _, partitions: say(**{what: sorted(each.partition for each in partitions)})

    consumer.subscribe(
        [topic], on_assign=told("assigned"), on_revoke=told("revoked"), on_lost=told("revoked")
    )
    while not asked_to_leave():
        message = consumer.poll(POLL_S)
        if message is None or message.error():
            continue
        partition, offset = message.partition(), message.offset()
        say(record=[partition, offset, message.value().decode()])
        try:
            consumer.commit(
                offsets=[TopicPartition(topic, partition, offset + 1)], asynchronous=False
            )
        except Exception as error:
            say(refused=str(error))
            continue
        say(committed=[partition, offset + 1])
    consumer.close()


def kafka_python(api_version: str, bootstrap: str, group: str, topic: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(each.partition for each in assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=sorted(each.partition for each in revoked))

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
    consumer.subscribe([topic], listener=Listener())
    fields = len(OffsetAndMetadata._fields)
    while not asked_to_leave():
        for records in consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=1).values():
            for record in records:
                say(record=[record.partition, record.offset, record.value.decode()])
                place = (record.offset + 1, "", -1)[:fields]
                try:
                    one = TopicPartition(topic, record.partition)
                    consumer.commit({one: OffsetAndMetadata(*place)})
                except Exception as error:
                    say(refused=str(error))
                    continue
                say(committed=[record.partition, record.offset + 1])
    consumer.close(autocommit=False)


async def aio(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(each.partition for each in assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=sorted(each.partition for each in revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not asked_to_leave():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=1)
        for records in found.values():
            for record in records:
                say(record=[record.partition, record.offset, record.value.decode()])
                one = TopicPartition(topic, record.partition)
                try:
                    await consumer.commit({one: record.offset + 1})
                except Exception as error:
                    say(refused=str(error))
                    continue
                say(committed=[record.partition, record.offset + 1])
    await consumer.stop()


def main(client: str, *where: str) -> None:
    if client.startswith("confluent-"):
        strategy = {"range": "range", "cooperative": "cooperative-sticky"}
        confluent(strategy[client.removeprefix("confluent-")], *where)
    elif client == "aiokafka":
        asyncio.run(aio(*where))
    else:
        kafka_python(client.removeprefix("kafka-python").removeprefix("-"), *where)
    say(left=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
