"""RenewDelegationToken (API 39), versions 0-2.

Has a delegation token expire later.
"""

from __future__ import annotations

from typing import TypedDict


class RenewDelegationTokenRequest(TypedDict):
    hmac: bytes
    renew_period_ms: int


class RenewDelegationTokenResponse(TypedDict):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
