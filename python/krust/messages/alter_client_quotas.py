"""AlterClientQuotas (API 49), versions 0-1.

Sets or takes away quotas of users, clients and addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class EntityData(TypedDict):
    entity_type: str
    entity_name: str | None


class OpData(TypedDict):
    key: str
    value: float
    remove: bool


class EntryData(TypedDict):
    entity: Sequence[EntityData]
    ops: Sequence[OpData]


class AlterClientQuotasRequest(TypedDict):
    entries: Sequence[EntryData]
    validate_only: bool


class EntryResult(TypedDict):
    error_code: int
    error_message: str | None
    entity: Sequence[EntityData]


class AlterClientQuotasResponse(TypedDict):
    throttle_time_ms: int
    entries: Sequence[EntryResult]
