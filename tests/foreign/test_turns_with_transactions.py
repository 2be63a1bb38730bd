"""krust and Apache Kafka 3.9 take turns on one directory, and each is killed amid transactions: the
other ends those that are open or prepared, and readers of committed records see each one whole or
not at all.

Kafka 3.9 forgets transactions at some of its starts, also in a directory that only Kafkas wrote (3
of 8 starts): its coordinator, loaded before it knows any leader, completes them without a marker.
Such a start is repeated from the files that krust left.

Transactions are prepared when strace kills the broker at the first write to a data partition after
EndTxn: the decision is in `__transaction_state` then, and no marker is anywhere.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import krust
from tests.adopted import unpack
from tests.faults.test_kill_transactions import tracing
from tests.foreign.test_turns import SESSION_MS, connect, moved
from tests.peers import kafka
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until, until_is

__all__ = ["connect"]

TOPIC, GROUP, PARTITIONS = "bank", "moved", 3
SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
WRITES = "write,writev,pwrite64,pwritev,pwritev2"
SHORT_MS, LONG_MS = 10_000, 600_000
STARTS = 8


class RunningBroker(NamedTuple):
    """A broker of either kind."""

    bootstrap: str
    pid: int


@contextmanager
def krusts(data: Path) -> Iterator[RunningBroker]:
    """krust, which is killed within, or at the end."""
    broker = ServedBroker(data, "--prod", options=SETTINGS)
    try:
        yield RunningBroker(broker.bootstrap, broker.pid)
    finally:
        broker.kill()


@contextmanager
def kafkas(folder: Path, data: Path, connect: str) -> Iterator[RunningBroker]:
    """Kafka on the same directory."""
    settings = {**SETTINGS, "log.dirs": data, "zookeeper.session.timeout.ms": SESSION_MS}
    with kafka.running("3.9.1", folder, settings, zookeeper=connect) as bootstrap:
        yield RunningBroker(bootstrap, kafka.pid(folder))


def transactional(bootstrap: str, name: str, timeout_ms: int = LONG_MS) -> Producer:
    """A producer that may begin transactions; another with its name is fenced."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Producer, value: str) -> None:
    """Begin a transaction with a record in each partition, all acknowledged."""
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, value.encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0


class Bank:
    """The transactions, and what a reader must see of them."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.committed: list[str] = []
        self._offset = 0
        self._left_open: list[Producer] = []

    def create(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)

    def killed_amid_transactions(self, broker: RunningBroker, turn: str, *, commit: bool) -> None:
        """Leave transactions committed, aborted, open and prepared; the broker is dead then."""
        done = transactional(broker.bootstrap, "done")
        send(done, f"{turn} committed")
        done.commit_transaction(WAIT_S)
        self.committed.append(f"{turn} committed")
        send(done, f"{turn} aborted")
        done.abort_transaction(WAIT_S)
        for name, timeout_ms in (("open", LONG_MS), ("times out", SHORT_MS)):
            producer = transactional(broker.bootstrap, name, timeout_ms)
            send(producer, f"{turn} {name}")
            self._left_open.append(producer)
        prepared = transactional(broker.bootstrap, "prepared")
        send(prepared, f"{turn} prepared")
        self._send_offset(broker.bootstrap, prepared, commit=commit)
        if commit:
            self.committed.append(f"{turn} prepared")
        end = prepared.commit_transaction if commit else prepared.abort_transaction
        logs = [self._data / f"{TOPIC}-{number}" / f"{0:020}.log" for number in range(PARTITIONS)]
        inject = f"inject={WRITES}:signal=KILL:when=1"
        with ThreadPoolExecutor(1) as pool:
            with tracing(broker.pid, logs, f"trace={WRITES}", inject) as tracer:
                pool.submit(suppressed, end)
                tracer.wait(WAIT_S)
            until(lambda: not Path(f"/proc/{broker.pid}/exe").exists())

    def _send_offset(self, bootstrap: str, producer: Producer, *, commit: bool) -> None:
        """Add an offset of the group to the transaction."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
        group = consumer.consumer_group_metadata()
        offset = self._offset + 1
        place = TopicPartition(TOPIC, 0, offset)
        producer.send_offsets_to_transaction([place], group, WAIT_S)
        consumer.close()
        if commit:
            self._offset = offset

    def is_forgotten(self, broker: RunningBroker, *, commit: bool) -> bool:
        """Whether transactions hang that the coordinator has ended as it was decided."""
        with krust.Admin(bootstrap_servers=broker.bootstrap) as admin:
            until_is("CompleteCommit" if commit else "CompleteAbort", state(admin, "prepared"))
            until_is("CompleteAbort", state(admin, "times out"))
            assert state(admin, "open")() == "Ongoing"
            return bool(admin.find_hanging_transactions(older_than_ms=0))

    def goes_on(self, broker: RunningBroker, *, commit: bool) -> None:
        """Check that each transaction is ended as it was decided, or aborted."""
        assert not self.is_forgotten(broker, commit=commit)
        with krust.Admin(bootstrap_servers=broker.bootstrap) as admin:
            again = transactional(broker.bootstrap, "open")
            send(again, "the next of open")
            again.commit_transaction(WAIT_S)
            self.committed.append("the next of open")
            until_is("CompleteCommit", state(admin, "open"))
            offset = self._offset
            until_is(offset, lambda: sum(admin.committed(GROUP, TOPIC, 1).values()))
            places = [(TOPIC, number) for number in range(PARTITIONS)]
            for producers in admin.describe_producers(places).values():
                assert [each.start_offset for each in producers] == [None] * len(producers)
            assert admin.find_hanging_transactions(older_than_ms=0) == []
        assert self._read(broker.bootstrap) == sorted(self.committed * PARTITIONS)

    def _read(self, bootstrap: str) -> list[str]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reads"}
        reader = Consumer({**settings, "enable.partition.eof": True})
        reader.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        found: list[str] = []
        ended: set[int | None] = set()

        def is_at_end() -> bool:
            for message in reader.consume(1000, 0.1):
                if message.error() is None:
                    found.append((message.value() or b"").decode())
                else:
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        until(is_at_end)
        reader.close()
        return sorted(found)


def state(admin: krust.Admin, name: str) -> Callable[[], str]:
    """The state of a transactional id, when it is asked for."""
    return lambda: admin.describe_transactions([name])[name].state


def suppressed(end: Any) -> None:
    """End a transaction while the broker dies."""
    with suppress(KafkaException):
        end(1)


@pytest.mark.java
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace here")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_each_ends_the_transactions_that_the_other_was_killed_amid(
    tmp_path: Path, connect: str, commit: bool
) -> None:
    data = tmp_path / "data"
    bank = Bank(data)
    with krusts(data) as broker:
        bank.create(broker.bootstrap)
        bank.killed_amid_transactions(broker, "krust", commit=commit)
    left = tmp_path / "left"
    shutil.copytree(data, left)
    for start in range(STARTS):
        place, folder = f"{connect}-{start}", tmp_path / f"kafka-{start}"
        moved("export", place, data)
        with kafkas(folder, data, place) as broker:
            if bank.is_forgotten(broker, commit=commit):
                os.kill(broker.pid, signal.SIGKILL)
                shutil.rmtree(data)
                shutil.copytree(left, data)
                continue
            bank.goes_on(broker, commit=commit)
            bank.killed_amid_transactions(broker, "kafka", commit=not commit)
        break
    moved("import", place, data)
    with krusts(data) as broker:
        bank.goes_on(broker, commit=not commit)


def test_krust_aborts_the_transaction_that_a_kafka_left_open(tmp_path: Path) -> None:
    data = unpack("kafka-3.9.1-clean", tmp_path)
    with (
        ServedBroker(data, options=SETTINGS) as broker,
        krust.Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        until_is("CompleteAbort", lambda: admin.describe_transactions(["open"])["open"].state)
        [producers] = admin.describe_producers([("open-txn", 0)]).values()
        assert [each.start_offset for each in producers] == [None]
        ends = {each.transactional_id: each.state for each in admin.list_transactions()}
        assert ends == {"open": "CompleteAbort", "t0": "CompleteAbort", "t1": "CompleteCommit"}
