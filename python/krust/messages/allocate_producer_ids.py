"""AllocateProducerIds (API 67), versions 0-0.

A broker asks the controller for a block of producer ids.
"""

from __future__ import annotations

from typing import TypedDict


class AllocateProducerIdsRequest(TypedDict):
    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
