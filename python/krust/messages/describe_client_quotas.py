"""DescribeClientQuotas (API 48), versions 0-1.

The quotas of users, clients and addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ComponentData(TypedDict):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest(TypedDict):
    components: Sequence[ComponentData]
    strict: bool


class EntityData(TypedDict):
    entity_type: str
    entity_name: str | None


class ValueData(TypedDict):
    key: str
    value: float


class EntryData(TypedDict):
    entity: Sequence[EntityData]
    values: Sequence[ValueData]


class DescribeClientQuotasResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[EntryData] | None
