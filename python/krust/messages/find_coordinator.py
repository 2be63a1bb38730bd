"""FindCoordinator (API 10), versions 0-6.

Which broker keeps a group, a transaction or a share partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class FindCoordinatorRequest(TypedDict):
    key: NotRequired[str]
    key_type: NotRequired[int]
    coordinator_keys: NotRequired[Sequence[str]]


class Coordinator(TypedDict):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class FindCoordinatorResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    error_code: NotRequired[int]
    error_message: NotRequired[str | None]
    node_id: NotRequired[int]
    host: NotRequired[str]
    port: NotRequired[int]
    coordinators: NotRequired[Sequence[Coordinator]]
