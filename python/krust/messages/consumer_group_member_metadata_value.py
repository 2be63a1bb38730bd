"""ConsumerGroupMemberMetadataValue, versions 0-0.

A member of a consumer group as it joined, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ClassicProtocol(TypedDict):
    name: str
    metadata: bytes


class ClassicMemberMetadata(TypedDict):
    session_timeout_ms: int
    supported_protocols: Sequence[ClassicProtocol]


class ConsumerGroupMemberMetadataValue(TypedDict):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: NotRequired[ClassicMemberMetadata | None]
