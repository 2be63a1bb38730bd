"""ListTransactions (API 66), versions 0-2.

The transactional ids that a broker coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListTransactionsRequest(TypedDict):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: NotRequired[int]
    transactional_id_pattern: NotRequired[str | None]


class TransactionState(TypedDict):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[TransactionState]
