"""DescribeConfigs (API 32), versions 0-4.

Settings with their values and sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DescribeConfigsResource(TypedDict):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequest(TypedDict):
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: NotRequired[bool]
    include_documentation: NotRequired[bool]


class DescribeConfigsSynonym(TypedDict):
    name: str
    value: str | None
    source: int


class DescribeConfigsResourceResult(TypedDict):
    name: str
    value: str | None
    read_only: bool
    is_default: NotRequired[bool]
    config_source: NotRequired[int]
    is_sensitive: bool
    synonyms: NotRequired[Sequence[DescribeConfigsSynonym]]
    config_type: NotRequired[int]
    documentation: NotRequired[str | None]


class DescribeConfigsResult(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]


class DescribeConfigsResponse(TypedDict):
    throttle_time_ms: int
    results: Sequence[DescribeConfigsResult]
