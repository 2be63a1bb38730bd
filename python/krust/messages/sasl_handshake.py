"""SaslHandshake (API 17), versions 0-1.

Chooses a SASL mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class SaslHandshakeRequest(TypedDict):
    mechanism: str


class SaslHandshakeResponse(TypedDict):
    error_code: int
    mechanisms: Sequence[str]
