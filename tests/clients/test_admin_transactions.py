"""Transactions through krust.Admin and krust.AsyncAdmin, on krust and on Kafka alike."""

from __future__ import annotations

import asyncio

import pytest

import krust
from krust.errors import KafkaError, KrustError
from tests.hanging import leave_hanging
from tests.waiting import until


def test_a_hanging_transaction_is_found_aborted_and_then_gone(bootstrap: str, single: str) -> None:
    producer_id, epoch = leave_hanging(bootstrap, single, single)
    with krust.Admin(bootstrap_servers=bootstrap) as admin:
        [listed] = admin.list_transactions(producer_ids=[producer_id])
        assert (listed.transactional_id, listed.state) == (single, "Empty")
        described = admin.describe_transactions([single])[single]
        assert (described.producer_epoch, described.partitions) == (epoch, [])
        assert described.start_ms is None
        [found] = admin.find_hanging_transactions([single])
        assert (found.topic, found.partition, found.producer.start_offset) == (single, 0, 0)
        assert admin.find_hanging_transactions([single], broker=listed.coordinator) == [found]
        assert admin.describe_producers([(single, 0)]) == {(single, 0): [found.producer]}
        with pytest.raises(KrustError, match="begins at 7"):
            admin.abort_transaction(single, 0, 7)
        with pytest.raises(krust.ConfigError, match="either"):
            admin.abort_transaction(single, 0)
        admin.abort_transaction(single, 0, 0)
        assert admin.find_hanging_transactions([single]) == []
        until(lambda: admin.list_offsets({(single, 0): "latest"}) == {(single, 0): 2})


def test_a_producer_whose_epoch_is_old_is_refused(bootstrap: str, single: str) -> None:
    leave_hanging(bootstrap, single, single)

    async def run() -> None:
        async with krust.AsyncAdmin(bootstrap_servers=bootstrap) as admin:
            [found] = await admin.find_hanging_transactions([single])
            [kept] = (await admin.describe_producers([(single, 0)])).values()
            assert kept == [found.producer]
            old = type(found.producer)(**{**vars(found.producer), "producer_epoch": 0})
            with pytest.raises(KafkaError) as caught:
                await admin.abort_transaction(single, 0, producer=old)
            assert caught.value.name == "INVALID_PRODUCER_EPOCH"
            await admin.abort_transaction(single, 0, producer=found.producer)
            [listed] = await admin.list_transactions(
                states=["Empty"], producer_ids=[found.producer.producer_id]
            )
            assert listed.transactional_id == single
            assert set(await admin.describe_transactions([single])) == {single}

    asyncio.run(run())
