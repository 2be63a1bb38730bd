"""Transactions of krust.Producer on krust and on Kafka alike: version 1 on 3.9, 2 on 4.3."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from krust import _krust
from krust.errors import (
    AbortableTransactionError,
    ConfigError,
    KafkaError,
    KrustError,
    ProducerFencedError,
)
from tests.clients.conftest import create
from tests.proxy import Cutting, behind
from tests.transaction_version import finalize
from tests.waiting import until

ADD_PARTITIONS_TO_TXN = 24


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """The values that read_committed readers of a topic see, in order of partition and offset."""
    with krust.Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        partitions = [krust.TopicPartition(topic, n) for n in range(consumer.topics()[topic])]
        ends = consumer.end_offsets(partitions)
        consumer.assign([(*place, 0) for place in partitions])
        found = []
        while any(consumer.position(*place) < ends[place] for place in partitions):
            found += consumer.poll(1000)
    return [r.value for r in sorted(found, key=lambda r: (r.partition, r.offset))]


def producer(bootstrap: str, name: str, settings: dict[str, int] | None = None) -> krust.Producer:
    """A producer with a transactional.id of this test."""
    given: dict[str, object] = {"bootstrap.servers": bootstrap, "transactional.id": f"tx-{name}"}
    return krust.Producer(given | dict(settings or {}))


class GaveUpError(Exception):
    """What the caller of a transaction raises in it."""


def give_up(
    writer: krust.Producer, topic: str, value: bytes | None, consumer: krust.Consumer | None = None
) -> None:
    """A transaction of a sent record, a record in the buffer, and a consumer's offsets; aborted."""
    with writer.transaction():
        writer.send(topic, value).result()
        writer.produce(topic, b"not even sent")
        if consumer is not None:
            writer.send_offsets(consumer)
        raise GaveUpError


def test_a_transaction_commits_its_records_at_the_end_of_the_block(
    bootstrap: str, topic: str
) -> None:
    with producer(bootstrap, topic) as writer:
        for number in range(3):
            with writer.transaction():
                for partition in range(3):
                    writer.produce(topic, b"%d" % number, partition=partition)
    until(lambda: committed(bootstrap, topic) == [b"0", b"1", b"2"] * 3)


def test_an_exception_aborts_the_transaction_and_the_next_one_commits(
    bootstrap: str, single: str
) -> None:
    with producer(bootstrap, single) as writer:
        for word in (b"one", b"two"):
            with pytest.raises(GaveUpError):
                give_up(writer, single, b"lost")
            with writer.transaction():
                writer.produce(single, word)
    until(lambda: committed(bootstrap, single) == [b"one", b"two"])


def test_open_records_are_invisible_and_an_empty_transaction_ends(
    bootstrap: str, single: str
) -> None:
    with producer(bootstrap, single) as writer:
        with writer.transaction():
            pass
        with writer.transaction():
            writer.send(single, b"open").result()
            assert committed(bootstrap, single) == []
        until(lambda: committed(bootstrap, single) == [b"open"])


def test_records_outside_of_a_transaction_are_refused(bootstrap: str, single: str) -> None:
    with producer(bootstrap, single) as writer:
        with pytest.raises(ConfigError, match="no transaction is open"):
            writer.produce(single, b"x")
        with pytest.raises(ConfigError, match="no transaction is open"):
            writer.commit_transaction()
        writer.begin_transaction()
        with pytest.raises(ConfigError, match="open already"):
            writer.begin_transaction()
    with (
        krust.Producer(bootstrap_servers=bootstrap) as plain,
        pytest.raises(ConfigError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()


def test_a_new_producer_fences_the_earlier_one_and_aborts_its_transaction(
    bootstrap: str, single: str
) -> None:
    old = producer(bootstrap, single)
    old.begin_transaction()
    old.send(single, b"of the old one").result()
    with producer(bootstrap, single) as new, new.transaction():
        new.produce(single, b"of the new one")
    with pytest.raises(ProducerFencedError, match="another producer uses it") as raised:
        old.commit_transaction()
    assert raised.value.hint is not None
    with pytest.raises(ProducerFencedError):
        old.begin_transaction()
    old.close()
    until(lambda: committed(bootstrap, single) == [b"of the new one"])


def test_a_refused_record_makes_the_transaction_abortable(bootstrap: str, single: str) -> None:
    with producer(bootstrap, single, {"max.request.size": 10 << 20}) as writer:
        writer.begin_transaction()
        writer.send(single, b"fits").result()
        writer.produce(single, bytes(2 << 20))
        with pytest.raises(AbortableTransactionError, match="cannot be committed") as raised:
            writer.commit_transaction()
        writer.abort_transaction()
        assert raised.value.hint == "abort the transaction, then do its work again in a new one"
        with writer.transaction():
            writer.produce(single, b"the work again")
    until(lambda: committed(bootstrap, single) == [b"the work again"])


def test_offsets_of_a_group_are_committed_with_the_records(
    bootstrap: str, single: str, name: str
) -> None:
    target, group = f"{single}-copy", f"group-{single}"
    create(bootstrap, target, 1)
    with krust.Producer(bootstrap_servers=bootstrap) as plain:
        for number in range(10):
            plain.produce(single, b"%d" % number)
    settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    with (
        krust.Consumer(single, {"bootstrap.servers": bootstrap, **settings}) as consumer,
        producer(bootstrap, single) as writer,
    ):
        got: list[krust.Record] = []
        while len(got) < 10:
            got += consumer.poll(1000)
        with pytest.raises(GaveUpError):
            give_up(writer, target, got[0].value, consumer)
        assert consumer.committed([(single, 0)]) == {}
        with writer.transaction():
            for record in got:
                writer.produce(target, record.value)
            writer.send_offsets(consumer)
        assert consumer.committed([(single, 0)]) == {(single, 0): 10}
        zombie = consumer.group_metadata()._replace(generation=99)
        with pytest.raises(AbortableTransactionError), writer.transaction():
            writer.send_offsets({(single, 0): 3}, zombie)
        with writer.transaction():
            writer.send_offsets({(single, 0): 7}, consumer.group_metadata())
        assert consumer.committed([(single, 0)]) == {(single, 0): 7}
    until(lambda: len(committed(bootstrap, target)) == 10)
    with pytest.raises(ConfigError), krust.Consumer(bootstrap_servers=bootstrap) as alone:
        alone.group_metadata()


def test_offsets_need_no_consumer(bootstrap: str, single: str) -> None:
    with producer(bootstrap, single) as writer:
        with writer.transaction(), pytest.raises(ConfigError, match="belong to a group"):
            writer.send_offsets({(single, 0): 3})
        with writer.transaction():
            writer.send_offsets({(single, 0): 3}, krust.GroupMetadata(f"alone-{single}"))
    reader = krust.Consumer(bootstrap_servers=bootstrap, group_id=f"alone-{single}")
    with reader:
        assert reader.committed([(single, 0)]) == {(single, 0): 3}


def test_a_prepared_transaction_is_ended_by_another_process(bootstrap: str, single: str) -> None:
    with producer(bootstrap, single) as writer:
        writer.begin_transaction()
        for word in (b"one", b"two"):
            writer.send(single, word).result()
        found = writer.prepare_transaction()
        with pytest.raises(KrustError, match="another process ends it"):
            writer.begin_transaction()
    assert committed(bootstrap, single) == []
    assert [(one.first, one.last, one.records) for one in found.written] == [(0, 1, 2)]
    body = {"transactional_id": f"tx-{single}", "committed": True}
    body |= {"producer_id": found.producer_id, "producer_epoch": found.epoch}
    client = _krust.Client(bootstrap)

    def end() -> bool:
        answer = client.request("EndTxn", body, 5 if found.is_v2 else 4)
        return bool(answer["error_code"] == 0)

    until(end)
    until(lambda: committed(bootstrap, single) == [b"one", b"two"])


def test_close_aborts_an_open_transaction(bootstrap: str, single: str) -> None:
    with producer(bootstrap, single) as writer:
        writer.begin_transaction()
        writer.send(single, b"open").result()
    with producer(bootstrap, single) as writer, writer.transaction():
        writer.produce(single, b"kept")
    until(lambda: committed(bootstrap, single) == [b"kept"])


def test_a_transactional_producer_without_idempotence_is_refused(bootstrap: str) -> None:
    for key, value in (("acks", 1), ("enable.idempotence", False)):
        given = {"bootstrap.servers": bootstrap, "transactional.id": "x", key: value}
        with pytest.raises(ConfigError, match="idempotent"):
            krust.Producer(given)


def test_a_timeout_above_the_brokers_is_refused(bootstrap: str, single: str) -> None:
    with producer(bootstrap, single, {"transaction.timeout.ms": 1 << 30}) as writer:
        with pytest.raises(KafkaError) as raised:
            writer.init_transactions()
        assert raised.value.code == 50


def test_the_awaitable_producer_has_transactions(bootstrap: str, single: str) -> None:
    async def give_up(writer: krust.AsyncProducer) -> None:
        async with writer.transaction():
            await writer.send(single, b"lost")
            raise GaveUpError

    async def run() -> None:
        writer = krust.AsyncProducer(bootstrap_servers=bootstrap, transactional_id=f"a-{single}")
        async with writer:
            with pytest.raises(GaveUpError):
                await give_up(writer)
            async with writer.transaction():
                delivery = await writer.enqueue(single, b"kept")
                await writer.send_offsets({(single, 0): 1}, f"a-{single}")
            assert (await delivery).topic == single

    asyncio.run(run())
    until(lambda: committed(bootstrap, single) == [b"kept"])


def test_a_consumer_does_not_begin_before_a_transaction_with_its_offsets_has_ended(
    bootstrap: str, single: str
) -> None:
    where: dict[str, object] = {"bootstrap.servers": bootstrap, "group.id": f"group-{single}"}
    with producer(bootstrap, single) as writer:
        with writer.transaction():
            for number in range(5):
                writer.produce(single, b"%d" % number)
        writer.begin_transaction()
        writer.send_offsets({(single, 0): 3}, f"group-{single}")
        short = krust.Consumer(where | {"default.api.timeout.ms": 1000})
        with short, pytest.raises(KafkaError, match="unstable offset commit"):
            short.committed([(single, 0)])
        with krust.Consumer(single, where | {"auto.offset.reset": "earliest"}) as consumer:
            while not consumer.group_metadata().member_id:
                assert consumer.poll(100) == []
            assert consumer.poll(500) == []
            writer.commit_transaction()
            got: list[krust.Record] = []
            while not got:
                got += consumer.poll(1000)
    assert got[0].offset == 3


def test_an_isolation_level_is_checked_and_its_case_does_not_matter(
    bootstrap: str, single: str
) -> None:
    with pytest.raises(ConfigError, match="isolation"):
        krust.Consumer(bootstrap_servers=bootstrap, isolation_level="read_commited")
    where: dict[str, object] = {"bootstrap.servers": bootstrap}
    with producer(bootstrap, single) as writer:
        with writer.transaction():
            writer.produce(single, b"committed")
        writer.begin_transaction()
        writer.send(single, b"open").result()
        with krust.Consumer(where | {"isolation.level": "READ_COMMITTED"}) as consumer:
            consumer.assign([(single, 0, 0)])
            until(lambda: consumer.end_offsets([(single, 0)]) == {(single, 0): 2})
            got: list[krust.Record] = []
            while consumer.position(single, 0) < 2:
                got += consumer.poll(1000)
    assert [record.value for record in got] == [b"committed"]


@pytest.fixture
def hasty() -> Iterator[krust.Broker]:
    """A broker that forgets idle transactional ids and ends late transactions at once."""
    every_ms = "cleanup.interval.ms"
    settings: dict[str, object] = {
        "transactional.id.expiration.ms": 1000,
        f"transaction.remove.expired.transaction.{every_ms}": 20,
        f"transaction.abort.timed.out.transaction.{every_ms}": 20,
    }
    with krust.Broker(config=settings) as broker:
        broker.create_topic("orders")
        yield broker


def test_a_producer_whose_transactional_id_has_expired_gets_a_new_one_by_an_abort(
    hasty: krust.Broker,
) -> None:
    with (
        krust.Admin(bootstrap_servers=hasty.bootstrap) as admin,
        producer(hasty.bootstrap, "idle") as writer,
    ):
        writer.init_transactions()
        until(lambda: admin.list_transactions() == [])
        writer.begin_transaction()
        with pytest.raises(AbortableTransactionError) as raised:
            writer.send_offsets({("orders", 0): 1}, "billing")
        assert raised.value.name == "INVALID_PRODUCER_ID_MAPPING"
        writer.abort_transaction()
        with writer.transaction():
            writer.produce("orders", b"paid")
    until(lambda: committed(hasty.bootstrap, "orders") == [b"paid"])


def test_an_abort_ends_a_transaction_whose_added_partitions_were_not_answered(
    tmp_path: Path,
) -> None:
    lost, is_lost = Cutting(1, [ADD_PARTITIONS_TO_TXN]), True

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return is_lost and lost(api, frame, connection)

    with behind(tmp_path, answer) as address:
        create(address, "orders", 1)
        finalize(address, 1)  # producers of version 2 add partitions by their Produce requests
        with producer(address, "unanswered") as writer:
            writer.begin_transaction()
            writer.produce("orders", b"not even sent")
            until(lambda: lost.cuts > 0)
            writer.abort_transaction()
            is_lost = False
            with writer.transaction():
                writer.produce("orders", b"paid")
        assert committed(address, "orders") == [b"paid"]


def test_a_transaction_that_took_too_long_is_aborted_and_its_producer_fenced(
    hasty: krust.Broker,
) -> None:
    with producer(hasty.bootstrap, "slow", {"transaction.timeout.ms": 50}) as writer:
        writer.begin_transaction()
        writer.send("orders", b"late").result()
        with krust.Admin(bootstrap_servers=hasty.bootstrap) as admin:
            until(lambda: admin.list_transactions(states=["Ongoing"]) == [])
        with pytest.raises(ProducerFencedError, match=r"transaction\.timeout\.ms"):
            writer.commit_transaction()
    assert committed(hasty.bootstrap, "orders") == []
