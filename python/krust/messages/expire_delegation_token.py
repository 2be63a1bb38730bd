"""ExpireDelegationToken (API 40), versions 0-2.

Has a delegation token expire at another time, or at once.
"""

from __future__ import annotations

from typing import TypedDict


class ExpireDelegationTokenRequest(TypedDict):
    hmac: bytes
    expiry_time_period_ms: int


class ExpireDelegationTokenResponse(TypedDict):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
