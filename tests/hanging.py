"""Transactions that hang: a partition holds them open, and no coordinator knows of it.

Brokers since Kafka 3.6 ask the coordinator before the first record of a transaction
(`transaction.partition.verification.enable`), so they hang only where that was off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from krust._krust import Client
from tests.waiting import until

BROKER, SET, DELETE = 4, 0, 1
VERIFIES = "transaction.partition.verification.enable"
PRODUCE, UNVERIFIED = "Produce", 11
"""from version 12 on Produce itself adds partitions to transactions"""
AN_HOUR_MS = 3_600_000


@contextmanager
def unverified(bootstrap: str) -> Iterator[Client]:
    """A broker takes records of transactions without asking the coordinator."""
    client = Client(bootstrap)

    def alter(operation: int, value: str | None) -> None:
        config = {"name": VERIFIES, "config_operation": operation, "value": value}
        resource = {"resource_type": BROKER, "resource_name": "", "configs": [config]}
        [answer] = client.request("IncrementalAlterConfigs", {"resources": [resource]})["responses"]
        assert not answer["error_code"], answer

    alter(SET, "false")
    yield client
    alter(DELETE, None)


def initialized(client: Client, transactional_id: str) -> tuple[int, int]:
    """The producer id of a transactional id, and a new epoch."""

    def ask() -> tuple[int, int] | None:
        find = {"key": transactional_id, "key_type": 1, "coordinator_keys": [transactional_id]}
        client.request("FindCoordinator", find)  # it creates the coordinator's topic
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        answer = client.request("InitProducerId", body)
        found = int(answer["producer_id"]), int(answer["producer_epoch"])
        return None if answer["error_code"] else found

    found: tuple[int, int] = until(ask)
    return found


def leave_hanging(bootstrap: str, topic: str, transactional_id: str) -> tuple[int, int]:
    """Write a record of an hour ago to partition 0, in a transaction that its coordinator does not
    know; the producer's id and its epoch, the second one.
    """
    with unverified(bootstrap) as client:
        initialized(client, transactional_id)
        producer_id, epoch = initialized(client, transactional_id)
        batch = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=1,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            batch_size=1000,
        )
        written_ms = int(time.time() * 1000) - AN_HOUR_MS
        batch.append(0, timestamp=written_ms, key=None, value=b"hangs", headers=[])
        partition = {"index": 0, "records": bytes(batch.build())}
        body = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": topic, "partition_data": [partition]}],
        }

        def written() -> bool:  # the setting may take effect a moment later
            [answer] = client.request(PRODUCE, body, UNVERIFIED)["responses"]
            return not answer["partition_responses"][0]["error_code"]

        until(written)
    return producer_id, epoch
