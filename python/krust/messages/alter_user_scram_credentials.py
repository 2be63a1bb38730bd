"""AlterUserScramCredentials (API 51), versions 0-0.

Sets and deletes what users prove themselves with by SCRAM; the password itself is never sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ScramCredentialDeletion(TypedDict):
    name: str
    mechanism: int


class ScramCredentialUpsertion(TypedDict):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(TypedDict):
    deletions: Sequence[ScramCredentialDeletion]
    upsertions: Sequence[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(TypedDict):
    user: str
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsResponse(TypedDict):
    throttle_time_ms: int
    results: Sequence[AlterUserScramCredentialsResult]
