"""How a driver learns from the log how a transaction ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from krust.errors import Code, KafkaError
from krust.spark import options, transaction_client
from krust.spark.decisions import RowRange, TaskTransaction
from krust.spark.transaction_client import TransactionClient

SPAN = RowRange("orders", 0, 10, 12, 3)
TRANSACTION = TaskTransaction("krust-spark:q:0", 7, 0, False, (SPAN,))
ABORTED = {"producer_id": 7, "first_offset": 10}


class Leader:
    """Answers Metadata, and each Fetch with the next of these codes; then as the log has it."""

    def __init__(self, codes: list[Code]) -> None:
        self.codes = codes

    def request(self, api: str, body: Any, version: int | None = None, broker: int = -1) -> Any:
        if api == "Metadata":
            partition = {"partition_index": 0, "error_code": 0, "leader_id": 1}
            return {"topics": [{"error_code": 0, "partitions": [partition]}]}
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        answer = {"error_code": code, "last_stable_offset": 14, "aborted_transactions": [ABORTED]}
        return {"error_code": 0, "responses": [{"partitions": [answer]}]}

    def close(self) -> None:
        pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TransactionClient]:
    monkeypatch.setattr(transaction_client, "_PAUSE_S", 0)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
    with TransactionClient(options.sink(given)) as made:
        yield made


def was_aborted(client: TransactionClient, *codes: Code) -> bool:
    client._client.close()
    client._client = Leader(list(codes))  # type: ignore[assignment]
    return client.was_aborted(TRANSACTION)


@pytest.mark.parametrize(
    "code",
    [
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_leader_that_starts_or_moves_is_asked_again(
    client: TransactionClient, code: Code
) -> None:
    assert was_aborted(client, code, code, Code.NONE)


def test_rows_whose_offsets_are_deleted_count_as_committed(client: TransactionClient) -> None:
    assert not was_aborted(client, Code.OFFSET_OUT_OF_RANGE)


def test_rows_of_a_topic_that_stays_unknown_count_as_committed(client: TransactionClient) -> None:
    client._patience_s = 0
    assert not was_aborted(client, Code.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_refusal_that_lasts_is_raised(client: TransactionClient) -> None:
    with pytest.raises(KafkaError, match="topic authorization failed"):
        was_aborted(client, Code.TOPIC_AUTHORIZATION_FAILED)
