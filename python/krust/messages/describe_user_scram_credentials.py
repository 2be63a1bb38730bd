"""DescribeUserScramCredentials (API 50), versions 0-0.

How users can prove who they are by SCRAM; never what they prove it with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class UserName(TypedDict):
    name: str


class DescribeUserScramCredentialsRequest(TypedDict):
    users: Sequence[UserName] | None


class CredentialInfo(TypedDict):
    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResult(TypedDict):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[CredentialInfo]


class DescribeUserScramCredentialsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResult]
