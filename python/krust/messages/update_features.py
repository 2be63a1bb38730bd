"""UpdateFeatures (API 57), versions 0-2.

Sets the levels of finalized features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class FeatureUpdateKey(TypedDict):
    feature: str
    max_version_level: int
    allow_downgrade: NotRequired[bool]
    upgrade_type: NotRequired[int]


class UpdateFeaturesRequest(TypedDict):
    timeout_ms: int
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: NotRequired[bool]


class UpdatableFeatureResult(TypedDict):
    feature: str
    error_code: int
    error_message: str | None


class UpdateFeaturesResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: NotRequired[Sequence[UpdatableFeatureResult]]
