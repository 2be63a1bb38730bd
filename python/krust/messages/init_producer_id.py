"""InitProducerId (API 22), versions 0-5.

Gives a producer its id and epoch.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class InitProducerIdRequest(TypedDict):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]


class InitProducerIdResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
