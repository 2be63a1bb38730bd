"""SaslAuthenticate (API 36), versions 0-2.

One token of a SASL login, after SaslHandshake v1.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SaslAuthenticateRequest(TypedDict):
    auth_bytes: bytes


class SaslAuthenticateResponse(TypedDict):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: NotRequired[int]
