"""OffsetCommitValue, versions 0-4.

The offset that a group committed, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class OffsetCommitValue(TypedDict):
    offset: int
    leader_epoch: NotRequired[int]
    metadata: str
    commit_timestamp: int
    expire_timestamp: NotRequired[int]
    topic_id: NotRequired[str]
