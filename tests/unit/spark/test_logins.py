"""Drivers and tasks log in by what their options say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from krust import Broker, Consumer, Producer, jaas
from krust.spark import options
from krust.spark.broker_offsets import BrokerOffsetReader
from krust.spark.commit_log import CommitLog
from krust.spark.group_commits import GroupCommitter
from krust.spark.options import BATCH
from krust.spark.plan import PartitionRange
from krust.spark.transaction_client import TransactionClient
from tests import tokens

PASSWORD = {"kafka.sasl.jaas.config": f'{jaas.PLAIN} required username="alice" password="secret";'}
VALUES = [b"1", b"2"]


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker's address for logins, and a token of a user."""
    issuer = tokens.Issuer(tmp_path_factory.mktemp("issuer"))
    listener = "listener.name.sasl_plaintext"
    config = issuer.broker("SASL_PLAINTEXT") | {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{listener}.plain.sasl.jaas.config": f'{jaas.PLAIN} required user_alice="secret";',
    }
    with Broker(config=config) as broker:
        at = dict(broker.listeners)["SASL_PLAINTEXT"]
        with Producer(login(at, PASSWORD)) as producer:
            for value in VALUES:
                producer.send("orders", value, partition=0)
        yield at, issuer.token()


@pytest.fixture(params=["password", "token"])
def given(request: pytest.FixtureRequest, listening: tuple[str, str]) -> dict[str, str]:
    """The options of a query."""
    at, token = listening
    by_token = {"kafka.sasl.oauthbearer.token": token}
    return {
        "kafka.bootstrap.servers": at,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN" if request.param == "password" else "OAUTHBEARER",
        **(PASSWORD if request.param == "password" else by_token),
    }


def login(at: str, how: dict[str, str]) -> dict[str, Any]:
    mine = {name.removeprefix("kafka."): value for name, value in how.items()}
    return mine | {
        "bootstrap.servers": at,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
    }


def test_a_driver_asks_for_offsets(given: dict[str, str]) -> None:
    reader = BrokerOffsetReader(options.source(given | {"subscribe": "orders"}, BATCH))
    ends, _ = reader.ends()
    assert ends == {("orders", 0): len(VALUES)}


def test_a_task_reads(given: dict[str, str]) -> None:
    reading = pytest.importorskip("krust.spark.reading")
    source = options.source(given | {"subscribe": "orders"}, BATCH)
    part = reading.Part((PartitionRange("orders", 0, 0, 2),))
    batches = reading._batches(part, source, reading.full_schema(False))
    assert [value for each in batches for value in each["value"].to_pylist()] == VALUES


def test_a_query_commits_offsets_and_decisions(
    given: dict[str, str], listening: tuple[str, str]
) -> None:
    GroupCommitter(listening[0], "g", login_of(given)).commit({("orders", 0): 2})
    with Consumer(login(listening[0], PASSWORD) | {"group.id": "g"}) as consumer:
        assert consumer.committed([("orders", 0)])
    sink = options.sink(given | {"topic": "orders"})
    with TransactionClient(sink) as client:
        assert client._client.request("Metadata", {"topics": []})["brokers"]
    log = CommitLog(sink, "q")
    assert log.claim() is None
    log.close()


def login_of(given: dict[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("kafka."): value
        for name, value in given.items()
        if name != "kafka.bootstrap.servers"
    }
