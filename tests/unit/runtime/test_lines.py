"""The log lines of a broker on topics, groups, refusals and slow requests, with the client."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import krust
from krust.controller.state import Request
from krust.errors import KafkaError
from krust.runtime.lines import SLOW_MS, LogLines
from tests.waiting import until


def test_topics_groups_and_refusals_are_logged_at_info(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "krust"), krust.Broker() as broker:
        broker.create_topic("orders", partitions=3)
        with pytest.raises(KafkaError):
            broker.create_topic("orders")
        options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "group_id": "readers"}
        with krust.Consumer("orders", **options) as consumer:

            def assigned() -> bool:
                consumer.poll(100)
                return bool(consumer.assignment())

            until(assigned)
        until(lambda: "empty" in caplog.text)
        broker.delete_topic("orders")
    lines = [record.message for record in caplog.records if record.levelno == logging.INFO]
    assert "topic orders is created: partitions 3, replication factor 1" in lines
    assert "topic orders is deleted" in lines
    rebalances = [line for line in lines if line.startswith("group 'readers': generation ")]
    assert "members 1: " in rebalances[0]
    assert rebalances[0].endswith("joined")
    assert "empty: " in rebalances[-1]
    assert "left" in rebalances[-1]


def test_clients_are_logged_at_debug_and_refused_ones_at_info(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with krust.Broker() as broker:
        admin = krust.Admin(bootstrap_servers=broker.bootstrap)
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 3}
        body: dict[str, object] = {"topics": [topic | {"assignments": [], "configs": []}]}
        body |= {"timeout_ms": 9000, "validate_only": False}

        def asked() -> list[str]:
            messages = [each.message for each in caplog.records if each.name == "krust.requests"]
            return [line for line in messages if 'api="CreateTopics"' in line]

        with caplog.at_level(logging.INFO, "krust"):
            admin.request("CreateTopics", body)
            admin.request("CreateTopics", body)
        assert not asked()
        refused = [each.message for each in caplog.records if "refused" in each.message]
        assert len(refused) == 2
        assert "is refused: INVALID_REPLICATION_FACTOR" in refused[0]
        assert "127.0.0.1" in refused[0] or "::1" in refused[0]
        with caplog.at_level(logging.DEBUG, "krust"):
            until(lambda: admin.request("CreateTopics", body) and bool(asked()))
        assert "peer=" in asked()[0]
        admin.close()


def test_a_slow_request_is_logged_with_its_client_without_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request: Request[Any] = Request(
        "CreateTopics", 5, {}, {"id": "a\nb\x1b[2J", "host": "10.0.0.1"}, 1000
    )
    with caplog.at_level(logging.INFO, "krust"):
        LogLines().answered(request, {"topics": [{"error_code": 0}]}, 1000 + SLOW_MS)
        assert not caplog.records
        LogLines().answered(request, {"topics": [{"error_code": 0}]}, 1001 + SLOW_MS)
    assert caplog.messages == [f"CreateTopics from a?b?[2J (10.0.0.1) took {SLOW_MS + 1} ms"]


def test_refusals_of_the_brokers_own_repeated_request_are_logged_when_the_reason_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request: Request[Any] = Request("AlterPartition", 3, {}, {}, 1000)
    lines = LogLines()
    with caplog.at_level(logging.INFO, "krust"):
        for code in (14, 14, 41, 41, 0, 41):
            lines.answered(request, {"error_code": code}, 1000)
    assert caplog.messages == [
        "AlterPartition from this broker is refused: COORDINATOR_LOAD_IN_PROGRESS",
        "AlterPartition from this broker is refused: NOT_CONTROLLER",
        "AlterPartition from this broker is refused: NOT_CONTROLLER",
    ]


def test_recovered_logs_are_reported_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with krust.Broker(tmp_path / "data") as broker:
        broker.create_topic("t", partitions=2)
    with caplog.at_level(logging.INFO, "krust"), krust.Broker(tmp_path / "data"):
        pass
    assert "opened 2 logs; checked 0 bytes" in caplog.text
    assert "is created" not in caplog.text


def test_the_banner_shows_the_data_directory_the_address_and_how_to_stop(tmp_path: Path) -> None:
    for what, data in (("serve", "data"), ("dev", "brokers")):
        ready = tmp_path / f"{what}-ready"
        command = [sys.executable, "-m", "krust", what, "--port", "0", "--ready-file", str(ready)]
        with subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / data)], stderr=subprocess.PIPE, text=True
        ) as process:
            until(ready.exists)
            process.terminate()
            assert process.stderr is not None
            said = process.stderr.read()
        assert "is ready" in said
        assert str(tmp_path / data) in said
        assert "  connect   bootstrap.servers=127.0.0.1:" in said
        assert "  stop      Ctrl-C" in said
