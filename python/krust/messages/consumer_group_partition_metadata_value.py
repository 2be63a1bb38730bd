"""ConsumerGroupPartitionMetadataValue, versions 0-0.

The topics of a consumer group as Kafka before 4.1 kept them, in `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class PartitionMetadata(TypedDict):
    partition: int
    racks: Sequence[str]


class TopicMetadata(TypedDict):
    topic_id: str
    topic_name: str
    num_partitions: int
    partition_metadata: Sequence[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(TypedDict):
    topics: Sequence[TopicMetadata]
