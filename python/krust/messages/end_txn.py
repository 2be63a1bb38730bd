"""EndTxn (API 26), versions 0-5.

Commits or aborts a transaction.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class EndTxnRequest(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]
