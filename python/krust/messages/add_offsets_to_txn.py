"""AddOffsetsToTxn (API 25), versions 0-4.

Adds the offsets of a group to a transaction.
"""

from __future__ import annotations

from typing import TypedDict


class AddOffsetsToTxnRequest(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
