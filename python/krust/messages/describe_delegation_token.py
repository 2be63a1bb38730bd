"""DescribeDelegationToken (API 41), versions 0-3.

Shows delegation tokens, with the secret of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribeDelegationTokenOwner(TypedDict):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenRequest(TypedDict):
    owners: Sequence[DescribeDelegationTokenOwner] | None


class DescribedDelegationTokenRenewer(TypedDict):
    principal_type: str
    principal_name: str


class DescribedDelegationToken(TypedDict):
    principal_type: str
    principal_name: str
    token_requester_principal_type: NotRequired[str]
    token_requester_principal_name: NotRequired[str]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: Sequence[DescribedDelegationTokenRenewer]


class DescribeDelegationTokenResponse(TypedDict):
    error_code: int
    tokens: Sequence[DescribedDelegationToken]
    throttle_time_ms: int
