"""DeleteTopics (API 20), versions 0-6.

Deletes topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeleteTopicState(TypedDict):
    name: str | None
    topic_id: str


class DeleteTopicsRequest(TypedDict):
    topic_names: NotRequired[Sequence[str]]
    topics: NotRequired[Sequence[DeleteTopicState]]
    timeout_ms: int


class DeletableTopicResult(TypedDict):
    name: str | None
    topic_id: NotRequired[str]
    error_code: int
    error_message: NotRequired[str | None]


class DeleteTopicsResponse(TypedDict):
    throttle_time_ms: NotRequired[int]
    responses: Sequence[DeletableTopicResult]
