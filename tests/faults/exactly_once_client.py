"""A teller of the bank, or a copier of topics, as a process that tests kill.

    python -m tests.faults.exactly_once_client teller LIBRARY BOOTSTRAP TRANSACTIONAL_ID
    python -m tests.faults.exactly_once_client copier LIBRARY BOOTSTRAP TRANSACTIONAL_ID FROM TO

It works until its standard input ends. An error of its library ends it at once, with the error on
standard error: the next process with its transactional id goes on. SIGUSR1 has it say where it is.
LIBRARY: confluent, aiokafka or krust.

A teller owns accounts over all partitions of the topic `accounts`. A transfer is a transaction of
two records, the new balances; it reads its accounts when it starts. It prints the number of each
transfer that was committed, and aborts some.
The sum of its accounts is the same whenever it starts.
A copier is a static member of a group: its successor gets its partitions at once. A transaction has
the records of one poll, and its offsets.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

import krust
from tests.waiting import until

ACCOUNTS, PARTITIONS = "accounts", 3
OWNED = 6
"""accounts of a teller"""
BALANCE = 100
"""of each account at first"""
WAIT_S = 60
OFFSETS_S = 10
"""how long a process of librdkafka waits for the answer to its offsets before it ends"""
TIMEOUT_MS = 20_000
"""of a transaction"""
SESSION_MS = 6000
AT_ONCE = 20
"""records that a copier takes at a time, at most"""
POLL_S = 0.2
PAUSE_S = 0.005
"""between two transfers of a teller"""


class Confluent:
    """A producer of confluent-kafka, and the consumer whose offsets it commits."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str = "") -> None:
        where = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        more = {"transactional.id": transactional_id, "transaction.timeout.ms": TIMEOUT_MS}
        self._producer = Producer({**where, **more})
        self._producer.init_transactions(WAIT_S)
        if topic:
            reading = {
                "group.id": f"of-{topic}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "group.instance.id": transactional_id,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
            }
            self._consumer = Consumer({**where, **reading})
            self._consumer.subscribe([topic])

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def poll(self) -> list[tuple[int, bytes]]:
        found = []
        for message in self._consumer.consume(AT_ONCE, POLL_S):
            value, error = message.value(), message.error()
            # fatal() is False for an error that comes as a message.
            if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
                raise KafkaException(error)
            if error is None and isinstance(value, bytes):
                found.append((message.partition() or 0, value))
        return found

    def send_offsets(self) -> None:
        consumer = self._consumer
        position = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        group = consumer.consumer_group_metadata()
        # librdkafka 2.16 sends TxnOffsetCommit to nobody after it has dropped the broker that was
        # the coordinator, as it does when it learns that it has died, and waits without end.
        faulthandler.dump_traceback_later(OFFSETS_S, exit=True)
        self._producer.send_offsets_to_transaction(position, group, OFFSETS_S)
        faulthandler.cancel_dump_traceback_later()

    def commit(self) -> None:
        self._repeated(self._producer.commit_transaction)

    def abort(self) -> None:
        self._repeated(self._producer.abort_transaction)

    def _repeated(self, end: Any) -> None:
        def ended() -> bool:
            try:
                end(WAIT_S)
            except KafkaException as error:
                if error.args[0].retriable():
                    return False
                raise
            return True

        until(ended)


class Aiokafka:
    """The same of aiokafka."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._do(self._open(bootstrap.split(","), transactional_id, topic))

    async def _open(self, bootstrap: list[str], transactional_id: str, topic: str) -> None:
        self._sent: list[Any] = []
        self._group = f"of-{topic}"
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=10_000,
        )
        await self._producer.start()
        if topic:
            self._consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=self._group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                group_instance_id=transactional_id,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=500,
            )
            await self._consumer.start()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._sent.append(self._do(self._producer.send(topic, value, partition=partition)))

    def poll(self) -> list[tuple[int, bytes]]:
        found = self._do(self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=AT_ONCE))
        self._position = {place: records[-1].offset + 1 for place, records in found.items()}
        return [(each.partition, each.value) for records in found.values() for each in records]

    def send_offsets(self) -> None:
        self._do(self._producer.send_offsets_to_transaction(self._position, self._group))

    def commit(self) -> None:
        self._do(self._producer.commit_transaction())

    def abort(self) -> None:
        self._do(self._producer.abort_transaction())


class Krust:
    """The same of krust."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str = "") -> None:
        where = {"bootstrap.servers": bootstrap}
        more = {"transactional.id": transactional_id, "transaction.timeout.ms": TIMEOUT_MS}
        self._producer = krust.Producer(where | more)
        self._producer.init_transactions()
        if topic:
            reading = {
                "group.id": f"of-{topic}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "group.instance.id": transactional_id,
                "session.timeout.ms": SESSION_MS,
                "max.poll.records": AT_ONCE,
            }
            self._consumer = krust.Consumer(topic, where | reading)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def poll(self) -> list[tuple[int, bytes]]:
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [(each.partition, each.value or b"") for each in found]

    def send_offsets(self) -> None:
        self._producer.send_offsets(self._consumer)

    def commit(self) -> None:
        def committed() -> bool:
            try:
                self._producer.commit_transaction()
            except krust.errors.UnreachableError:
                return False
            return True

        until(committed)

    def abort(self) -> None:
        self._producer.abort_transaction()


LIBRARIES: dict[str, Any] = {"confluent": Confluent, "aiokafka": Aiokafka, "krust": Krust}


def read_committed(bootstrap: str, topic: str) -> Iterator[tuple[int, bytes]]:
    """Partition and value of every committed record, at least up to the present ends."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "committed",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
        "reconnect.backoff.max.ms": 200,
    }
    consumer, admin = Consumer(settings), AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    ends = until(lambda: _stable_ends(consumer, admin, places))
    consumer.assign(places)
    while ends:
        for message in consumer.consume(1000, 0.1):
            partition, value, error = message.partition() or 0, message.value(), message.error()
            if error is None and isinstance(value, bytes):
                yield partition, value
            # Its end event does not come while others write, and no record after a marker.
            at_end = error is not None and error.name() == "_PARTITION_EOF"
            if at_end or (message.offset() or 0) + 1 >= ends.get(partition, 0):
                ends.pop(partition, None)
    consumer.close()


def _stable_ends(
    consumer: Consumer, admin: AdminClient, places: list[TopicPartition]
) -> dict[int, int] | None:
    """The ends when this was called, once all transactions before them have ended.

    None: a leader has moved, ask again.
    """
    asked = dict.fromkeys(places, OffsetSpec.latest())
    try:
        ends = {place: consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places}

        def stable() -> bool:
            answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
            return all(answers[place].result(WAIT_S).offset >= ends[place] for place in places)

        until(stable)
    except KafkaException:
        return None
    return {place.partition: end for place, end in ends.items()}


def own_accounts(bootstrap: str, name: str) -> tuple[int, dict[int, int]]:
    """The number of a teller's next transfer, and its balances."""
    balances = dict.fromkeys(range(OWNED), BALANCE)
    newest = dict.fromkeys(range(OWNED), -1)
    for _, value in read_committed(bootstrap, ACCOUNTS):
        record = json.loads(value)
        account = record["account"]
        if record["teller"] == name and record["number"] > newest[account]:
            newest[account], balances[account] = record["number"], record["balance"]
    assert sum(balances.values()) == OWNED * BALANCE, (name, balances)
    return max(newest.values()) + 1, balances


def tell(library: str, bootstrap: str, name: str, stops: threading.Event) -> None:
    """Transfer money between the accounts of a teller."""
    chance = random.Random()
    producer = LIBRARIES[library](bootstrap, name)
    number, balances = own_accounts(bootstrap, name)
    while not stops.is_set():
        one, other = chance.sample(range(OWNED), 2)
        amount, commits = chance.randrange(1, 50), number == 0 or chance.random() < 0.8
        after = {**balances, one: balances[one] - amount, other: balances[other] + amount}
        changed = (one, other) if number else range(OWNED)
        producer.begin()
        for account in changed:
            record = {"teller": name, "number": number, "account": account, "commits": commits}
            value = json.dumps({**record, "balance": after[account]}).encode()
            producer.send(ACCOUNTS, account % PARTITIONS, value)
        if not commits:
            producer.abort()
            continue
        producer.commit()
        print(number, flush=True)
        number, balances = number + 1, after
        time.sleep(PAUSE_S)


def copy(
    library: str, bootstrap: str, name: str, topics: list[str], stops: threading.Event
) -> None:
    """Copy a topic to another."""
    source, target = topics
    producer = LIBRARIES[library](bootstrap, name, source)
    while not stops.is_set():
        records = producer.poll()
        if not records:
            continue
        producer.begin()
        for partition, value in records:
            producer.send(target, partition, value)
        producer.send_offsets()
        producer.commit()
        print(len(records), flush=True)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    role, library, bootstrap, name, *topics = sys.argv[1:]
    stops = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stops.set()

    threading.Thread(target=wait, daemon=True).start()
    code = 0
    try:
        if role == "teller":
            tell(library, bootstrap, name, stops)
        else:
            copy(library, bootstrap, name, topics, stops)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    # What a library does at its end is no part of the test: its threads can hang the interpreter.
    os._exit(code)


if __name__ == "__main__":
    main()
