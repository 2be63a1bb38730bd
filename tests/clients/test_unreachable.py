"""A client that cannot reach its brokers says so once, tries on, and gives up when its own time is
over: it is never silent, and never waits for longer than its settings say."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import krust
from krust.errors import UnreachableError

SOON = {"default_api_timeout_ms": 300, "retry_backoff_ms": 20}
WAIT_MS = 60_000


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def warnings(caplog: pytest.LogCaptureFixture, address: str) -> list[str]:
    """What the log says of a broker."""
    records = [record for record in caplog.records if record.name.startswith("krust")]
    return [text for text in (record.getMessage() for record in records) if address in text]


def until_raised(poll: Callable[[], object]) -> UnreachableError:
    def for_ever() -> None:
        while True:
            poll()

    with pytest.raises(UnreachableError) as raised:
        for_ever()
    return raised.value


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_without_a_reachable_broker_logs_once_and_raises(
    nobody: str, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    given: dict[str, Any] = {**SOON, "group_id": "g", "group_protocol": protocol}
    with krust.Consumer("t", bootstrap_servers=nobody, **given) as consumer:
        error = until_raised(lambda: consumer.poll(50))
    assert f"cannot connect to {nobody}: connection refused" in str(error)
    assert warnings(caplog, nobody) == [
        f"cannot reach broker {nobody}: connection refused; trying again"
    ]


def test_a_producer_without_a_reachable_broker_logs_once_and_raises(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"delivery_timeout_ms": 300, "retry_backoff_ms": 20}
    with krust.Producer(bootstrap_servers=nobody, **given) as producer:
        error = until_raised(lambda: producer.produce("t", b"x"))
    assert "connection refused" in str(error)
    assert len(warnings(caplog, nobody)) == 1


def test_clients_of_a_dead_broker_log_once_raise_and_continue_after_its_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "krust")
    broker = krust.Broker(data_dir=tmp_path).start()
    address = broker.bootstrap
    broker.create_topic("t", 1)
    given: dict[str, Any] = {**SOON, "bootstrap_servers": address}
    writing: dict[str, Any] = {"delivery_timeout_ms": 500, "retry_backoff_ms": 20}
    with (
        krust.Consumer(**given) as consumer,
        krust.Producer(bootstrap_servers=address, **writing) as producer,
    ):
        consumer.assign([("t", 0, 0)])
        producer.send("t", b"before").result(WAIT_MS)
        while not consumer.poll(1000):
            pass
        broker.stop()
        until_raised(lambda: consumer.poll(50))
        assert len(warnings(caplog, address)) == 1
        error = until_raised(lambda: producer.send("t", b"lost").result(WAIT_MS))
        assert f"cannot connect to {address}: connection refused" in str(error)
        assert len(warnings(caplog, address)) == 2, "a line each client"
        port = int(address.rpartition(":")[2])
        with krust.Broker(data_dir=tmp_path, port=port):
            sent = producer.send("t", b"after")
            while not (records := consumer.poll(1000)):
                pass
            sent.result(WAIT_MS)
            assert records[0].value == b"after"
    assert warnings(caplog, address)[2:] == [f"broker {address} answers again"] * 2
