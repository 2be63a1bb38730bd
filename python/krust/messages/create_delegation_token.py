"""CreateDelegationToken (API 38), versions 0-3.

Makes a delegation token: a secret by which others log in for a while as its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class CreatableRenewers(TypedDict):
    principal_type: str
    principal_name: str


class CreateDelegationTokenRequest(TypedDict):
    owner_principal_type: NotRequired[str | None]
    owner_principal_name: NotRequired[str | None]
    renewers: Sequence[CreatableRenewers]
    max_lifetime_ms: int


class CreateDelegationTokenResponse(TypedDict):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: NotRequired[str]
    token_requester_principal_name: NotRequired[str]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
