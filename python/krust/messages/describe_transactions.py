"""DescribeTransactions (API 65), versions 0-0.

The transactions of some transactional ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribeTransactionsRequest(TypedDict):
    transactional_ids: Sequence[str]


class TopicData(TypedDict):
    topic: str
    partitions: Sequence[int]


class TransactionState(TypedDict):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[TopicData]


class DescribeTransactionsResponse(TypedDict):
    throttle_time_ms: int
    transaction_states: Sequence[TransactionState]
