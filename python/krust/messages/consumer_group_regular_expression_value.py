"""ConsumerGroupRegularExpressionValue, versions 0-0.

The topics that a regular expression of a consumer group matches, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConsumerGroupRegularExpressionValue(TypedDict):
    topics: Sequence[str]
    version: int
    timestamp: int
