"""A transactional producer fails at once, with a fatal error: krust has no transactions."""

from __future__ import annotations

import asyncio

import pytest

WAIT_S = 60


def test_a_transactional_librdkafka_producer_fails_at_once(bootstrap: str) -> None:
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as failure:
        producer.init_transactions(WAIT_S)
    error = failure.value.args[0]
    assert (error.name(), error.fatal()) == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", True)


def test_a_transactional_kafka_python_producer_fails_at_once(bootstrap: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import TransactionalIdAuthorizationFailedError

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=0)


def test_a_transactional_aiokafka_producer_fails_at_once(bootstrap: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import TransactionalIdAuthorizationFailed

    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(begin())
