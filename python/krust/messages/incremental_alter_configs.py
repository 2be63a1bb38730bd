"""IncrementalAlterConfigs (API 44), versions 0-1.

Changes single settings of a resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class AlterableConfig(TypedDict):
    name: str
    config_operation: int
    value: str | None


class AlterConfigsResource(TypedDict):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]


class IncrementalAlterConfigsRequest(TypedDict):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(TypedDict):
    throttle_time_ms: int
    responses: Sequence[AlterConfigsResourceResponse]
