"""ApiVersions (API 18), versions 0-4.

Which APIs and versions the broker serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ApiVersionsRequest(TypedDict):
    client_software_name: NotRequired[str]
    client_software_version: NotRequired[str]


class ApiVersion(TypedDict):
    api_key: int
    min_version: int
    max_version: int


class SupportedFeatureKey(TypedDict):
    name: str
    min_version: int
    max_version: int


class FinalizedFeatureKey(TypedDict):
    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(TypedDict):
    error_code: int
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: NotRequired[int]
    supported_features: NotRequired[Sequence[SupportedFeatureKey]]
    finalized_features_epoch: NotRequired[int]
    finalized_features: NotRequired[Sequence[FinalizedFeatureKey]]
    zk_migration_ready: NotRequired[bool]
