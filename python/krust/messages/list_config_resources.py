"""ListConfigResources (API 74), versions 0-1.

The names of the resources that have settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListConfigResourcesRequest(TypedDict):
    resource_types: NotRequired[Sequence[int]]


class ConfigResource(TypedDict):
    resource_name: str
    resource_type: NotRequired[int]


class ListConfigResourcesResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    config_resources: Sequence[ConfigResource]
